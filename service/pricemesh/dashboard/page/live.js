// What every page has: the feed, the story so far, and a line that says whether what is shown is current.

import { byId, say } from "./dom.js";
import { listen } from "./feed.js";
import { age, count, follow, now } from "./text.js";

const KEEP_SECONDS = 300;
const story = { seconds: [], versions: {}, marks: [], frame: null };

/** Calls `show(story)` with every frame, and whenever the page's width changes. */
export function live(show) {
  const redraw = () => story.frame && show(story);
  let last = 0;
  addEventListener("resize", () => {
    clearTimeout(last);
    last = setTimeout(redraw, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  listen((event, content) => {
    if (event === "fault") return fault(content.detail);
    follow(content.at);
    if (event === "history") Object.assign(story, { seconds: content.seconds, versions: content.versions, marks: content.truth });
    if (event === "frame") take(content);
    redraw();
  }, connection);
  setInterval(freshness, 500);
}

function take(frame) {
  const newest = story.seconds.at(-1)?.at ?? 0;
  story.seconds.push(...frame.seconds.filter((second) => second.at > newest));
  while (story.seconds.length && story.seconds[0].at < frame.at - KEEP_SECONDS - 5) story.seconds.shift();
  const held = [[frame.state.city, frame.state.version], ...frame.state.peers.map((peer) => [peer.origin, peer.version])];
  for (const [origin, version] of held) {
    if (!origin || version === null) continue;
    const seen = (story.versions[origin] ??= []);
    if (!seen.length || frame.at - seen.at(-1)[0] >= 5) seen.push([frame.at, version]);
    if (seen.length > KEEP_SECONDS / 5) seen.shift();
  }
  if (frame.truth.length && frame.truth[0].at !== story.marks.at(-1)?.[0]) {
    const each = (regret) => (regret?.decisions ? regret.regret / regret.decisions : null);
    story.marks.push([frame.truth[0].at, Object.fromEntries(frame.truth.map((told) => [told.city, [each(told.together), each(told.alone)]]))]);
    if (story.marks.length > 400) story.marks = story.marks.filter((_, i) => i % 2 === 0);
  }
  story.frame = frame;
  const { city, policy, version } = frame.state;
  document.title = `${city} · pricemesh`;
  say(byId("city"), city);
  say(byId("policy"), policy.name);
  say(byId("learner-version"), count(version));
}

let state = "connecting";

function connection(fresh, why) {
  if (fresh === "connecting" && state === "lost") return; // still lost, until a word is heard
  state = fresh;
  const line = byId("live");
  line.dataset.state = state;
  const words = { live: "live", connecting: "connecting", lost: "connection lost, trying again" };
  say(line.querySelector(".said"), words[state]);
  const banner = byId("lost");
  banner.hidden = state !== "lost";
  if (state === "lost") say(banner.querySelector(".why"), why);
  if (state === "live") byId("fault").hidden = true;
}

function fault(detail) {
  byId("fault").hidden = false;
  say(byId("fault").querySelector(".why"), detail);
}

function freshness() {
  say(byId("live").querySelector(".ago"), story.frame ? `${age(now() - story.frame.at)} ago` : "");
}
