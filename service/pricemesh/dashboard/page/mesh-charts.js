// The small charts of the whole mesh. Those of one kind share their scales, so that cities can be compared.

import { draw, line, path, rows, scale, spread, text, ticks } from "./chart.js";
import { s } from "./dom.js";
import { count, number } from "./text.js";

/** Versions of one city over time, as [time, version] pairs; `span` and `max` are the same for all. */
export function drawGrowth(place, versions, { now, span, max }) {
  const latest = versions.at(-1);
  draw(place, 74, latest ? `Version ${count(latest[1])}` : "No version held", (add, width) => {
    const [left, right, top, bottom] = [2, width - 62, 8, 58];
    const x = scale(-span, 0, left, right);
    const y = scale(0, Math.max(1, max), bottom, top);
    add(line(left, bottom, right, bottom, "grid"), text(left, 72, `−${Math.round(span / 60)} min`, { class: "tick" }), text(right, 72, "now", { class: "tick", "text-anchor": "end" }));
    const recent = versions.filter(([at]) => at - now >= -span);
    if (!recent.length) return;
    const points = recent.map(([at, version]) => [x(at - now), y(version)]);
    add(path([[points[0][0], bottom], ...points, [points.at(-1)[0], bottom]], "area"), path(points, "average"));
    add(text(right + 8, Math.min(bottom, points.at(-1)[1] + 4), count(latest[1]), { class: "direct" }));
  });
}

/** Regret a decision of one city, together and alone; `max` is the same for all. */
export function drawRegret(place, marks, { max, from, to }) {
  const latest = marks.at(-1);
  const label = `Regret a decision: together ${number(latest.together, 4)}, alone ${number(latest.alone, 4)}`;
  draw(place, 150, label, (add, width) => {
    const [left, right, top, bottom] = [44, width - 78, 10, 124];
    const values = ticks(0, max, 3);
    const x = scale(from, Math.max(to, from + 1), left, right);
    const y = scale(0, values.at(-1).value, bottom, top);
    add(rows(values, y, left, right), text(left, 143, "start", { class: "tick" }), text(right, 143, "now", { class: "tick", "text-anchor": "end" }));
    const series = [["alone", "own"], ["together", "pooled"]].filter(([name]) => latest[name] !== null);
    const clip = (value) => Math.max(top, y(value));
    const heights = series.map(([name]) => clip(latest[name]) + 4);
    const labelHeights = spread(heights, 14, top + 4, bottom + 4);
    series.forEach(([name, kind], i) => {
      const points = marks.filter((mark) => mark[name] !== null).map((mark) => [x(mark.at), clip(mark[name])]);
      add(path(points, `series ${kind}`));
      const [ex, ey] = points.at(-1);
      add(kind === "own" ? s("path", { d: `M${ex} ${ey - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`, class: "mark own" }) : s("circle", { cx: ex, cy: ey, r: 4, class: "mark pooled" }));
      add(text(right + 9, labelHeights[i], name, { class: `direct ${kind}` }));
    });
  });
}

/** A share between 0 and 1 for each arm. */
export function drawBars(place, label, shares, arms) {
  draw(place, 52, `${label}: ${shares.map((share) => number(share, 2)).join(", ")}`, (add, width) => {
    const step = Math.min(44, width / arms.length);
    shares.forEach((share, i) => {
      const height = Math.max(1, 32 * Math.min(1, share));
      add(s("rect", { x: i * step + 1, y: 2, width: step - 3, height: 32, rx: 2, class: "trough" }), s("rect", { x: i * step + 1, y: 34 - height, width: step - 3, height, rx: 2, class: "chosen" }));
      if (arms.length <= 12) add(text(i * step + step / 2, 48, String(arms[i].price), { class: "tick", "text-anchor": "middle" }));
    });
  });
}
