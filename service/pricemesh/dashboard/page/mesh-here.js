// The view "The mesh": the peers of this city, their status and age, how much each counts, and why one is refused.

import { byId, h, keyed, say } from "./dom.js";
import { drawNetwork, nameOf, STATUSES } from "./network.js";
import { bytes, count, NONE, number, percent, ticking } from "./text.js";

const mean = (weights) => weights.reduce((sum, weight) => sum + weight, 0) / weights.length;

export function showMesh({ frame }) {
  const { state } = frame;
  byId("no-peers").hidden = state.peers.length > 0;
  byId("mesh-body").hidden = state.peers.length === 0;
  if (!state.peers.length) return;
  drawNetwork(byId("network"), state);
  keyed(byId("peers"), state.peers, nameOf, rowsOf, (element, peer) => updateRows(element, peer, frame.at));
  const { gossip } = state;
  const impostor = gossip.impostor ? ` Somebody writes in this city's name: ${gossip.impostor}.` : "";
  say(byId("gossip"), `Group ${gossip.group}, epoch ${count(gossip.epoch)}, published up to version ${count(gossip.published_version)}, ${count(gossip.ticks)} ticks since the start.${impostor}`);
}

function rowsOf(peer) {
  const cells = ["status", "version number", "age number", "share number", "weight number", "bytes number"];
  const main = h("tr", null, h("th", { scope: "row" }, nameOf(peer)), cells.map((kind) => h("td", { class: kind })));
  return h("tbody", { class: "peer" }, main, h("tr", { class: "why" }, h("td", { colspan: 7 }, h("p", { class: "more" }), h("p", { class: "reason" }))));
}

function updateRows(element, peer, at) {
  const cell = (kind) => element.querySelector(`.${kind}`);
  const { mark, kind, meaning } = STATUSES[peer.status];
  if (element.dataset.status !== peer.status) {
    element.dataset.status = peer.status;
    cell("status").replaceChildren(h("span", { class: `chip ${kind}`, title: meaning }, h("span", { "aria-hidden": "true" }, `${mark} `), peer.status));
  }
  const via = peer.via && peer.via !== peer.origin ? ` (brought by ${peer.via})` : "";
  const ending = peer.quarantine_ends ? `; ends ${peer.quarantine_ends}` : "";
  element.classList.toggle("explained", Boolean(peer.reason));
  say(cell("reason"), peer.reason ? `${meaning}: ${peer.reason}${via}${ending}` : "");
  say(cell("version"), count(peer.version));
  ticking(cell("age"), peer.age_seconds === null ? null : at - peer.age_seconds);
  say(cell("share"), percent(peer.share));
  const weight = peer.weights.length ? number(mean(peer.weights), 2) : NONE;
  const traffic = `${bytes(peer.bytes_in)} / ${bytes(peer.bytes_out)}`;
  say(cell("weight"), weight);
  say(cell("bytes"), traffic);
  say(cell("more"), `weight ${weight}, ${traffic} in / out`); // replaces two columns on a narrow screen
}
