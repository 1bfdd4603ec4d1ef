// What every page has: the feed, the data received so far, and a line that tells how old they are.

import { byId, say } from "./dom.js";
import { listen } from "./feed.js";
import { age, count, now, price, setClock, setCurrency } from "./text.js";

const HISTORY_SECONDS = 300;
const VERSIONS_EVERY_SECONDS = 5;
const MAX_MARKS = 400;
const feedData = { seconds: [], versions: {}, marks: [], frame: null };

/** The data received so far; null before the first frame. */
export const newestData = () => (feedData.frame ? feedData : null);

/** Calls `show(feedData)` with every frame, and whenever the page's width changes. */
export function live(show) {
  const redraw = () => feedData.frame && show(feedData);
  let timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(redraw, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  listen((event, content) => {
    if (event === "fault") return showFault(content.detail);
    setClock(content.at);
    if (event === "history") Object.assign(feedData, { seconds: content.seconds, versions: content.versions, marks: content.truth });
    if (event === "frame") addFrame(content);
    redraw();
  }, showConnection);
  setInterval(showAge, 500);
}

function addFrame(frame) {
  const newest = feedData.seconds.at(-1)?.at ?? 0;
  feedData.seconds.push(...frame.seconds.filter((second) => second.at > newest));
  while (feedData.seconds.length && feedData.seconds[0].at < frame.at - HISTORY_SECONDS - 5) feedData.seconds.shift();
  const versions = [[frame.state.city, frame.state.version], ...frame.state.peers.map((peer) => [peer.origin, peer.version])];
  for (const [origin, version] of versions) {
    if (!origin || version === null) continue;
    const points = (feedData.versions[origin] ??= []);
    if (!points.length || frame.at - points.at(-1)[0] >= VERSIONS_EVERY_SECONDS) points.push([frame.at, version]);
    if (points.length > HISTORY_SECONDS / VERSIONS_EVERY_SECONDS) points.shift();
  }
  if (frame.truth.length && frame.truth[0].at !== feedData.marks.at(-1)?.[0]) {
    const mean = (regret) => (regret?.decisions ? regret.regret / regret.decisions : null);
    feedData.marks.push([frame.truth[0].at, Object.fromEntries(frame.truth.map((city) => [city.city, [mean(city.together), mean(city.alone)]]))]);
    if (feedData.marks.length > MAX_MARKS) feedData.marks = feedData.marks.filter((_, i) => i % 2 === 0);
  }
  feedData.frame = frame;
  const { city, policy, version, arms, display } = frame.state;
  setCurrency(display.currency);
  document.title = `${city} · pricemesh`;
  say(byId("city"), city);
  if (byId("ladder")) say(byId("ladder"), `${count(arms.length)} prices from ${price(arms[0].price)} to ${price(arms.at(-1).price)}`);
  say(byId("policy"), policy.name);
  say(byId("learner-version"), count(version));
}

let state = "connecting";

function showConnection(newState, why) {
  if (newState === "connecting" && state === "lost") return; // still lost until an event arrives
  state = newState;
  const line = byId("connection");
  line.dataset.state = state;
  const words = { live: "live", connecting: "connecting", lost: "connection lost, trying again" };
  say(line.querySelector(".status-text"), words[state]);
  const banner = byId("lost");
  banner.hidden = state !== "lost";
  if (state === "lost") say(banner.querySelector(".why"), why);
  if (state === "live") byId("fault").hidden = true;
}

function showFault(detail) {
  byId("fault").hidden = false;
  say(byId("fault").querySelector(".why"), detail);
}

function showAge() {
  say(byId("connection").querySelector(".ago"), feedData.frame ? `${age(now() - feedData.frame.at)} ago` : "");
}
