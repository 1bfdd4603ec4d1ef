// A decision, over the view from which it was opened: its audit record by id, with the context, the estimates of
// then, and each city's part.

import { get } from "./city-api.js";
import { asTable, byId, h, say, table } from "./dom.js";
import { drawIntervals, intervalsTable, rule } from "./intervals.js";
import { count, moment, number, percent, price, worth } from "./text.js";
import { currentView } from "./views.js";
import { drawWaterfall, waterfallTable } from "./waterfall.js";

let record = null;
let started = false;

/** Open the record of a decision; without an id, only the field for one. */
export function showDecision(id) {
  start();
  const dialog = byId("decision");
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  byId("decision-id").value = id;
  if (id) return find(id);
  record = null;
  byId("record").hidden = byId("decision-fault").hidden = true;
}

export const closeDecision = () => byId("decision").close();

function start() {
  if (started) return;
  started = true;
  byId("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = byId("decision-id").value.trim();
    const hash = `#decision=${encodeURIComponent(id)}`;
    if (location.hash === hash || !id) find(id);
    else location.hash = hash;
  });
  byId("close-decision").addEventListener("click", closeDecision);
  byId("decision").addEventListener("close", () => {
    if (location.hash.startsWith("#decision")) location.hash = `#${currentView()}`;
  });
  addEventListener("resize", () => record && paint());
}

async function find(id) {
  if (!id) return showFault("Give the id of a decision, as /price answered it.");
  try {
    record = await get(`decisions/${encodeURIComponent(id)}`);
  } catch (fault) {
    return showFault(fault.status === 404 ? `There is no decision “${id}” in this city.` : fault.message);
  }
  byId("decision-fault").hidden = true;
  byId("record").hidden = false;
  paint();
}

function showFault(text) {
  record = null;
  byId("record").hidden = true;
  byId("decision-fault").hidden = false;
  say(byId("decision-fault"), text);
}

function paint() {
  const { arm, estimate, radius, feedback, imported, limited_by: limits, contributions } = record;
  say(byId("record-title"), `${price(record.price)} given at ${moment(record.made_at)}`);
  const facts = [
    ["Id", record.decision_id],
    ["Expected then", imported ? "none: this decision was imported" : `${worth(estimate)} ± ${worth(radius)}`],
    ["Chosen with probability", record.propensity === null ? "not known" : number(record.propensity)],
    ...(record.chance === null ? [] : [["Chance of a sale", percent(record.chance)]]),
    [feedback && feedback.sold !== null ? "Sold" : "Reward", feedback ? `${feedback.sold === null ? "" : `${count(feedback.sold)}, worth `}${worth(feedback.reward)}${feedback.by_default ? " by default" : ""}${feedback.version === null ? ", not learned (frozen)" : `, learned`}` : "none yet"],
        ["Customer", record.subject ?? "none named"],
    ["Ruled out", limits.length ? limits.map((limit) => `${limit.arms.map((k) => price(record.arms[k].price)).join(", ")} (${rule(limit.rule)})`).join("; ") : "nothing"],
  ];
  byId("facts").replaceChildren(...facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
  say(byId("decision-details"), `Policy ${record.policy}, learner version ${count(record.learner_version)}${feedback?.version ? `, its answer learned as version ${count(feedback.version)}` : ""}.`);
  const rules = new Map(limits.flatMap((limit) => limit.arms.map((k) => [k, limit.rule])));
  const arms = record.arms.map((each) => ({ ...each, out: rules.get(each.arm) }));
  for (const card of ["parts-card", "then-card"]) byId(card).hidden = imported;
  showContext();
  if (imported) return;
  say(byId("waterfall-note"), partsNote(record));
  drawWaterfall(byId("waterfall"), contributions, record);
  asTable(byId("waterfall-table"), () => waterfallTable(contributions, record));
  drawIntervals(byId("then"), arms, arm, record.scale === "logit" ? "money expected" : undefined);
  asTable(byId("then-table"), () => intervalsTable("What the city believed of each price then", arms, arm));
}

function showContext() {
  const context = ["shared", "local"].flatMap((part) => Object.entries(record.context[part]).map(([name, value]) => ({ part, name, value })));
  byId("context").replaceChildren(table("The context of the request", [["Feature", (each) => each.name], ["Kind", (each) => each.part], ["Value", (each) => number(each.value), true]], context));
}

/** What the parts add up to, in words. */
function partsNote({ scale, chance }) {
  if (scale === "money") return "Of what the chosen price was expected to bring; the parts add up to it";
  return `Of the log-odds of a sale, where parts add up: above 0 a sale is likelier than not. Here the chance was ${percent(chance)}.`;
}
