// What all charts share: a drawing as wide as its place, scales, ticks, axes and lines.

import { s } from "./dom.js";

/** Replace the drawing in `place`. `paint(add, width)` gets the width in pixels, so that text keeps its size. */
export function draw(place, height, label, paint, description = null) {
  const width = Math.max(240, Math.floor(place.clientWidth));
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (description) {
    svg.setAttribute("aria-describedby", `${place.id}-description`);
    svg.append(s("desc", { id: `${place.id}-description` }, description));
  }
  paint((...elements) => svg.append(...elements.flat(Infinity)), width);
  place.replaceChildren(svg);
}

/** About how many pixels wide a bold label is. Text grows with the page's font size, drawings do not. */
export const textWidth = (label) => (label.length * 8.1 * parseFloat(getComputedStyle(document.documentElement).fontSize)) / 15;

export function scale(from, to, start, end) {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}

/** Round numbers that cover [low, high]. */
export function ticks(low, high, about = 5) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0));
  return Array.from({ length: last - first + 1 }, (_, i) => {
    const value = (first + i) * step;
    return { value, text: (Math.abs(value) < step / 1e6 ? 0 : value).toFixed(digits).replace("-", "−") };
  });
}

export const text = (x, y, content, attributes) => s("text", { x, y, ...attributes }, content);
export const line = (x1, y1, x2, y2, kind) => s("line", { x1, y1, x2, y2, class: kind });

export function path(points, kind, attributes) {
  const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return s("path", { d, class: kind, ...attributes });
}

/** Horizontal lines with their values at the left. */
export function rows(marks, y, left, right) {
  return marks.map(({ value, text: label }) => [
    line(left, y(value), right, y(value), "grid"),
    text(left - 8, y(value) + 4, label, { class: "tick", "text-anchor": "end" }),
  ]);
}

/** Vertical lines with their values below. */
export function columns(marks, x, top, bottom) {
  return marks.map(({ value, text: label }) => [
    line(x(value), top, x(value), bottom, "grid"),
    text(x(value), bottom + 17, label, { class: "tick", "text-anchor": "middle" }),
  ]);
}

/** How many seconds a time axis covers: all that is recorded, up to what fits on the screen. */
export function spanOf(seconds, at) {
  const recorded = Math.ceil((at - (seconds[0]?.at ?? at)) / 60) * 60;
  return Math.min(Math.max(60, recorded), innerWidth < 620 ? 120 : 300);
}

/** A time axis that ends now, in round steps. */
export function timeline(span, x, top, bottom) {
  const step = [15, 30, 60, 120, 300, 600, 1800, 3600].find((seconds) => span / seconds <= 5.01) ?? 7200;
  const marks = [];
  for (let back = 0; back <= span; back += step) {
    const label = back === 0 ? "now" : step < 60 ? `−${back} s` : `−${back / 60} min`;
    marks.push({ value: -back, text: label });
  }
  return columns(marks, x, top, bottom);
}

/** Move labels of one column apart until they are `gap` pixels apart. `heights` are measured from the top. */
export function spread(heights, gap, top, bottom) {
  const order = heights.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]);
  for (let i = 1; i < order.length; i++) order[i][0] = Math.max(order[i][0], order[i - 1][0] + gap);
  const excess = Math.max(0, (order.at(-1)?.[0] ?? 0) - bottom);
  const result = [];
  order.forEach(([y, i]) => (result[i] = Math.max(top, y - excess)));
  return result;
}
