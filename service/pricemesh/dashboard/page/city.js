// The page of one city. The first view comes with the page; the others are loaded when somebody opens them.

import { showBeliefs } from "./beliefs.js";
import { showBusiness } from "./business.js";
import { live, newestData } from "./live.js";
import { currentView, startViews } from "./views.js";

const LOADERS = {
  business: async () => (feedData) => {
    showBusiness(feedData);
    showBeliefs(feedData);
  },
  live: async () => {
    const [{ showNow }, { showMesh }] = await Promise.all([import("./now.js"), import("./mesh-here.js")]);
    return (feedData) => {
      showNow(feedData);
      showMesh(feedData);
    };
  },
  operate: async () => {
    const { openOperate, showOperate } = await import("./operate.js");
    openOperate();
    return showOperate;
  },
};
const shows = {}; // by view, once it is loaded

function draw(feedData) {
  shows[currentView()]?.(feedData);
}

async function openView(name) {
  shows[name] ??= await LOADERS[name]();
  const feedData = newestData();
  if (feedData) draw(feedData);
}

async function openDecision(id) {
  if (id === null && !document.getElementById("decision").open) return;
  const { closeDecision, showDecision } = await import("./decision.js");
  if (id === null) closeDecision();
  else showDecision(id);
}

startViews(openView, openDecision);
live(draw);
