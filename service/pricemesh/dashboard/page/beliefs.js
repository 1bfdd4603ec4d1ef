// What the city believes of a context: sliders for the declared features, and every arm's interval.

import { get, post } from "./city-api.js";
import { asTable, byId, h, say } from "./dom.js";
import { drawIntervals, intervalsTable, rule } from "./intervals.js";
import { bound, number, percent, price } from "./text.js";

const WIDE = 20; // a feature held to more than this gets a slider of its usual range, and a field for the rest
const context = { shared: {}, local: {} };
let believed = null;
let asked = { version: -1, peers: "" };
let waiting = null;

/** With every frame: make the sliders once, and ask again when the learner or its peers have moved. */
export async function showBeliefs({ frame }) {
  const { features, version, peers, controls } = frame.state;
  if (!byId("features").childElementCount) {
    byId("features").replaceChildren(...group("Shared features", "shared", features.shared), ...group("Local features", "local", features.local));
    byId("use-latest").addEventListener("click", useLatest);
    await useLatest();
    return;
  }
  const told = JSON.stringify([peers.map((peer) => peer.version), controls]);
  if (asked.version !== version || asked.peers !== told) ask({ version, peers: told });
  else if (believed) paint();
}

function group(title, part, features) {
  if (!features.length) return [];
  return [h("fieldset", null, h("legend", null, title), features.map((feature) => slider(part, feature)))];
}

function slider(part, { name, min, max }) {
  const wide = max - min > WIDE;
  const [low, high] = wide ? [Math.max(min, -2), Math.min(max, 2)] : [min, max];
  const [from, to] = low < high ? [low, high] : [min, max];
  const middle = wide ? Math.min(Math.max(0.5, min), max) : (min + max) / 2;
  const [id, bounds] = [`${part}-${name}`, `${part}-${name}-bounds`];
  const within = min === -max ? `±${bound(max)}` : `${bound(min)} … ${bound(max)}`;
  const range = h("input", { type: "range", id, min: from, max: to, step: (to - from) / 100, "aria-describedby": bounds });
  const exact = h("input", { type: "number", min, max, step: "any", "aria-label": `${name}, exactly`, "aria-describedby": bounds });
  const set = (value) => {
    context[part][name] = value;
    range.value = value;
    range.setAttribute("aria-valuetext", `${number(value)}, from ${bound(min)} to ${bound(max)}`);
    if (document.activeElement !== exact) exact.value = Number(value.toFixed(4));
  };
  range.addEventListener("input", () => {
    set(Number(range.value));
    soon();
  });
  exact.addEventListener("input", () => {
    if (!exact.checkValidity() || exact.value === "") return;
    set(Number(exact.value));
    soon();
  });
  range.set = set;
  set(middle);
  return h("div", { class: "feature" }, h("label", { for: id }, name), exact, range, h("span", { class: "bounds", id: bounds }, within));
}

async function useLatest() {
  try {
    const { decisions } = await get("decisions?limit=1");
    for (const part of ["shared", "local"])
      for (const [name, value] of Object.entries(decisions[0]?.context[part] ?? {})) byId(`${part}-${name}`)?.set(value);
    say(byId("use-latest-said"), decisions.length ? "" : "no decisions yet: the middle of each range is shown");
  } catch (fault) {
    say(byId("use-latest-said"), fault.message);
  }
  await ask(asked);
}

function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => ask(asked), 60);
}

async function ask(when) {
  asked = when;
  try {
    believed = await post("beliefs", context);
  } catch (fault) {
    say(byId("belief"), fault.errors?.length ? fault.errors.map((error) => `${error.field}: ${error.detail}`).join("; ") : fault.message);
    return;
  }
  paint();
}

function paint() {
  const { separable, told_by: told, chosen } = believed;
  const pooled = told.length > 0;
  const arms = believed.arms.map((arm) => ({ ...arm, own: pooled ? arm.own : null, out: arm.ruled_out_by }));
  drawIntervals(byId("intervals"), arms, chosen);
  asTable(byId("intervals-table"), () => intervalsTable("What the city believes of each price", arms, chosen));
  byId("intervals").dataset.chosen = chosen;
  byId("belief-legend").hidden = !pooled;
  byId("not-separable").hidden = separable || !pooled;
  byId("nobody-told").hidden = pooled;
  say(byId("belief"), because(believed));
}

/** Which price, and why, in words. */
function because({ arms, chosen, chosen_alone: alone, told_by: told, separable }) {
  const best = arms[chosen];
  const out = arms.filter((arm) => arm.ruled_out_by);
  const pinned = out.some((arm) => arm.ruled_out_by === "pin");
  const sentences = pinned
    ? [`${price(best.price)} is given: an operator has pinned it.`]
    : [`${price(best.price)} would be chosen: the highest upper bound, ${number(best.estimate)} + ${number(best.radius)} = ${number(best.estimate + best.radius)}.`];
  const ahead = [...arms].filter((arm) => arm.arm !== chosen && arm.ruled_out_by && arm.estimate + arm.radius > best.estimate + best.radius);
  if (ahead.length && !pinned) sentences.push(`${ahead.map((arm) => price(arm.price)).join(", ")} would have a higher one, but ${ahead.length === 1 ? "is" : "are"} ruled out: ${rule(ahead[0].ruled_out_by)}.`);
  if (told.length && separable) {
    const narrower = 1 - best.radius / best.own.radius;
    sentences.push(`With what ${told.length} ${told.length === 1 ? "peer" : "peers"} told, its interval is ${percent(Math.abs(narrower))} ${narrower >= 0 ? "narrower" : "wider"} than alone.`);
    sentences.push(alone === chosen ? "Alone the city would choose the same." : `Alone the city would choose ${price(arms[alone].price)}.`);
  }
  return sentences.join(" ");
}
