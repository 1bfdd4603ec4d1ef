// The view "Now": counts, rates, charts of prices and rewards, guardrails and controls, the latest decisions.

import { asTable, byId, h, keyed, say, table } from "./dom.js";
import { drawPrices, pricesTable, ruleOn } from "./prices.js";
import { drawRewards, movingAverage, rewardsTable } from "./rewards.js";
import { clock, count, moment, NONE, percent, price, rate, rewardWord, ticking, worth } from "./text.js";

export function showNow(feedData) {
  const { frame, seconds } = feedData;
  const { state, rates } = frame;
  const fresh = state.peers.filter((peer) => peer.status === "fresh").length;
  say(byId("decisions"), count(state.decisions));
  say(byId("feedback"), count(state.feedback));
  say(byId("decisions-rate"), rate(rates?.decisions));
  say(byId("feedback-rate"), rate(rates?.feedback));
  document.querySelectorAll("[data-reward]").forEach((element) => say(element, rewardWord(state.reward)));
  const average = movingAverage(seconds).at(-1);
  say(byId("reward"), average ? worth(average.value) : NONE);
  say(byId("peers-fresh"), `${fresh} of ${state.peers.length}`);
  showInForce(state);
  const hasDecisions = state.decisions > 0;
  byId("no-decisions").hidden = hasDecisions;
  byId("now-charts").hidden = !hasDecisions;
  if (hasDecisions) {
    drawPrices(byId("prices"), feedData);
    asTable(byId("prices-table"), () => pricesTable(feedData));
    drawRewards(byId("rewards"), feedData);
    asTable(byId("rewards-table"), () => rewardsTable(feedData));
  }
  byId("arms").replaceChildren(armsTable(state, seconds));
  showLatest(frame.latest);
}

/** Guardrails and controls as a list. Controls come first, with the reason and their age. */
function showInForce({ guardrails, controls, warnings }) {
  const { floor, ceiling, max_step: step } = guardrails;
  const items = [
    ...warnings.map((text) => ({ kind: "warn", mark: "▲", name: text })),
    controls.pin && { kind: "warn", mark: "▲", name: `price pinned to ${price(controls.pin.value.price)}`, why: controls.pin.value.reason, since: controls.pin.since },
    controls.freeze && { kind: "warn", mark: "▲", name: "learning frozen: answers are stored, not learned", why: controls.freeze.value.reason, since: controls.freeze.since },
    controls.left && { kind: "warn", mark: "▲", name: "left the mesh: no other city is called", why: "", since: controls.left.since },
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

function armsTable({ arms, guardrails, controls, reward }, seconds) {
  const mean = `Mean ${rewardWord(reward).toLowerCase()}`;
  const recent = new Map();
  let total = 0;
  for (const second of seconds.slice(-60))
    for (const [arm, n] of second.decisions) {
      recent.set(arm, (recent.get(arm) ?? 0) + n);
      total += n;
    }
  return table(
    `Prices: how many answers each has, and its ${mean.toLowerCase()}`,
    [
      ["Price", (arm) => priceCell(arm, guardrails, controls)],
      ["Last minute", (arm) => meter(total ? (recent.get(arm.arm) ?? 0) / total : null), true],
      ["Answers", (arm) => h("span", { "data-number": `count-${arm.arm}` }, count(arm.count)), true],
      ...(reward.kind === "purchase" ? [["Units sold", (arm) => h("span", { "data-number": `sold-${arm.arm}` }, count(arm.units_sold)), true]] : []),
      [mean, (arm) => h("span", { "data-number": `mean-${arm.arm}` }, worth(arm.mean_reward)), true],
    ],
    arms,
  );
}

function priceCell({ price: level }, guardrails, controls) {
  const rule = ruleOn(level, guardrails, controls);
  return h("span", null, price(level), rule ? h("span", { class: "small" }, ` ${rule}`) : null);
}

function meter(share) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("span"));
  bar.firstChild.style.width = `${100 * (share ?? 0)}%`;
  return h("span", { class: "metered" }, bar, percent(share));
}

function showLatest(decisions) {
  byId("latest").hidden = !decisions.length;
  keyed(
    byId("latest-rows"),
    decisions,
    (decision) => decision.decision_id,
    (decision) =>
      h(
        "tr",
        null,
        h("td", { title: moment(decision.made_at) }, clock(decision.made_at)),
        h("td", { class: "number" }, price(decision.price)),
        h("td", { class: "number reward" }),
        h("td", { class: "id" }, h("a", { href: `#decision=${encodeURIComponent(decision.decision_id)}` }, decision.decision_id)),
      ),
    (row, decision) => say(row.querySelector(".reward"), outcome(decision)),
  );
}

function outcome({ reward, sold }) {
  if (reward === null) return "waiting";
  return sold === null ? worth(reward) : `${worth(reward)} (${count(sold)} sold)`;
}
