// The reward over time: each second's mean as a dot, and the moving average as a line.

import { draw, path, reach, rows, scale, text, ticks, timeline } from "./chart.js";
import { s, table } from "./dom.js";
import { clock, count, number } from "./text.js";

export const WINDOW = 30; // seconds

/** The mean reward of what was learned in the window before each second. */
export function movingAverage(seconds) {
  const points = [];
  let [first, n, sum] = [0, 0, 0];
  for (const second of seconds) {
    n += second.learned;
    sum += second.reward;
    while (second.at - seconds[first].at >= WINDOW) {
      n -= seconds[first].learned;
      sum -= seconds[first].reward;
      first += 1;
    }
    if (n > 0) points.push({ at: second.at, value: sum / n, n });
  }
  return points;
}

export function drawRewards(place, { seconds, frame }) {
  const average = movingAverage(seconds);
  const latest = average.at(-1);
  const said = latest ? `Reward, mean of ${WINDOW} seconds: now ${number(latest.value)}` : "No rewards in the last minutes";
  const height = Math.max(190, Math.min(300, frame.state.arms.length * 38) + 38);
  draw(place, height, said, (add, width) => {
    const span = reach(seconds, frame.at);
    const [left, right, top, bottom] = [52, width - 62, 10, height - 30];
    const recent = (point) => point.at - frame.at >= -span;
    const dots = seconds.filter((second) => second.learned && recent(second)).map((second) => ({ at: second.at, value: second.reward / second.learned }));
    const values = [...dots, ...average.filter(recent)].map((point) => point.value);
    const marks = ticks(Math.min(0, ...values), Math.max(values.length ? 0 : 1, ...values), 4);
    const x = scale(-span, 0, left, right);
    const y = scale(marks[0].value, marks.at(-1).value, bottom, top);
    add(rows(marks, y, left, right), timeline(span, x, top, bottom));
    add(dots.map((dot) => s("circle", { cx: x(dot.at - frame.at), cy: y(dot.value), r: 1.7, class: "dot" })));
    const shown = average.filter(recent);
    if (shown.length) {
      add(path(shown.map((point) => [x(point.at - frame.at), y(point.value)]), "average"));
      add(text(right + 8, y(shown.at(-1).value) + 4, number(shown.at(-1).value), { class: "direct" }));
    }
  });
}

export function rewardsTable({ seconds }) {
  return table(
    `Reward, mean of ${WINDOW} seconds, newest first`,
    [
      ["Time", (point) => clock(point.at)],
      ["Mean reward", (point) => number(point.value), true],
      ["Rewards in it", (point) => count(point.n), true],
    ],
    movingAverage(seconds).slice(-60).reverse(),
  );
}
