// A waterfall chart of an estimate, or of the logit of a chance: each city's part starts where the one before it ends.

import { columns, draw, line, scale, text, ticks } from "./chart.js";
import { s, table } from "./dom.js";
import { number, percent, signed } from "./text.js";

const MAX_PARTS = 12;

/** `parts`: [{origin, estimate, radius}], the city's own first; they add up to estimate and radius. */
export function drawWaterfall(place, parts, { estimate: money, city, scale: unit }) {
  const isLogit = unit === "logit";
  const estimate = isLogit ? parts.reduce((total, part) => total + part.estimate, 0) : money;
  const name = isLogit ? "log-odds" : "estimate";
  const steps = [];
  let sum = 0;
  for (const part of limitParts(parts)) {
    steps.push({ name: part.origin === city ? `${city} (own)` : part.origin, from: sum, to: sum + part.estimate, kind: part.origin === city ? "own" : "peer", label: Math.abs(part.estimate) < 1e-3 * Math.abs(estimate) ? "≈ 0" : signed(part.estimate) });
    sum += part.estimate;
  }
  steps.push({ name, from: 0, to: estimate, kind: "total", label: number(estimate) });
  const [row, top] = [34, 6];
  const height = top + steps.length * row + 44;
  draw(place, height, `The ${isLogit ? "log-odds of a sale" : "estimate"} ${number(estimate)} as the sum of ${parts.length} parts`, (add, width) => {
    const narrow = width < 520;
    const [left, right] = [narrow ? 100 : 140, width - 72];
    const bottom = top + steps.length * row;
    const ends = steps.flatMap((step) => [step.from, step.to]);
    const marks = ticks(Math.min(0, ...ends), Math.max(0, ...ends), narrow ? 3 : 6);
    const x = scale(marks[0].value, marks.at(-1).value, left, right);
    add(columns(marks, x, top, bottom), line(x(0), top, x(0), bottom, "zero"));
    add(text((left + right) / 2, bottom + 37, isLogit ? "log-odds of a sale" : "reward expected", { class: "axis", "text-anchor": "middle" }));
    steps.forEach((step, i) => {
      const y = top + i * row;
      const [low, high] = [Math.min(step.from, step.to), Math.max(step.from, step.to)];
      if (step.kind === "total") add(line(0, y, width, y, "rule"));
      add(text(left - 10, y + row / 2 + 5, step.name.length > 16 ? `${step.name.slice(0, 15)}…` : step.name, { class: step.kind === "total" ? "label strong" : "label", "text-anchor": "end" }));
      add(s("rect", { x: x(low), y: y + 7, width: Math.max(1.5, x(high) - x(low)), height: row - 14, rx: 3, class: `part ${step.kind}` }));
      if (i < steps.length - 1) add(line(x(step.to), y + row - 7, x(step.to), y + row + 7, "link"));
      add(text(width - 6, y + row / 2 + 5, step.label, { class: step.kind === "total" ? "value strong" : "value", "text-anchor": "end" }));
    });
  });
}

/** At most MAX_PARTS: the smallest are added up into one. */
function limitParts(parts) {
  if (parts.length <= MAX_PARTS) return parts;
  const [own, ...peers] = parts;
  const order = peers.sort((a, b) => Math.abs(b.estimate) - Math.abs(a.estimate));
  const rest = order.slice(MAX_PARTS - 2);
  return [own, ...order.slice(0, MAX_PARTS - 2), { origin: `${rest.length} others`, estimate: rest.reduce((total, part) => total + part.estimate, 0) }];
}

export function waterfallTable(parts, { radius: money, scale: unit }) {
  const isLogit = unit === "logit";
  const isWhole = parts.every((part) => part.radius !== null);
  const radius = isLogit ? parts.reduce((total, part) => total + part.radius, 0) : money;
  return table(
    `Each city's part of the chosen price's ${isLogit ? "log-odds of a sale and of their" : "estimate and"} radius`,
    [
      ["City", (part) => part.origin],
      [isLogit ? "Part of the log-odds" : "Part of the estimate", (part) => signed(part.estimate), true],
      ["Part of the radius", (part) => number(part.radius), true],
      ["Share of the radius", (part) => percent(isWhole ? (radius ? part.radius / radius : 0) : null), true],
    ],
    parts,
  );
}
