// A chart of sales over time: money as bars, conversion and price paid as lines, acts of operators as marks.

import { columns, draw, line, path, rows, scale, text, ticks } from "./chart.js";
import { s, table } from "./dom.js";
import { price, shortSum } from "./text.js";

const BAR_HEIGHT = 150;
const LINE_HEIGHT = 84;
const [STRIP, GAP, AXIS] = [26, 40, 26]; // the marks above, the title of a panel, the times below
const MARK_GAP = 18; // marks that are closer become one
const STEPS = [1, 2, 3, 6, 7, 12, 14, 24, 28, 48, 56, 91, 182, 364];

const wholePercent = (share) => `${Number((100 * share).toPrecision(6))} %`;

/** The panels of a city of purchases, or of values. */
function panelsOf(figures) {
  const name = Object.fromEntries(figures.map(([field, title]) => [field, title]));
  const [money, share, paid] = name.revenue ? ["revenue", "conversion", "mean_price_paid"] : ["reward", "mean_reward", "mean_price"];
  return [
    { field: money, title: name[money], tick: shortSum, height: BAR_HEIGHT, bars: true },
    { field: share, title: name[share], tick: share === "conversion" ? wholePercent : shortSum, height: LINE_HEIGHT, kind: "pooled", fromZero: true },
    { field: paid, title: name[paid], tick: price, height: LINE_HEIGHT, kind: "own" },
  ];
}

/** `acts`: [{at, words}], newest first. `onPick(index)` is called with the bucket under the pointer. */
export function drawSales(place, { sales, figures, acts, dates, per }, onPick) {
  const { buckets } = sales;
  const panels = panelsOf(figures);
  const height = STRIP + panels.reduce((all, panel) => all + GAP + panel.height, 0) + AXIS;
  const label = `${panels.map((panel) => panel.title).join(", ")} per ${per}, ${dates.name(buckets[0])} to ${dates.name(buckets.at(-1))}; ${acts.length} acts of operators`;
  draw(place, height, label, (add, width) => {
    const [left, right] = [width < 520 ? 52 : 64, width - 8];
    const x = scale(0, buckets.length, left, right);
    const bottom = height - AXIS;
    add(s("rect", { x: left, y: STRIP, width: Math.max(1, x(1) - left), height: bottom - STRIP, class: "cursor", visibility: "hidden" }));
    let top = STRIP;
    for (const panel of panels) {
      add(text(left, top + 28, panel.title, { class: "panel" }), drawPanel(panel, buckets, x, top + GAP, left, right));
      top += GAP + panel.height;
    }
    add(columns(timeMarks(buckets, dates, right - left), x, bottom, bottom), drawActs(acts, buckets, x, bottom));
    follow(place, { x, left, right, size: buckets.length }, onPick);
  }, "The table below has every figure.");
}

function drawPanel({ field, tick, height, bars, kind, fromZero }, buckets, x, top, left, right) {
  const known = buckets.map((bucket) => bucket[field]).filter((value) => value !== null);
  const low = bars || fromZero ? Math.min(0, ...known) : Math.min(...known);
  const marks = known.length ? ticks(low, Math.max(...known, bars || fromZero ? 0 : low), height > 100 ? 4 : 2) : ticks(0, 1, 2);
  const y = scale(marks[0].value, marks.at(-1).value, top + height, top);
  const grid = rows(marks.map(({ value }) => ({ value, text: tick(value) })), y, left, right);
  if (bars) return [grid, barPath(buckets, field, false, x, y), barPath(buckets, field, true, x, y)];
  const middle = (i) => (x(i) + x(i + 1)) / 2;
  const runs = [];
  buckets.forEach((bucket, i) => {
    if (bucket[field] === null) return;
    if (i === 0 || buckets[i - 1][field] === null) runs.push([]);
    runs.at(-1).push([middle(i), y(bucket[field])]);
  });
  const lines = runs.filter((run) => run.length > 1).map((run) => path(run, `series ${kind} whole`));
  const dots = runs.filter((run) => run.length === 1).map(([[cx, cy]]) => s("circle", { cx, cy, r: 2.4, class: `point ${kind}` }));
  return [grid, lines, dots];
}

/** All bars of one kind as one path: a thousand of them are drawn at once. */
function barPath(buckets, field, isOpen, x, y) {
  const inset = Math.min(2, 0.12 * (x(1) - x(0)));
  const d = buckets
    .map((bucket, i) => {
      if (bucket.open !== isOpen || !bucket[field]) return "";
      return `M${(x(i) + inset).toFixed(1)} ${y(0).toFixed(1)}V${y(bucket[field]).toFixed(1)}H${(x(i + 1) - inset).toFixed(1)}V${y(0).toFixed(1)}Z`;
    })
    .join("");
  return s("path", { d, class: isOpen ? "bars open" : "bars" });
}

function timeMarks(buckets, dates, width) {
  const step = STEPS.find((each) => (each * width) / buckets.length >= 76) ?? 728;
  const marks = [];
  for (let i = buckets.length - 1; i >= 0; i -= step) marks.push({ value: i + 0.5, text: dates.tick(buckets[i].start) });
  return marks.filter(({ value }) => value * (width / buckets.length) > 20 && (buckets.length - value) * (width / buckets.length) > 12);
}

/** The place of a moment among the buckets: 1.5 is in the middle of the second one. */
function placeOf(at, buckets) {
  const i = buckets.findIndex((bucket) => at < bucket.end);
  return i < 0 || at < buckets[0].start ? null : i + (at - buckets[i].start) / (buckets[i].end - buckets[i].start);
}

function drawActs(acts, buckets, x, bottom) {
  const groups = [];
  for (const act of acts) {
    const at = placeOf(act.at, buckets);
    if (at === null) continue;
    const group = groups.at(-1);
    if (group && group.x - x(at) < MARK_GAP) group.acts.push(act);
    else groups.push({ x: x(at), acts: [act] });
  }
  return groups.map((group) =>
    s(
      "g",
      { class: "act" },
      s("title", null, group.acts.map((act) => act.words).join("\n")),
      line(group.x, STRIP - 8, group.x, bottom, "act-line"),
      group.acts.length === 1
        ? s("path", { d: `M${group.x - 7} 8h14l-7 13z`, class: "act-mark" })
        : [s("circle", { cx: group.x, cy: 13, r: 10, class: "act-mark" }), text(group.x, 17.5, group.acts.length > 99 ? "…" : group.acts.length, { class: "act-count", "text-anchor": "middle" })],
    ));
}

/** Mark the bucket under the pointer, or that arrow keys have reached. */
function follow(place, { x, left, right, size }, onPick) {
  const pick = (index) => {
    const cursor = place.querySelector(".cursor");
    place.picked = Math.max(0, Math.min(size - 1, index));
    cursor.setAttribute("x", x(place.picked));
    cursor.setAttribute("visibility", "visible");
    onPick(place.picked);
  };
  place.onpointermove = (event) => {
    const at = event.clientX - place.getBoundingClientRect().left;
    if (at >= left && at < right) pick(Math.floor(((at - left) / (right - left)) * size));
  };
  place.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -size, End: size }[event.key];
    if (!step) return;
    event.preventDefault();
    pick(place.picked === undefined ? size - 1 : place.picked + step);
  };
}

export function salesTable({ sales, figures, dates, per }) {
  return table(
    `Sales per ${per}, newest first`,
    [
      [per[0].toUpperCase() + per.slice(1), (bucket) => dates.name(bucket) + (bucket.open ? " (may still grow)" : "")],
      ...figures.map(([field, name, write]) => [name, (bucket) => write(bucket[field]), true]),
    ],
    sales.buckets.toReversed(),
  );
}
