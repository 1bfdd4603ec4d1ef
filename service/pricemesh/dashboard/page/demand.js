// Two charts of a demand curve: the chance of a sale and the expected money by price, with the peers and alone.

import { columns, draw, line, path, rows, scale, text, textWidth, ticks } from "./chart.js";
import { s, table } from "./dom.js";
import { rule } from "./intervals.js";
import { number, percent, price, worth } from "./text.js";

const HEIGHT = 236;
const MAX_DOTS = 40; // of arms; the table has them all

const together = (point) => point;
const alone = (point) => point.own;
const pointAt = (curve, level) => curve.find((point) => point.price === level);

/** `demand`: the answer of POST /beliefs, with `pooled`, false while no peer counts, and `word`, Revenue or Margin. */
export function drawDemand(places, demand) {
  const { curve, arms, chosen, word } = demand;
  const [best, first, last] = [pointAt(curve, arms[chosen].price), curve[0], curve.at(-1)];
  const end = demand.pooled ? "Dashed: by the city’s own data alone. The table below has every price." : "The table below has every price.";
  drawCurve(places.chance, demand, {
    name: "chance",
    tell: percent,
    tick: ({ value }) => ({ value, text: `${Number((100 * value).toPrecision(6))} %` }),
    limits: [0, 1],
    label: `Chance of a sale by price: ${percent(best.chance)} at ${price(best.price)}, which is chosen`,
    description: `From ${percent(first.chance)} at ${price(first.price)} to ${percent(last.chance)} at ${price(last.price)}; at the chosen price between ${percent(best.chance_low)} and ${percent(best.chance_high)}. ${end}`,
  });
  drawCurve(places.revenue, demand, {
    name: "revenue",
    tell: worth,
    tick: (mark) => mark,
    limits: [-Infinity, Infinity],
    label: `${word} expected by price: ${worth(best.revenue)} at ${price(best.price)}, which is chosen`,
    description: `Price less cost, times the chance of a sale; at the chosen price between ${worth(best.revenue_low)} and ${worth(best.revenue_high)}. ${end}`,
  });
}

/** `name` is the field of the curve's points; `tell` and `tick` write its values. */
function drawCurve(place, demand, { name, tell, tick, limits, label, description }) {
  const { curve, pooled } = demand;
  const paint = (add, width) => {
    const [low, high] = [curve[0].price, curve.at(-1).price];
    const area = { left: width < 520 ? 50 : 60, right: width - 16, top: 24, bottom: HEIGHT - 42 };
    const { left, right, top, bottom } = area;
    const values = curve.flatMap((point) => [point, ...(pooled ? [point.own] : [])]).flatMap((each) => [each[`${name}_low`], each[`${name}_high`]]);
    const marks = ticks(Math.min(0, ...values), Math.max(0, ...values), 4).filter(({ value }) => value >= limits[0] && value <= limits[1]);
    const x = scale(low, high, left + 12, right - 4); // room for the ring of the lowest price
    const y = scale(marks[0].value, marks.at(-1).value, bottom, top);
    const inRange = ({ value }) => value >= low - 1e-9 * high && value <= high + 1e-9 * high;
    add(rows(marks.map(tick), y, left, right), columns(ticks(low, high, width < 520 ? 4 : 8).filter(inRange), x, top, bottom));
    if (marks[0].value < 0) add(line(left, y(0), right, y(0), "zero"));
    const sides = pooled ? [[alone, "own"], [together, "pooled"]] : [[together, "pooled"]];
    const along = (side, field, points = curve) => points.map((point) => [x(point.price), y(side(point)[field])]);
    for (const [side, kind] of sides) add(path([...along(side, `${name}_high`), ...along(side, `${name}_low`, curve.toReversed())], `band ${kind}`));
    for (const [side, kind] of sides) add(path(along(side, name), `series ${kind}`));
    add(dots(demand, { name, tell, x, y }), mark(demand, { name, tell, x, y }, area));
    add(text((left + right) / 2, bottom + 36, "price", { class: "axis", "text-anchor": "middle" }));
  };
  draw(place, HEIGHT, label, paint, description);
}

/** The arms on the curve: circles with the peers, diamonds alone. Arms that are ruled out are grey. */
function dots({ curve, arms, chosen, pooled }, { name, tell, x, y }) {
  const step = Math.ceil(arms.length / MAX_DOTS);
  const drawn = arms.filter((arm) => arm.arm % step === 0 || arm.arm === chosen).map((arm) => ({ arm, point: pointAt(curve, arm.price) }));
  const kind = (arm) => (arm.ruled_out_by ? " out" : "");
  const diamonds = drawn.map(({ arm, point }) =>
    s("path", { d: `M${x(arm.price)} ${y(point.own[name]) - 5}l5 5l-5 5l-5 -5z`, class: `mark own${kind(arm)}` }, s("title", null, `${price(arm.price)} alone: ${tell(point.own[name])}`)));
  const circles = drawn.map(({ arm, point }) => {
    const reason = arm.ruled_out_by ? `; ${rule(arm.ruled_out_by)}` : "";
    const title = `${price(arm.price)}: ${tell(point[name])}, between ${tell(point[`${name}_low`])} and ${tell(point[`${name}_high`])}${reason}`;
    return s("circle", { cx: x(arm.price), cy: y(point[name]), r: 4.5, class: `mark pooled${kind(arm)}`, "data-arm": arm.arm }, s("title", null, title));
  });
  return [pooled ? diamonds : [], circles];
}

/** The chosen arm: its band as an upright line, a ring, and above it what is expected. */
function mark({ curve, arms, chosen }, { name, tell, x, y }, { left, right, top, bottom }) {
  const point = pointAt(curve, arms[chosen].price);
  const [at, height] = [x(point.price), y(point[name])];
  const label = `${price(point.price)} chosen: ${tell(point[name])}`;
  const half = textWidth(label) / 2;
  return [
    line(at, top, at, bottom, "chosen-line"),
    line(at, y(point[`${name}_low`]), at, y(point[`${name}_high`]), "interval pooled"),
    s("circle", { cx: at, cy: height, r: 9, class: "ring", "data-chosen": chosen }),
    text(Math.min(Math.max(at, left + half), right - half), top - 9, label, { class: "note strong", "text-anchor": "middle" }),
  ];
}

export function demandTable({ curve, arms, chosen, pooled, word }) {
  const armAt = new Map(arms.map((arm) => [arm.price, arm]));
  const about = (arm) => (arm.arm === chosen ? "chosen" : arm.ruled_out_by ? rule(arm.ruled_out_by) : "an arm");
  const column = (heading, side, name, tell) => [
    [heading, (point) => tell(side(point)[name]), true],
    ["from … to", (point) => `${tell(side(point)[`${name}_low`])} … ${tell(side(point)[`${name}_high`])}`, true],
  ];
  return table(
    `Chance of a sale and ${word.toLowerCase()} expected by price`,
    [
      ["Price", (point) => price(point.price), true],
      ...column("Chance", together, "chance", percent),
      ...column(word, together, "revenue", number),
      ...(pooled ? [...column("Own chance", alone, "chance", percent), ...column(`Own ${word.toLowerCase()}`, alone, "revenue", number)] : []),
      ["", (point) => (armAt.has(point.price) ? about(armAt.get(point.price)) : "")],
    ],
    curve,
  );
}
