// The page "Whole mesh": every city that this one knows, side by side on the same scales.

import { spanOf } from "./chart.js";
import { asTable, byId, h, keyed, say, table } from "./dom.js";
import { live } from "./live.js";
import { nameOf, STATUSES } from "./network.js";
import { drawBars, drawGrowth, drawRegret } from "./mesh-charts.js";
import { bytes, count, number, percent, ticking } from "./text.js";

live((feedData) => {
  const { frame } = feedData;
  const { state } = frame;
  const own = 1 - state.peers.reduce((sum, peer) => sum + (peer.share ?? 0), 0);
  const here = { origin: state.city, status: "here", version: state.version, share: own, weights: [], address: null, reason: null };
  const cities = [here, ...state.peers];
  showTruth(feedData);
  const scales = { now: frame.at, span: spanOf(feedData.seconds, frame.at), max: Math.max(1, ...cities.map((city) => city.version ?? 0)) };
  keyed(byId("cities"), cities, nameOf, card, (element, city) => updateCard(element, city, { ...feedData, scales }));
  say(byId("known"), `${count(cities.length)} ${cities.length === 1 ? "city" : "cities"}, as ${state.city} knows them`);
  byId("alone").hidden = state.peers.length > 0;
});

function card(city) {
  return h(
    "li",
    { class: "card city" },
    h("header", null, h("h3", null, nameOf(city)), h("span", { class: "chip" })),
    h("p", { class: "reason", hidden: true }),
    h("h4", null, "Version, last minutes"),
    h("div", { class: "chart growth" }),
    h("dl", { class: "facts" }, ["Share", "Heard", "In / out"].map((name) => h("div", { class: name.split(" ")[0].toLowerCase() }, h("dt", null, name), h("dd", null)))),
    h("div", { class: "weight-chart" }, h("h4", null, "Weight by price"), h("div", { class: "chart weights" })),
  );
}

function updateCard(element, city, { frame, versions, scales }) {
  const part = (selector) => element.querySelector(selector);
  const { mark, kind, meaning } = STATUSES[city.status] ?? { mark: "★", kind: "here", meaning: "the city that serves this page" };
  element.dataset.status = city.status;
  const chip = part(".chip");
  chip.className = `chip ${kind}`;
  chip.title = meaning;
  say(chip, `${mark} ${city.status === "here" ? "this city" : city.status}`);
  const reason = part(".reason");
  reason.hidden = !city.reason;
  say(reason, city.reason ?? "");
  const newest = city.version === null ? [] : [[frame.at, city.version]];
  drawGrowth(part(".growth"), [...(versions[city.origin] ?? []), ...newest], scales);
  say(part(".share dd"), percent(city.share));
  if (city.status === "here") say(part(".heard dd"), "itself");
  else ticking(part(".heard dd"), city.age_seconds === null ? null : frame.at - city.age_seconds, (text) => `${text} ago`);
  say(part(".in dd"), city.status === "here" ? "–" : `${bytes(city.bytes_in)} / ${bytes(city.bytes_out)}`);
  const { arms } = frame.state;
  const maxCount = Math.max(1, ...arms.map((arm) => arm.count));
  const isOne = city.weights.length === 1 && arms.length > 1; // the policy has one weight for all prices
  const weights = isOne ? arms.map(() => city.weights[0]) : city.weights;
  const bars = city.status === "here" ? arms.map((arm) => arm.count / maxCount) : weights;
  say(part(".weight-chart h4"), city.status === "here" ? "Learned from, by price" : isOne ? "Weight, the same for all prices" : "Weight by price");
  part(".weight-chart").hidden = !bars.length;
  if (bars.length) drawBars(part(".weights"), part(".weight-chart h4").textContent, bars, arms);
}

/** Regret and gain, if the driver of a demonstration has reported them. */
function showTruth({ frame, marks }) {
  const reports = frame.truth;
  byId("no-truth").hidden = reports.length > 0;
  byId("truth-body").hidden = !reports.length;
  if (!reports.length) return;
  const mean = (which) => {
    const all = reports.map((city) => city[which]).filter(Boolean);
    const decisions = all.reduce((sum, regret) => sum + regret.decisions, 0);
    return all.length ? all.reduce((sum, regret) => sum + regret.regret, 0) / Math.max(1, decisions) : null;
  };
  const [together, alone] = [mean("together"), mean("alone")];
  say(byId("regret-together"), number(together, 4));
  say(byId("regret-alone"), number(alone, 4));
  say(byId("gain"), alone ? percent(1 - together / alone) : "–");
  say(byId("truth-decisions"), count(reports.reduce((sum, city) => sum + city.together.decisions, 0)));
  ticking(byId("truth-age"), reports[0].at, (text) => `reported ${text} ago`);
  const series = (city) => marks
    .filter(([, cities]) => cities[city])
    .map(([at, cities]) => ({ at, together: cities[city][0], alone: cities[city][1] }))
    .filter((mark) => mark.together !== null);
  // The first points are noise: the later ones set the scale.
  const values = reports.flatMap(({ city }) => series(city).slice(2)).flatMap((mark) => [mark.together, mark.alone ?? 0]);
  const scales = { max: Math.max(1e-6, ...values), from: marks[0]?.[0] ?? 0, to: marks.at(-1)?.[0] ?? 1 };
  keyed(
    byId("regrets"),
    reports,
    (city) => city.city,
    (city) => h("li", { class: "card" }, h("header", null, h("h3", null, city.city), h("span", { class: "ratio" })), h("div", { class: "chart" })),
    (element, city) => {
      const points = series(city.city);
      const latest = points.at(-1);
      if (!latest) return;
      const ratio = latest.alone ? latest.together / latest.alone : null;
      say(element.querySelector(".ratio"), ratio === null ? "" : `${number(ratio, 2)} of alone`);
      drawRegret(element.querySelector(".chart"), points, scales);
    },
  );
  asTable(byId("truth-table"), () => table("Regret a decision by city", [
    ["City", (city) => city.city],
    ["Decisions", (city) => count(city.together.decisions), true],
    ["Together", (city) => number(city.together.regret / Math.max(1, city.together.decisions), 4), true],
    ["Alone", (city) => (city.alone ? number(city.alone.regret / Math.max(1, city.alone.decisions), 4) : "–"), true],
  ], reports));
}
