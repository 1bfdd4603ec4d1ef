// What operators did, in words.

import { h, table } from "./dom.js";
import { count, price } from "./text.js";

const some = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;
const WORDS = {
  pin: ({ price: level }) => `price pinned to ${price(level)}`,
  "lift pin": () => "pin lifted",
  freeze: () => "learning frozen",
  "lift freeze": () => "freeze lifted",
  retract: ({ feedback }) => `${some(feedback ?? 0, "answer", "answers")} taken back`,
  "lift retraction": ({ retraction }) => `retraction ${retraction} lifted`,
  import: ({ rows }) => `${some(rows ?? 0, "sale", "sales")} of former times imported`,
  reshape: ({ prices }) => (prices ? `price list changed to ${prices.map(price).join(", ")}` : "price list or features changed"),
  prune: () => "old rows deleted",
  forget: ({ decisions }) => `a customer removed from ${some(decisions ?? 0, "decision", "decisions")}`,
  drop: ({ peer }) => `${peer} dropped`,
  readmit: ({ peer }) => `${peer} readmitted`,
  trust: ({ peer }) => `new key of ${peer} accepted`,
  leave: () => "left the mesh",
  join: () => "rejoined the mesh",
};

export const nameOfAct = (act) => WORDS[act.kind]?.(act.detail) ?? act.kind;

/** One line: what, and why. */
export const wordsOfAct = (act) => nameOfAct(act) + (act.reason ? `, “${act.reason}”` : "");

export function actsTable(acts, moment) {
  return table(
    "What operators did, newest first",
    [
      ["Time", (act) => h("span", { class: "nowrap" }, moment(act.at))],
      ["What, and why", (act) => h("span", null, nameOfAct(act), act.reason ? h("span", { class: "small why" }, `“${act.reason}”`) : null)],
      ["Who", (act) => act.by],
    ],
    acts,
  );
}
