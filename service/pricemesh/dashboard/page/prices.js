// The price chosen over time: a lane for each arm, filled by its share of a second's decisions.

import { draw, line, path, reach, scale, text, timeline, wide } from "./chart.js";
import { s, table } from "./dom.js";
import { clock, count, price } from "./text.js";

const SMOOTH = 10; // seconds of the mean price

export function drawPrices(place, { seconds, frame }) {
  const { arms, guardrails, controls } = frame.state;
  const lanes = arms.length;
  const lane = Math.max(7, Math.min(38, 300 / lanes));
  const [top, bottom] = [8, 30];
  const height = top + lanes * lane + bottom;
  const meant = mean(seconds, arms);
  const said = meant.length
    ? `Price chosen in each of the last ${count(seconds.length)} seconds; the mean price is now ${price(meant.at(-1).price)}`
    : "No decisions in the last minutes";
  draw(place, height, said, (add, width) => {
    const span = reach(seconds, frame.at);
    const label = meant.length ? `mean ${price(Number(meant.at(-1).price.toFixed(2)))}` : "";
    const [left, right] = [64, width - 12 - wide(label)];
    const x = scale(-span, 0, left, right);
    const y = (arm) => top + (lanes - 1 - arm + 0.5) * lane;
    const bin = Math.max(1, (right - left) / span);
    add(timeline(span, x, top, top + lanes * lane));
    arms.forEach(({ arm, price: level }) => {
      const out = ruled(level, guardrails, controls);
      add(line(left, y(arm) + lane / 2, right, y(arm) + lane / 2, "grid"));
      if (out) add(s("rect", { x: left, y: y(arm) - lane / 2, width: right - left, height: lane, class: "ruled" }));
      if (lanes <= 24 || arm % Math.ceil(lanes / 12) === 0)
        add(text(left - 8, y(arm) + 4, price(level), { class: "tick", "text-anchor": "end" }));
      if (out && lane >= 12) add(text(left + 6, y(arm) + 4, out, { class: "note" }));
    });
    for (const second of seconds) {
      const back = second.at - frame.at;
      if (back < -span) continue;
      const all = second.decisions.reduce((sum, [, n]) => sum + n, 0);
      for (const [arm, n] of second.decisions) {
        const tall = Math.max(2, (lane - 4) * (n / all));
        add(s("rect", { x: (x(back) - bin).toFixed(1), y: (y(arm) - tall / 2).toFixed(1), width: Math.max(1, bin - 0.6).toFixed(1), height: tall.toFixed(1), class: "chosen" }));
      }
    }
    const shown = meant.filter((point) => point.at - frame.at >= -span);
    if (shown.length) {
      const height_ = (value) => y(level(value, arms));
      add(path(shown.map((point) => [x(point.at - frame.at), height_(point.price)]), "mean"));
      add(text(right + 8, height_(shown.at(-1).price) + 4, label, { class: "direct" }));
    }
  });
}

/** Why a price is not given now, in a word. */
export function ruled(level, { floor, ceiling }, controls) {
  if (floor !== null && level < floor) return "below the floor";
  if (ceiling !== null && level > ceiling) return "above the ceiling";
  return controls.pin && controls.pin.value.price !== level ? "not the pinned price" : "";
}

/** Where a price lies between the arms, counted in arms. */
function level(value, arms) {
  const above = arms.findIndex((arm) => arm.price >= value);
  if (above <= 0) return above === 0 ? 0 : arms.length - 1;
  const [low, high] = [arms[above - 1].price, arms[above].price];
  return above - 1 + (value - low) / (high - low);
}

/** The mean price of the last seconds, at every second that has one. */
function mean(seconds, arms) {
  const points = [];
  seconds.forEach(({ at }, i) => {
    let [n, sum] = [0, 0];
    for (const second of seconds.slice(Math.max(0, i - SMOOTH + 1), i + 1))
      for (const [arm, times] of second.decisions) [n, sum] = [n + times, sum + times * arms[arm].price];
    if (n) points.push({ at, price: sum / n });
  });
  return points;
}

export function pricesTable({ seconds, frame }) {
  const { arms } = frame.state;
  const of = (second, arm) => second.decisions.find(([chosen]) => chosen === arm)?.[1] ?? 0;
  return table(
    "Decisions by price, second by second, newest first",
    [["Time", (second) => clock(second.at)], ...arms.map((arm) => [price(arm.price), (second) => of(second, arm.arm), true])],
    seconds.slice(-60).reverse(),
  );
}
