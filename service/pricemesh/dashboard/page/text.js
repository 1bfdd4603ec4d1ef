// Numbers, money, ages and sizes as people read them, and the city's clock.

const plain = new Intl.NumberFormat("en");
let currency = null; // an ISO 4217 code; null: prices are numbers without a unit
let money = moneyFormat({ minimumFractionDigits: 2, maximumFractionDigits: 4 });
let [sums, shortSums] = sumFormats();

function moneyFormat(digits, more = {}) {
  const unit = currency ? { style: "currency", currency, currencyDisplay: "narrowSymbol" } : {};
  return new Intl.NumberFormat("en", { ...unit, ...digits, ...more });
}

function sumFormats() {
  return [moneyFormat({ maximumFractionDigits: 0 }), moneyFormat({ minimumFractionDigits: 0, maximumFractionDigits: 2 }, { notation: "compact" })];
}

/** Write prices and sums in this currency from now on. */
export function setCurrency(code) {
  if (code === currency) return;
  currency = code;
  money = moneyFormat(code ? { maximumFractionDigits: 4 } : { minimumFractionDigits: 2, maximumFractionDigits: 4 });
  [sums, shortSums] = sumFormats();
}

export const NONE = "–";
const minus = (text) => text.replace("-", "−");
export const count = (n) => (n === null || n === undefined ? NONE : plain.format(n));
export const price = (value) => (value === null || value === undefined ? NONE : minus(money.format(value)));
/** A price that is a mean: to the cent. */
export const meanPrice = (value) => (value === null || value === undefined ? NONE : price(Number(value.toFixed(2))));
/** Money taken in some time: whole units where it is much. */
export const sum = (value) => (Math.abs(value) < 1000 ? meanPrice(value) : minus(sums.format(value)));
export const shortSum = (value) => minus(shortSums.format(value));
/** A reward of one decision: money in a city with a currency. */
export function worth(value, digits = Math.abs(value) < 1 ? 4 : 2) {
  return currency && value !== null && value !== undefined ? price(Number(value.toFixed(digits))) : number(value);
}

/** What a reward is called in a city whose /state has this `reward`. */
export const rewardWord = ({ kind, cost }) => (kind === "value" ? "Reward" : cost === 0 ? "Revenue" : "Margin");

export const bound = (value) => minus(plain.format(value));

/** About three significant digits, a real minus sign, never -0. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(2).replace("-", "−");
  const fixed = value.toFixed(size >= 100 ? 1 : digits);
  return (Number(fixed) === 0 ? fixed.replace("-", "") : fixed).replace("-", "−");
}

export const signed = (value) => (value >= 0 ? `+${number(value)}` : number(value));
export const rate = (value) => (value === null || value === undefined ? NONE : number(value, value < 10 ? 1 : 0));
export const percent = (share) => (share === null || share === undefined ? NONE : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`);

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  return n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

export function age(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export function moment(at) {
  const date = new Date(at * 1000);
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

// The offset of the city's clock to the browser's, from the times in its frames.
let offset = 0;
export const setClock = (at) => (offset = at - Date.now() / 1000);
export const now = () => Date.now() / 1000 + offset;

/** Let an element show, from now on, how long ago `at` was. */
export function ticking(element, at, around = (text) => text) {
  element.since = at;
  element.around = around;
  element.dataset.ticking = "";
  tick(element);
}

function tick(element) {
  const text = element.since === null ? NONE : element.around(age(now() - element.since));
  if (element.textContent !== text) element.textContent = text;
}

setInterval(() => document.querySelectorAll("[data-ticking]").forEach(tick), 500);
