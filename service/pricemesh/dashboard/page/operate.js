// The view "Operate": a key if the city needs one, then pins, freezes, retractions and peers.

import { operate, setOperatorKey } from "./city-api.js";
import { confirmAct } from "./confirm.js";
import { byId, h, say } from "./dom.js";
import { peersCard, showPeers } from "./operate-peers.js";
import { ruleOn } from "./prices.js";
import { retractCard, showRetractions } from "./retract.js";
import { age, now, price } from "./text.js";

const PATH_OF_OPERATORS = "admin/retractions?limit=50"; // answers only those who may operate
let state = null; // of the newest frame

/** Called when the view is opened: find out whether a key is needed. */
export function openOperate() {
  byId("operator-key").addEventListener("submit", async (event) => {
    event.preventDefault();
    setOperatorKey(byId("operator-key-text").value.trim());
    byId("operator-key-text").value = "";
    await unlock("This key does not work");
  });
  unlock("");
}

/** Show the controls if the city lets us, else the field for a key. */
async function unlock(fault) {
  try {
    const { retractions } = await operate("GET", PATH_OF_OPERATORS);
    if (!byId("controls").childElementCount) buildControls();
    showRetractions(retractions);
    byId("operator-key").hidden = true;
    byId("controls").hidden = false;
    if (state) showControls();
  } catch (problem) {
    setOperatorKey("");
    byId("controls").hidden = true;
    byId("operator-key").hidden = false;
    say(byId("operator-key-why"), problem.status === 403 ? "Your key may read, not operate." : problem.status === 401 ? "This city asks operators for a key." : "");
    say(byId("operator-key-fault"), fault || ![401, 403].includes(problem.status) ? [fault, problem.words].filter(Boolean).join(": ") : "");
  }
}

/** Called with every frame. */
export function showOperate({ frame }) {
  state = frame.state;
  if (!byId("controls").hidden) showControls();
}

function showControls() {
  const { pin, freeze } = state.controls;
  showControl("pin", pin, pin && `Pinned to ${price(pin.value.price)}`, "Prices are chosen by what was learned.");
  showControl("freeze", freeze, freeze && "Frozen", "The city learns from every answer.");
  const select = byId("pin-price");
  const levels = state.arms.map((arm) => arm.price).join();
  if (select.dataset.levels !== levels) {
    select.dataset.levels = levels;
    select.replaceChildren(...state.arms.map((arm) => h("option", { value: arm.price }, optionText(arm.price))));
  }
  showPeers(state.peers, act);
}

function optionText(level) {
  const rule = ruleOn(level, state.guardrails, {});
  return price(level) + (rule ? ` (${rule})` : "");
}

function showControl(name, control, title, otherwise) {
  const text = control ? `${title} for ${age(now() - control.since)}${control.value.reason ? `: “${control.value.reason}”` : ""}.` : otherwise;
  say(byId(`${name}-state`), text);
  byId(`${name}-state`).classList.toggle("in-force", Boolean(control));
  byId(`${name}-off`).hidden = Boolean(control);
  byId(`${name}-on`).hidden = !control;
}

const reasonIn = (path, reason) => `${path}?reason=${encodeURIComponent(reason)}`;

/** Confirm an act, do it, and say what came of it. Returns whether it was done. */
export async function act(request, outcome) {
  say(byId("outcome"), "");
  const result = await confirmAct(request);
  if (result === null) return false;
  say(byId("outcome"), `Done: ${outcome(result)}`);
  showRetractions((await operate("GET", PATH_OF_OPERATORS)).retractions);
  return true;
}

function buildControls() {
  const button = (text, onclick) => h("button", { type: "button", onclick }, text);
  const pin = h(
    "div",
    { class: "card" },
    h("h3", null, "Price"),
    h("p", { id: "pin-state", class: "control-state" }),
    h("div", { id: "pin-off", class: "find" }, h("label", { for: "pin-price" }, "One price for everyone"), h("select", { id: "pin-price" }), button("Pin…", pinPrice)),
    h("div", { id: "pin-on", hidden: true }, button("Lift the pin…", liftPin)),
  );
  const freeze = h(
    "div",
    { class: "card" },
    h("h3", null, "Learning"),
    h("p", { id: "freeze-state", class: "control-state" }),
    h("div", { id: "freeze-off" }, button("Freeze learning…", freezeLearning)),
    h("div", { id: "freeze-on", hidden: true }, button("Lift the freeze…", liftFreeze)),
  );
  byId("controls").replaceChildren(h("div", { class: "pair" }, pin, freeze), retractCard(act), peersCard());
}

function pinPrice() {
  const level = Number(byId("pin-price").value);
  const text = [`From now on every customer gets ${price(level)}, also after a restart, until the pin is lifted.`, "The city goes on learning from the answers, but of this price only."];
  act({ title: `Pin the price to ${price(level)}?`, text, verb: "Pin the price", run: (reason) => operate("POST", "admin/pin", { price: level, reason }) }, () => `everyone gets ${price(level)} from now on.`);
}

function liftPin() {
  const text = ["Prices are chosen again by what was learned, within the guardrails."];
  act({ title: "Lift the pin?", text, verb: "Lift the pin", run: (reason) => operate("DELETE", reasonIn("admin/pin", reason)) }, () => "the pin is lifted.");
}

function freezeLearning() {
  const text = ["Answers are stored from now on and not learned, also after a restart, until the freeze is lifted.", "Prices go on by what is known now. Answers that arrive meanwhile are not learned later either."];
  act({ title: "Freeze learning?", text, verb: "Freeze learning", run: (reason) => operate("POST", "admin/freeze", { reason }) }, () => "answers are stored and not learned.");
}

function liftFreeze() {
  const text = ["The city learns again from every new answer. Those that came during the freeze stay unlearned."];
  act({ title: "Lift the freeze?", text, verb: "Lift the freeze", run: (reason) => operate("DELETE", reasonIn("admin/freeze", reason)) }, () => "the city learns again.");
}
