// What each price is expected to bring: sliders for a context, and for it every arm's interval or the demand curve.

import { get, post } from "./city-api.js";
import { demandTable, drawDemand } from "./demand.js";
import { asTable, byId, h, say } from "./dom.js";
import { drawIntervals, intervalsTable, rule } from "./intervals.js";
import { bound, number, percent, price, rewardWord, worth } from "./text.js";

const MAX_SLIDER_SPAN = 20; // the slider of a wider feature covers -2 … 2; the number field takes the rest
const context = { shared: {}, local: {} };
let beliefs = null; // the latest answer of POST /beliefs
let basis = { version: -1, peers: "" }; // what that answer was based on
let timer = null;
let word = "Reward"; // what a reward is called in this city

/** Called with every frame: make the sliders once, and ask again when the learner or its peers have changed. */
export async function showBeliefs({ frame }) {
  const { features, version, peers, controls, reward } = frame.state;
  word = rewardWord(reward);
  if (!byId("features").childElementCount) {
    byId("features").replaceChildren(...group("Shared features", "shared", features.shared), ...group("Local features", "local", features.local));
    byId("use-latest").addEventListener("click", useLatest);
    await useLatest();
    return;
  }
  const others = JSON.stringify([peers.map((peer) => peer.version), controls]);
  if (basis.version !== version || basis.peers !== others) ask({ version, peers: others });
  else if (beliefs) paint();
}

function group(title, part, features) {
  if (!features.length) return [];
  return [h("fieldset", null, h("legend", null, title), features.map((feature) => featureInput(part, feature)))];
}

function featureInput(part, { name, min, max }) {
  const isWide = max - min > MAX_SLIDER_SPAN;
  const [low, high] = isWide ? [Math.max(min, -2), Math.min(max, 2)] : [min, max];
  const [from, to] = low < high ? [low, high] : [min, max];
  const middle = isWide ? Math.min(Math.max(0.5, min), max) : (min + max) / 2;
  const [id, bounds] = [`${part}-${name}`, `${part}-${name}-bounds`];
  const range = min === -max ? `±${bound(max)}` : `${bound(min)} … ${bound(max)}`;
  const slider = h("input", { type: "range", id, min: from, max: to, step: (to - from) / 100, "aria-describedby": bounds });
  const exact = h("input", { type: "number", min, max, step: "any", "aria-label": `${name}, exactly`, "aria-describedby": bounds });
  const set = (value) => {
    context[part][name] = value;
    slider.value = value;
    slider.setAttribute("aria-valuetext", `${number(value)}, from ${bound(min)} to ${bound(max)}`);
    if (document.activeElement !== exact) exact.value = Number(value.toFixed(4));
  };
  slider.addEventListener("input", () => {
    set(Number(slider.value));
    askSoon();
  });
  exact.addEventListener("input", () => {
    if (!exact.checkValidity() || exact.value === "") return;
    set(Number(exact.value));
    askSoon();
  });
  slider.set = set;
  set(middle);
  return h("div", { class: "feature" }, h("label", { for: id }, name), exact, slider, h("span", { class: "bounds", id: bounds }, range));
}

async function useLatest() {
  try {
    const { decisions } = await get("decisions?limit=1");
    for (const part of ["shared", "local"])
      for (const [name, value] of Object.entries(decisions[0]?.context[part] ?? {})) byId(`${part}-${name}`)?.set(value);
    say(byId("use-latest-note"), decisions.length ? "" : "no decisions yet: the middle of each range is shown");
  } catch (fault) {
    say(byId("use-latest-note"), fault.message);
  }
  await ask(basis);
}

function askSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => ask(basis), 60);
}

async function ask(newBasis) {
  basis = newBasis;
  try {
    beliefs = await post("beliefs", context);
  } catch (fault) {
    say(byId("belief"), fault.words ?? fault.message);
    return;
  }
  paint();
}

function paint() {
  const { separable, told_by: peers, curve } = beliefs;
  const pooled = peers.length > 0;
  byId("demand").hidden = !curve;
  byId("arm-intervals").hidden = Boolean(curve);
  if (curve) paintCurve(pooled);
  else paintIntervals(pooled);
  byId("belief-legend").hidden = !pooled && !curve;
  byId("not-separable").hidden = separable || !pooled;
  byId("no-letters").hidden = pooled;
  say(byId("belief"), explain(beliefs));
}

function paintIntervals(pooled) {
  const { chosen } = beliefs;
  const arms = beliefs.arms.map((arm) => ({ ...arm, own: pooled ? arm.own : null, out: arm.ruled_out_by }));
  drawIntervals(byId("intervals"), arms, chosen);
  asTable(byId("intervals-table"), () => intervalsTable("What the city believes of each price", arms, chosen));
  byId("intervals").dataset.chosen = chosen;
}

function paintCurve(pooled) {
  const demand = { ...beliefs, pooled, word };
  say(byId("belief-title"), `Chance of a sale and ${word.toLowerCase()} expected, by price`);
  say(byId("revenue-title"), `${word} expected`);
  say(byId("belief-key"), `${pooled ? "with the other cities’ data: " : ""}what is expected, and in the band how far off it may be`);
  byId("own-key").hidden = !pooled;
  byId("out-key").hidden = !beliefs.arms.some((arm) => arm.ruled_out_by);
  drawDemand({ chance: byId("chance-curve"), revenue: byId("revenue-curve") }, demand);
  asTable(byId("demand-table"), () => demandTable(demand));
}

/** Which price would be chosen, and why, in words. */
function explain({ arms, chosen, chosen_alone: alone, told_by: peers, separable, curve }) {
  const best = arms[chosen];
  const pinned = arms.some((arm) => arm.ruled_out_by === "pin");
  const sentences = pinned
    ? [`${price(best.price)} is given: an operator has pinned it.`]
    : best.propensity < 1
    ? [`A price is drawn at random: ${price(best.price)} is the likeliest, with a probability of ${percent(best.propensity)}.`]
    : [`${price(best.price)} would be chosen: ${word.toLowerCase()} of ${worth(best.estimate)} is expected, and it may be as high as ${worth(best.estimate + best.radius)}, more than of any other price.`];
  if (curve) sentences.push(`It would sell with a chance of ${percent(best.chance)} (${percent(best.chance_low)} to ${percent(best.chance_high)}).`);
  const higher = arms.filter((arm) => arm.arm !== chosen && arm.ruled_out_by && arm.estimate + arm.radius > best.estimate + best.radius);
  if (higher.length && !pinned && best.propensity === 1) sentences.push(`${higher.map((arm) => price(arm.price)).join(", ")} might bring more, but ${higher.length === 1 ? "is" : "are"} ruled out: ${rule(higher[0].ruled_out_by)}.`);
  if (peers.length && separable) {
    const narrower = 1 - best.radius / best.own.radius;
    sentences.push(`With the data of ${peers.length} other ${peers.length === 1 ? "city" : "cities"} it is known ${percent(Math.abs(narrower))} ${narrower >= 0 ? "more" : "less"} closely than alone.`);
    sentences.push(alone === chosen ? "Alone the city would choose the same." : `Alone the city would choose ${price(arms[alone].price)}.`);
  }
  return sentences.join(" ");
}
