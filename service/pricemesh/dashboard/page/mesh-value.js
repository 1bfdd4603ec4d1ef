// What the mesh contributed, by this city's own estimates and named as such.

import { byId, h, say } from "./dom.js";
import { count, percent, rewardWord, worth } from "./text.js";

/** `value`: the answer of GET /mesh-value. */
export function showMeshValue(value, reward) {
  const { gain, gain_share: share, peers, separable, decisions } = value;
  const known = gain !== null && peers.length > 0;
  const sign = gain < 0 ? "" : "+";
  const word = rewardWord(reward).toLowerCase();
  say(byId("gain"), known ? `${sign}${worth(gain)}` : "–");
  say(byId("gain-note"), known ? `${word} expected per price given${share === null ? "" : `, ${sign}${percent(share).replace("-", "−")}`}` : "");
  const text = known ? explain(value, word) : !peers.length ? "No other city’s data count here yet, so there is nothing to compare." : !separable ? "This policy mixes what other cities know into its own at every step: the two cannot be told apart." : "No prices were given yet.";
  byId("gain-text").replaceChildren(...[text].flat().map((sentence) => h("span", null, `${sentence} `)));
  byId("gain-bars").hidden = !known;
  if (known) showBars(value);
  byId("gain-basis").hidden = !known;
  say(byId("gain-basis-text"), known ? `Contexts of the newest ${count(decisions)} prices given. Both sides are valued by the city’s estimates with the data of ${peers.join(", ")}; guardrails and pins as they are now.` : "");
}

function explain({ together, alone, other_choices: others }, word) {
  return [
    `With the other cities’ data this city expects ${worth(together, 4)} ${word} per price given; the prices that it would choose by its own data alone would bring ${worth(alone, 4)}.`,
    `In ${percent(others)} of the cases the price would be another.`,
  ];
}

function showBars({ together, alone }) {
  const max = Math.max(together, alone, 0) || 1;
  for (const [id, value] of [["together", together], ["alone", alone]]) {
    byId(`gain-${id}`).style.width = `${Math.max(0, (100 * value) / max)}%`;
    say(byId(`gain-${id}-value`), worth(value, 4));
  }
}
