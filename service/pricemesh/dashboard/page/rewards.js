// A chart of rewards over time: each second's mean as a dot, and the moving average as a line.

import { draw, path, rows, scale, spanOf, text, ticks, timeline } from "./chart.js";
import { s, table } from "./dom.js";
import { clock, count, number, rewardWord } from "./text.js";

export const WINDOW_SECONDS = 30;

/** The mean reward of the feedback learned in the window that ends at each second. */
export function movingAverage(seconds) {
  const points = [];
  let [first, n, sum] = [0, 0, 0];
  for (const second of seconds) {
    n += second.learned;
    sum += second.reward;
    while (second.at - seconds[first].at >= WINDOW_SECONDS) {
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
  const label = latest ? `${rewardWord(frame.state.reward)}, mean of ${WINDOW_SECONDS} seconds: now ${number(latest.value)}` : "No rewards in the last minutes";
  const height = Math.max(190, Math.min(300, frame.state.arms.length * 38) + 38);
  draw(place, height, label, (add, width) => {
    const span = spanOf(seconds, frame.at);
    const [left, right, top, bottom] = [52, width - 62, 10, height - 30];
    const isRecent = (point) => point.at - frame.at >= -span;
    const dots = seconds.filter((second) => second.learned && isRecent(second)).map((second) => ({ at: second.at, value: second.reward / second.learned }));
    const values = [...dots, ...average.filter(isRecent)].map((point) => point.value);
    const marks = ticks(Math.min(0, ...values), Math.max(values.length ? 0 : 1, ...values), 4);
    const x = scale(-span, 0, left, right);
    const y = scale(marks[0].value, marks.at(-1).value, bottom, top);
    add(rows(marks, y, left, right), timeline(span, x, top, bottom));
    add(dots.map((dot) => s("circle", { cx: x(dot.at - frame.at), cy: y(dot.value), r: 1.7, class: "dot" })));
    const line = average.filter(isRecent);
    if (line.length) {
      add(path(line.map((point) => [x(point.at - frame.at), y(point.value)]), "average"));
      add(text(right + 8, y(line.at(-1).value) + 4, number(line.at(-1).value), { class: "direct" }));
    }
  });
}

export function rewardsTable({ seconds, frame }) {
  const word = rewardWord(frame.state.reward);
  return table(
    `${word}, mean of ${WINDOW_SECONDS} seconds, newest first`,
    [
      ["Time", (point) => clock(point.at)],
      [`Mean ${word.toLowerCase()}`, (point) => number(point.value), true],
      ["Feedback in it", (point) => count(point.n), true],
    ],
    movingAverage(seconds).slice(-60).reverse(),
  );
}
