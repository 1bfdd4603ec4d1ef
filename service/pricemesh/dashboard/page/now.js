// Now: what the city decides, hears and earns at this moment, and what binds it.

import { asTable, byId, h, keyed, say, table } from "./dom.js";
import { drawPrices, pricesTable, ruled } from "./prices.js";
import { drawRewards, movingAverage, rewardsTable } from "./rewards.js";
import { clock, count, moment, NONE, number, percent, price, rate, ticking } from "./text.js";

export function showNow(story) {
  const { frame, seconds } = story;
  const { state, rates } = frame;
  const fresh = state.peers.filter((peer) => peer.status === "fresh").length;
  say(byId("decisions"), count(state.decisions));
  say(byId("feedback"), count(state.feedback));
  say(byId("decisions-rate"), rate(rates?.decisions));
  say(byId("feedback-rate"), rate(rates?.feedback));
  const average = movingAverage(seconds).at(-1);
  say(byId("reward"), average ? number(average.value) : NONE);
  say(byId("peers-fresh"), `${fresh} of ${state.peers.length}`);
  inForce(state);
  const any = state.decisions > 0;
  byId("no-decisions").hidden = any;
  byId("now-charts").hidden = !any;
  if (any) {
    drawPrices(byId("prices"), story);
    asTable(byId("prices-table"), () => pricesTable(story));
    drawRewards(byId("rewards"), story);
    asTable(byId("rewards-table"), () => rewardsTable(story));
  }
  byId("arms").replaceChildren(armsTable(state, seconds));
  latest(frame.latest);
}

/** Guardrails, pins and freezes as a list; what an operator did comes first, with why and since when. */
function inForce({ guardrails, controls }) {
  const { floor, ceiling, max_step: step } = guardrails;
  const items = [
    controls.pin && { kind: "warn", mark: "▲", name: `price pinned to ${price(controls.pin.value.price)}`, why: controls.pin.value.reason, since: controls.pin.since },
    controls.freeze && { kind: "warn", mark: "▲", name: "learning frozen: feedback is kept, not learned", why: controls.freeze.value.reason, since: controls.freeze.since },
    controls.left && { kind: "warn", mark: "▲", name: "left the mesh: no peer is called", why: "", since: controls.left.since },
    floor !== null && { kind: "plain", mark: "⊥", name: `floor ${price(floor)}` },
    ceiling !== null && { kind: "plain", mark: "⊤", name: `ceiling ${price(ceiling)}` },
    step !== null && { kind: "plain", mark: "↕", name: `at most ${price(step)} a step for the same subject` },
  ].filter(Boolean);
  if (!items.length) items.push({ kind: "plain", mark: "○", name: "no guardrail, no pin, no freeze" });
  keyed(
    byId("in-force"),
    items,
    (item) => item.name + (item.why ?? ""),
    (item) => h("li", { class: item.kind }, h("span", { "aria-hidden": "true" }, `${item.mark} `), item.name, item.why ? `, “${item.why}”` : null, item.since ? h("span", { class: "since" }) : null),
    (element, item) => item.since && ticking(element.querySelector(".since"), item.since, (text) => `, for ${text}`),
  );
}

function armsTable({ arms, guardrails, controls }, seconds) {
  const recent = new Map();
  let all = 0;
  for (const second of seconds.slice(-60))
    for (const [arm, n] of second.decisions) {
      recent.set(arm, (recent.get(arm) ?? 0) + n);
      all += n;
    }
  return table(
    "Prices: how often each was learned from, and what it brought",
    [
      ["Price", (arm) => named(arm, guardrails, controls)],
      ["Last minute", (arm) => share(all ? (recent.get(arm.arm) ?? 0) / all : null), true],
      ["Learned from", (arm) => h("span", { "data-number": `count-${arm.arm}` }, count(arm.count)), true],
      ["Mean reward", (arm) => h("span", { "data-number": `mean-${arm.arm}` }, number(arm.mean_reward)), true],
    ],
    arms,
  );
}

function named({ price: level }, guardrails, controls) {
  const out = ruled(level, guardrails, controls);
  return h("span", null, price(level), out ? h("span", { class: "small" }, ` ${out}`) : null);
}

function share(part) {
  const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span"));
  meter.firstChild.style.width = `${100 * (part ?? 0)}%`;
  return h("span", { class: "metered" }, meter, percent(part));
}

function latest(decisions) {
  byId("latest").hidden = !decisions.length;
  keyed(
    byId("latest-rows"),
    decisions,
    (made) => made.decision_id,
    (made) =>
      h(
        "tr",
        null,
        h("td", { title: moment(made.made_at) }, clock(made.made_at)),
        h("td", { class: "number" }, price(made.price)),
        h("td", { class: "number reward" }),
        h("td", { class: "id" }, h("a", { href: `#decision=${encodeURIComponent(made.decision_id)}` }, made.decision_id)),
      ),
    (row, made) => say(row.querySelector(".reward"), made.reward === null ? "waiting" : number(made.reward)),
  );
}
