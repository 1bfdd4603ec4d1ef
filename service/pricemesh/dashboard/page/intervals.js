// A chart of every arm's estimate with its interval, and beside it the one from the city's own data alone.

import { columns, draw, line, scale, text, ticks } from "./chart.js";
import { s, table } from "./dom.js";
import { number, price } from "./text.js";

const MAX_ARMS = 40; // drawn; the table has them all
const RULES = { floor: "below the floor", ceiling: "above the ceiling", max_step: "too large a step", pin: "another price is pinned" };

export const rule = (name) => RULES[name] ?? name;

/** `arms`: {arm, price, estimate, radius, own?, out?}; `out` names the rule that forbids an arm. */
export function drawIntervals(place, arms, chosen, axis = "reward expected") {
  const rows = pick(arms, chosen);
  const both = rows.some((arm) => arm.own);
  const narrow = place.clientWidth < 520;
  const rowHeight = (both ? 46 : 34) + (narrow ? 14 : 0);
  const top = 6;
  const height = top + rows.length * rowHeight + 44;
  const best = arms.find((arm) => arm.arm === chosen);
  const label = `Estimates of ${arms.length} prices; ${price(best.price)} is chosen with ${number(best.estimate)} plus ${number(best.radius)}`;
  draw(place, height, label, (add, width) => {
    const [left, right] = [narrow ? 58 : 72, width - (narrow ? 20 : 148)];
    const bottom = top + rows.length * rowHeight;
    // Arms beyond floor and ceiling often have wide intervals: they must not set the scale.
    const scaling = rows.filter((arm) => !arm.out || arm.out === "pin");
    const ends = scaling.flatMap((arm) => [arm, ...(arm.own ? [arm.own] : [])]).flatMap((it) => [it.estimate - it.radius, it.estimate + it.radius]);
    const marks = ticks(Math.min(...ends), Math.max(...ends), narrow ? 4 : 7);
    const x = scale(marks[0].value, marks.at(-1).value, left, right);
    const area = { x, left, right };
    rows.forEach((arm, i) => {
      const y = top + i * rowHeight;
      if (arm.arm === chosen) add(s("rect", { x: 0, y: y + 1, width, height: rowHeight - 2, rx: 6, class: "picked" }));
      add(line(0, y + rowHeight, width, y + rowHeight, "grid"));
    });
    add(columns(marks, x, top, bottom));
    if (marks[0].value < 0 && marks.at(-1).value > 0) add(line(x(0), top, x(0), bottom, "zero"));
    add(text((left + right) / 2, bottom + 38, axis, { class: "axis", "text-anchor": "middle" }));
    rows.forEach((arm, i) => {
      const y = top + i * rowHeight + rowHeight / 2 + (narrow ? 6 : 0);
      const isChosen = arm.arm === chosen;
      add(text(left - 10, y + 5, price(arm.price), { class: isChosen ? "label strong" : arm.out ? "label out" : "label", "text-anchor": "end" }));
      if (arm.own) add(bar(area, y - 8, arm.own, arm.out ? "own out" : "own"));
      add(bar(area, arm.own ? y + 9 : y, arm, arm.out ? "pooled out" : "pooled"));
      const note = isChosen ? "chosen" : arm.out ? rule(arm.out) : "";
      const value = `${number(arm.estimate)} ± ${number(arm.radius)}`;
      const [kind, faint] = isChosen ? ["value strong", "note strong"] : ["value", "note"];
      if (narrow) {
        add(text(width - 6, y - rowHeight / 2 + 10, note ? `${note} · ${value}` : value, { class: faint, "text-anchor": "end" }));
      } else {
        add(text(width - 8, y + (note ? -2 : 5), value, { class: kind, "text-anchor": "end" }));
        if (note) add(text(width - 8, y + 14, note, { class: faint, "text-anchor": "end" }));
      }
    });
  });
}

/** An interval with its estimate. An end outside the drawing is an arrow. */
function bar({ x, left, right }, y, { estimate, radius }, kind) {
  const [from, to, at] = [x(estimate - radius), x(estimate + radius), x(estimate)];
  const [start, end] = [Math.min(Math.max(from, left), right), Math.max(Math.min(to, right), left)];
  const parts = [line(start, y, end, y, `interval ${kind}`)];
  const arrow = (tip, back) => s("path", { d: `M${tip} ${y}l${back} -5v10z`, class: `arrow ${kind}` });
  parts.push(from < left ? arrow(left - 3, 8) : line(start, y - 4, start, y + 4, `interval end ${kind}`));
  parts.push(to > right ? arrow(right + 3, -8) : line(end, y - 4, end, y + 4, `interval end ${kind}`));
  if (at < left + 8 * (from < left) || at > right - 8 * (to > right)) return parts; // outside, or covered by an arrow
  const diamond = `M${at} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`;
  parts.push(kind.startsWith("own") ? s("path", { d: diamond, class: `mark ${kind}` }) : s("circle", { cx: at, cy: y, r: 5, class: `mark ${kind}` }));
  return parts;
}

/** The highest price first, as on the chart of prices; of more than MAX_ARMS those with the highest bounds. */
function pick(arms, chosen) {
  const bound = (arm) => arm.estimate + arm.radius + (arm.arm === chosen ? 1e9 : 0);
  const best = arms.length <= MAX_ARMS ? arms : [...arms].sort((a, b) => bound(b) - bound(a)).slice(0, MAX_ARMS);
  return [...best].sort((a, b) => b.price - a.price);
}

export function intervalsTable(caption, arms, chosen) {
  const own = arms.some((arm) => arm.own);
  return table(
    caption,
    [
      ["Price", (arm) => price(arm.price), true],
      ["Estimate", (arm) => number(arm.estimate), true],
      ["Radius", (arm) => number(arm.radius), true],
      ["Upper bound", (arm) => number(arm.estimate + arm.radius), true],
      ...(own ? [["Own estimate", (arm) => number(arm.own.estimate), true], ["Own radius", (arm) => number(arm.own.radius), true]] : []),
      ["", (arm) => (arm.arm === chosen ? "chosen" : arm.out ? rule(arm.out) : "")],
    ],
    arms,
  );
}
