// A chart of the prices chosen over time: a lane for each arm, filled by its share of a second's decisions.

import { draw, line, path, scale, spanOf, text, textWidth, timeline } from "./chart.js";
import { s, table } from "./dom.js";
import { clock, count, price } from "./text.js";

const MEAN_SECONDS = 10; // of the mean price

export function drawPrices(place, { seconds, frame }) {
  const { arms, guardrails, controls } = frame.state;
  const lanes = arms.length;
  const laneHeight = Math.max(7, Math.min(38, 300 / lanes));
  const [top, bottom] = [8, 30];
  const height = top + lanes * laneHeight + bottom;
  const means = meanPrices(seconds, arms);
  const summary = means.length
    ? `Price chosen in each of the last ${count(seconds.length)} seconds; the mean price is now ${price(means.at(-1).price)}`
    : "No decisions in the last minutes";
  draw(place, height, summary, (add, width) => {
    const span = spanOf(seconds, frame.at);
    const label = means.length ? `mean ${price(Number(means.at(-1).price.toFixed(2)))}` : "";
    const [left, right] = [64, width - 12 - textWidth(label)];
    const x = scale(-span, 0, left, right);
    const y = (arm) => top + (lanes - 1 - arm + 0.5) * laneHeight;
    const bin = Math.max(1, (right - left) / span);
    add(timeline(span, x, top, top + lanes * laneHeight));
    arms.forEach(({ arm, price: level }) => {
      const rule = ruleOn(level, guardrails, controls);
      add(line(left, y(arm) + laneHeight / 2, right, y(arm) + laneHeight / 2, "grid"));
      if (rule) add(s("rect", { x: left, y: y(arm) - laneHeight / 2, width: right - left, height: laneHeight, class: "ruled-out" }));
      if (lanes <= 24 || arm % Math.ceil(lanes / 12) === 0)
        add(text(left - 8, y(arm) + 4, price(level), { class: "tick", "text-anchor": "end" }));
      if (rule && laneHeight >= 12) add(text(left + 6, y(arm) + 4, rule, { class: "note" }));
    });
    for (const second of seconds) {
      const back = second.at - frame.at;
      if (back < -span) continue;
      const total = second.decisions.reduce((sum, [, n]) => sum + n, 0);
      for (const [arm, n] of second.decisions) {
        const height = Math.max(2, (laneHeight - 4) * (n / total));
        add(s("rect", { x: (x(back) - bin).toFixed(1), y: (y(arm) - height / 2).toFixed(1), width: Math.max(1, bin - 0.6).toFixed(1), height: height.toFixed(1), class: "chosen" }));
      }
    }
    const recent = means.filter((point) => point.at - frame.at >= -span);
    if (recent.length) {
      const yOf = (value) => y(positionOf(value, arms));
      add(path(recent.map((point) => [x(point.at - frame.at), yOf(point.price)]), "mean"));
      add(text(right + 8, yOf(recent.at(-1).price) + 4, label, { class: "direct" }));
    }
  });
}

/** The rule that forbids a price now; "" if none does. */
export function ruleOn(level, { floor, ceiling }, controls) {
  if (floor !== null && level < floor) return "below the floor";
  if (ceiling !== null && level > ceiling) return "above the ceiling";
  return controls.pin && controls.pin.value.price !== level ? "not the pinned price" : "";
}

/** The position of a price among the arms: 1.5 is halfway between arms 1 and 2. */
function positionOf(value, arms) {
  const above = arms.findIndex((arm) => arm.price >= value);
  if (above <= 0) return above === 0 ? 0 : arms.length - 1;
  const [low, high] = [arms[above - 1].price, arms[above].price];
  return above - 1 + (value - low) / (high - low);
}

/** The mean price of the last MEAN_SECONDS, at every second with decisions in them. */
function meanPrices(seconds, arms) {
  const points = [];
  seconds.forEach(({ at }, i) => {
    let [n, sum] = [0, 0];
    for (const second of seconds.slice(Math.max(0, i - MEAN_SECONDS + 1), i + 1))
      for (const [arm, times] of second.decisions) [n, sum] = [n + times, sum + times * arms[arm].price];
    if (n) points.push({ at, price: sum / n });
  });
  return points;
}

export function pricesTable({ seconds, frame }) {
  const { arms } = frame.state;
  const countOf = (second, arm) => second.decisions.find(([chosen]) => chosen === arm)?.[1] ?? 0;
  return table(
    "Decisions by price, second by second, newest first",
    [["Time", (second) => clock(second.at)], ...arms.map((arm) => [price(arm.price), (second) => countOf(second, arm.arm), true])],
    seconds.slice(-60).reverse(),
  );
}
