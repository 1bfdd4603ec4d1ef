// What needs a person's attention, in plain words: what is the matter, and what to do.

import { h } from "./dom.js";
import { moment } from "./text.js";

const SEVERITIES = { critical: { kind: "bad", mark: "■", word: "Act now" }, warning: { kind: "warn", mark: "▲", word: "Look at this" }, info: { kind: "plain", mark: "●", word: "Good to know" } };
const TITLES = {
  database: "The database does not answer",
  clock: "The clock jumped",
  "peer quarantined": "A city’s data are refused",
  "peer silent": "A city does not answer",
  "peer with other terms": "A city has other prices or features",
  impostor: "Somebody uses this city’s name",
  "guardrail always binds": "A limit always sets the price",
  "arm never tried": "A price was never tried",
  "unusual reward": "Unusual earnings",
  "unusual conversion": "Unusual conversion",
  "feedback stopped": "No more answers arrive",
  "reward scale": "Rewards have another size than configured",
  "sales incomplete": "Older sales are still being counted",
};

export function showAlerts(place, alerts) {
  place.replaceChildren(
    ...alerts.map((alert) => {
      const { kind, mark, word } = SEVERITIES[alert.severity];
      const since = alert.since === null ? null : h("span", { class: "small" }, ` since ${moment(alert.since).slice(0, -3)}`);
      return h(
        "li",
        { class: `alert ${kind}`, "data-kind": alert.kind },
        h("p", null, h("span", { class: `chip ${kind}` }, h("span", { "aria-hidden": "true" }, `${mark} `), word), " ", h("strong", null, TITLES[alert.kind] ?? alert.kind), since),
        h("p", null, sentence(alert)),
        h("p", { class: "small" }, "What to do: ", alert.what_to_do),
      );
    }),
  );
}

/** Names keep their spelling: of the city that it is about, and of settings such as guardrails.floor. */
function sentence({ text, about }) {
  const isName = (about && text.startsWith(about)) || /^\w+\.\w/.test(text);
  return `${isName ? text : text[0].toUpperCase() + text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}
