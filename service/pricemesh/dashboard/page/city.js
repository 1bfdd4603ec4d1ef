// The page of one city.

import { showBeliefs } from "./beliefs.js";
import { startDecision } from "./decision.js";
import { live } from "./live.js";
import { showMesh } from "./mesh-here.js";
import { showNow } from "./now.js";

startDecision();
live((feedData) => {
  showNow(feedData);
  showMesh(feedData);
  showBeliefs(feedData);
});
