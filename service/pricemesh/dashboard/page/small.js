// Small charts of the same kind side by side, on the same scales, so that cities compare at a glance.

import { apart, draw, line, path, rows, scale, text, ticks } from "./chart.js";
import { s } from "./dom.js";
import { count, number } from "./text.js";

/** Versions held of one city over time; `span` and `most` are the same for all. */
export function drawGrowth(place, seen, { now, span, most }) {
  const latest = seen.at(-1);
  draw(place, 74, latest ? `Version ${count(latest[1])}` : "No version held", (add, width) => {
    const [left, right, top, bottom] = [2, width - 62, 8, 58];
    const x = scale(-span, 0, left, right);
    const y = scale(0, Math.max(1, most), bottom, top);
    add(line(left, bottom, right, bottom, "grid"), text(left, 72, `−${Math.round(span / 60)} min`, { class: "tick" }), text(right, 72, "now", { class: "tick", "text-anchor": "end" }));
    const shown = seen.filter(([at]) => at - now >= -span);
    if (!shown.length) return;
    const points = shown.map(([at, version]) => [x(at - now), y(version)]);
    add(path([[points[0][0], bottom], ...points, [points.at(-1)[0], bottom]], "area"), path(points, "average"));
    add(text(right + 8, Math.min(bottom, points.at(-1)[1] + 4), count(latest[1]), { class: "direct" }));
  });
}

/** Regret a decision of one city, together and alone; `most` is the same for all. */
export function drawRegret(place, marks, { most, from, to }) {
  const latest = marks.at(-1);
  const said = `Regret a decision: together ${number(latest.together, 4)}, alone ${number(latest.alone, 4)}`;
  draw(place, 150, said, (add, width) => {
    const [left, right, top, bottom] = [44, width - 78, 10, 124];
    const values = ticks(0, most, 3);
    const x = scale(from, Math.max(to, from + 1), left, right);
    const y = scale(0, values.at(-1).value, bottom, top);
    add(rows(values, y, left, right), text(left, 143, "start", { class: "tick" }), text(right, 143, "now", { class: "tick", "text-anchor": "end" }));
    const series = [["alone", "own"], ["together", "pooled"]].filter(([name]) => latest[name] !== null);
    const clip = (value) => Math.max(top, y(value));
    const wanted = series.map(([name]) => clip(latest[name]) + 4);
    const placed = apart(wanted, 14, top + 4, bottom + 4);
    series.forEach(([name, kind], i) => {
      const points = marks.filter((mark) => mark[name] !== null).map((mark) => [x(mark.at), clip(mark[name])]);
      add(path(points, `series ${kind}`));
      const [ex, ey] = points.at(-1);
      add(kind === "own" ? s("path", { d: `M${ex} ${ey - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`, class: "mark own" }) : s("circle", { cx: ex, cy: ey, r: 4, class: "mark pooled" }));
      add(text(right + 9, placed[i], name, { class: `direct ${kind}` }));
    });
  });
}

/** A share between 0 and 1 for each arm. */
export function drawBars(place, said, shares, arms) {
  draw(place, 52, `${said}: ${shares.map((share) => number(share, 2)).join(", ")}`, (add, width) => {
    const step = Math.min(44, width / arms.length);
    shares.forEach((share, i) => {
      const tall = Math.max(1, 32 * Math.min(1, share));
      add(s("rect", { x: i * step + 1, y: 2, width: step - 3, height: 32, rx: 2, class: "trough" }), s("rect", { x: i * step + 1, y: 34 - tall, width: step - 3, height: tall, rx: 2, class: "chosen" }));
      if (arms.length <= 12) add(text(i * step + step / 2, 48, String(arms[i].price), { class: "tick", "text-anchor": "middle" }));
    });
  });
}
