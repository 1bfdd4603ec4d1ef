// Other cities, as an operator decides about them: drop one, readmit it, accept a new key of it.

import { operate } from "./city-api.js";
import { byId, h, keyed, say } from "./dom.js";
import { STATUSES } from "./network.js";

let act = null; // confirms and runs an act, see operate.js

export function peersCard() {
  const heads = ["City", "Status", "Why", ""].map((name) => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "What can be done")));
  return h(
    "div",
    { class: "card spaced" },
    h("h3", null, "Other cities"),
    h("p", { class: "hint", id: "no-other-cities" }, "No other city is known here."),
    h("div", { class: "scroll", id: "other-cities", tabindex: 0, role: "region", "aria-label": "Other cities" }, h("table", null, h("caption", { class: "unseen" }, "Other cities and what can be done about them"), h("thead", null, h("tr", null, heads)), h("tbody", { id: "operate-peers" }))),
  );
}

export function showPeers(peers, actOf) {
  act = actOf;
  const named = peers.filter((peer) => peer.origin);
  byId("no-other-cities").hidden = named.length > 0;
  byId("other-cities").hidden = !named.length;
  keyed(byId("operate-peers"), named, (peer) => peer.origin, row, update);
}

function row({ origin }) {
  const button = (kind, text, run) => h("button", { type: "button", class: kind, "aria-label": `${text.replace("…", "")} ${origin}`, onclick: () => run(origin) }, text);
  const buttons = [button("drop", "Drop…", drop), button("readmit", "Readmit…", readmit), button("trust", "New key…", trust)];
  return h("tr", { "data-city": origin }, h("th", { scope: "row" }, origin), h("td", null, h("span", { class: "chip" })), h("td", { class: "why" }), h("td", { class: "acts" }, h("div", { class: "buttons" }, buttons)));
}

function update(element, peer) {
  const { mark, kind, meaning } = STATUSES[peer.status];
  const chip = element.querySelector(".chip");
  chip.className = `chip ${kind}`;
  say(chip, `${mark} ${peer.status}`);
  say(element.querySelector(".why"), peer.reason ?? meaning);
  element.querySelector(".drop").hidden = peer.status === "dropped";
  element.querySelector(".readmit").hidden = peer.status !== "dropped";
}

const path = (origin, verb = "") => `peers/${encodeURIComponent(origin)}${verb}`;
const withReason = (address, reason) => `${address}?reason=${encodeURIComponent(reason)}`;

function drop(origin) {
  const text = [`What ${origin} told this city is subtracted at once, and nothing new of it is heard, until it is readmitted.`, "Prices may change from the next request on."];
  act({ title: `Drop ${origin}?`, text, verb: `Drop ${origin}`, run: (reason) => operate("DELETE", withReason(path(origin), reason)) }, () => `${origin} is dropped.`);
}

function readmit(origin) {
  const text = [`This city hears ${origin} again: what it tells counts from its next letter on.`];
  act({ title: `Readmit ${origin}?`, text, verb: `Readmit ${origin}`, run: (reason) => operate("POST", withReason(path(origin, "/readmit"), reason)) }, () => `${origin} is readmitted.`);
}

function trust(origin) {
  const key = h("input", { id: "trust-key", autocomplete: "off", spellcheck: "false", required: true, pattern: "[0-9a-f]{64}", title: "64 digits 0 to 9 and letters a to f" });
  const text = [`For a city that was set up anew: letters of ${origin} count under this key and no longer under the old one.`, `Ask the operator of ${origin} for it: gossip.key in its /state, or pricemesh keys city URL.`];
  const fields = [h("label", { for: "trust-key" }, `New public key of ${origin}`), key];
  act({ title: `Accept a new key of ${origin}?`, text, fields, verb: "Accept the key", run: (reason) => operate("POST", path(origin, "/trust"), { key: key.value.trim(), reason }) }, () => `the new key of ${origin} is accepted.`);
}
