// The view "Business": alerts, sales against the time before, acts of operators, what the mesh contributed.

import { actsTable, wordsOfAct } from "./acts.js";
import { showAlerts } from "./alerts.js";
import { get } from "./city-api.js";
import { asTable, byId, h, say } from "./dom.js";
import { showMeshValue } from "./mesh-value.js";
import { changeOf, datesOf, figuresOf, loadFormer, loadSales, SPANS, total } from "./sales.js";
import { drawSales, salesTable } from "./sales-chart.js";
import { count, NONE, now, price } from "./text.js";

const REFRESH_MS = 30_000;
const MAX_ACTS = 200;
const SHOWN_ACTS = 6;
const shown = { per: "day", size: SPANS.day[0] };
const data = { sales: null, former: null, acts: [], more: false, reward: null };
let drawnWidth = 0;
let started = false;

/** Called with every frame; the rest is asked for every half minute, and when another time is chosen. */
export function showBusiness({ frame }) {
  data.reward = frame.state.reward;
  showLowestPrice(frame.state.lowest_prices_30_days);
  if (!started) {
    started = true;
    start();
  }
  if (data.sales && drawnWidth !== byId("sales-chart").clientWidth) paint();
}

function start() {
  for (const button of byId("per").querySelectorAll("button"))
    button.addEventListener("click", () => choose(button.dataset.per, SPANS[button.dataset.per][0]));
  byId("span").addEventListener("change", () => choose(shown.per, Number(byId("span").value)));
  choose(shown.per, shown.size);
  refreshOthers();
  setInterval(() => {
    if (document.hidden || byId("view-business").hidden) return;
    refreshSales();
    refreshOthers();
  }, REFRESH_MS);
}

function choose(per, size) {
  Object.assign(shown, { per, size });
  for (const button of byId("per").querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.per === per);
  const names = SPANS[per].map((n) => h("option", { value: n, selected: n === size }, `${count(n)} ${per}s`));
  byId("span").replaceChildren(...names);
  refreshSales();
}

/** Draw the sales as soon as they are here; what is compared with them comes after. */
export async function refreshSales() {
  const { per, size } = shown;
  try {
    const [sales, { acts, more }] = await Promise.all([loadSales(per, size, now()), loadActs(per, size)]);
    if (shown.per !== per || shown.size !== size) return; // another time was chosen meanwhile
    Object.assign(data, { sales, acts, more, former: data.sales?.since === sales.since && data.sales.per === per ? data.former : null });
    paint();
    data.former = await loadFormer(sales);
    if (data.sales === sales) paintTiles();
    say(byId("sales-fault"), "");
  } catch (fault) {
    say(byId("sales-fault"), fault.message);
  }
}

const loadActs = (per, size) => get(`acts?limit=${MAX_ACTS}&since=${Math.floor(now() - size * { hour: 3600, day: 86400, week: 604800 }[per])}`);

async function refreshOthers() {
  try {
    const { alerts } = await get("alerts");
    showAlerts(byId("alerts"), alerts);
    byId("no-alerts").hidden = alerts.length > 0;
    showMeshValue(await get("mesh-value"), data.reward);
  } catch (fault) {
    say(byId("sales-fault"), fault.message);
  }
}

function showLowestPrice({ groups, complete }) {
  const known = groups.filter((group) => group.price !== null);
  const text = known.map((group) => (groups.length > 1 ? `${group.group} ${price(group.price)}` : price(group.price))).join(", ");
  say(byId("lowest-price"), text || NONE);
  say(byId("lowest-price-note"), complete ? "the reference of a price reduction" : "still being counted");
}

function paint() {
  const { sales, acts } = data;
  const figures = figuresOf(sales, data.reward);
  const view = { sales, figures, per: sales.per, dates: datesOf(sales), acts: acts.map((act) => ({ at: act.at, words: wordsOfAct(act) })) };
  drawnWidth = byId("sales-chart").clientWidth;
  paintTiles();
  byId("no-sales").hidden = sales.total.decisions > 0;
  byId("sales-body").hidden = sales.total.decisions === 0 && !acts.length;
  byId("incomplete").hidden = sales.complete;
  say(byId("sales-title"), `${figures[0][1]} per ${sales.per}`);
  drawSales(byId("sales-chart"), view, (index) => say(byId("sales-readout"), readout(view, index)));
  say(byId("sales-readout"), readout(view, sales.buckets.length - 1));
  asTable(byId("sales-table"), () => salesTable(view));
  paintActs(view.dates.moment);
}

/** The figures of one bucket, and what operators did in it. */
function readout({ sales, figures, dates, acts }, index) {
  const bucket = sales.buckets[index];
  const done = acts.filter((act) => act.at >= bucket.start && act.at < bucket.end).map((act) => act.words);
  const texts = figures.map(([field, name, write]) => `${name.toLowerCase()} ${write(bucket[field])}`);
  return [`${dates.name(bucket)}: ${texts.join(", ")}`, ...(bucket.open ? ["may still grow"] : []), ...done].join("; ");
}

function paintTiles() {
  const { sales, former } = data;
  const all = total(sales.buckets);
  const lowest = byId("lowest-price").closest("div");
  const tiles = [
    ...figuresOf(sales, data.reward).map((figure) => {
      const [field, name, write] = figure;
      const change = changeOf(figure, sales.buckets, former);
      const text = change ? h("span", { class: "change" }, h("span", { "aria-hidden": "true" }, change.up ? "▲ " : "▼ "), change.text) : "";
      return h("div", { "data-figure": field }, h("dt", null, name), h("dd", null, h("span", { class: "big" }, all[field] === null ? NONE : write(all[field])), h("span", { class: "small" }, text)));
    }),
  ];
  byId("sales-tiles").replaceChildren(...tiles, lowest);
  const compared = former?.total.decisions ? `▲ and ▼: the ${count(sales.buckets.length - 1)} complete ${sales.per}s against as many before.` : "";
  say(byId("sales-note"), `With the present ${sales.per}. ${compared} Times are those of ${sales.time_zone}.`);
}

function paintActs(moment) {
  const { acts, more } = data;
  byId("no-acts").hidden = acts.length > 0;
  byId("acts").replaceChildren(...(acts.length ? [actsTable(acts.slice(0, SHOWN_ACTS), moment)] : []));
  const rest = acts.slice(SHOWN_ACTS);
  byId("more-acts").hidden = !rest.length;
  if (rest.length) {
    say(byId("more-acts").querySelector("summary"), `${count(rest.length)} more${more ? ", and older ones (GET /acts)" : ""}`);
    byId("more-acts").lastElementChild.replaceChildren(actsTable(rest, moment));
  }
}
