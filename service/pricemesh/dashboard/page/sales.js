// Sales of some time: what is asked of /sales, the figures in words, and how they compare with the time before.

import { get } from "./city-api.js";
import { count, meanPrice, percent, sum, worth } from "./text.js";

const SECONDS = { hour: 3600, day: 86400, week: 604800 };
/** How many hours, days or weeks may be shown; the first is the default. The API answers 1,200 at most. */
export const SPANS = { hour: [48, 168, 672], day: [28, 90, 365, 1000], week: [26, 52, 156] };

/** The newest `size` hours, days or weeks; the last one is not over yet. */
export function loadSales(per, size, now) {
  return get(`sales?per=${per}&since=${Math.floor(now - (size - 1) * SECONDS[per])}`);
}

/** As many complete ones before them; half a one more or less does not matter, for the API rounds down. */
export function loadFormer({ per, buckets }) {
  const until = buckets[0].start;
  const since = Math.floor(until - (buckets.length - 1.5) * SECONDS[per]);
  return since > 0 && buckets.length > 1 ? get(`sales?per=${per}&since=${since}&until=${until}`) : null;
}

const FIELDS = ["decisions", "retracted", "bought", "sold", "revenue", "reward"];

/** The sums of several buckets, with the shares and means that follow from them. */
export function total(buckets) {
  const sums = Object.fromEntries(FIELDS.map((field) => [field, buckets.reduce((all, bucket) => all + (bucket[field] ?? 0), 0)]));
  const counted = sums.decisions - sums.retracted;
  const prices = buckets.reduce((all, bucket) => all + (bucket.mean_price ?? 0) * bucket.decisions, 0);
  return {
    ...sums,
    conversion: counted > 0 ? sums.bought / counted : null,
    mean_reward: counted > 0 ? sums.reward / counted : null,
    mean_price: sums.decisions ? prices / sums.decisions : null,
    mean_price_paid: sums.sold > 0 ? sums.revenue / sums.sold : null,
  };
}

const soldName = (unit) => (unit === "sale" ? "Sales" : `Sold (${unit})`);

/** What is shown of a city's sales: [field, name, how it is written, how a change is written]. */
export function figuresOf({ unit }, reward) {
  const given = ["decisions", "Prices given", count, relative];
  if (reward.kind === "value") {
    return [["reward", "Reward", worth, relative], ["mean_reward", "Reward per price given", worth, relative], ["mean_price", "Mean price given", meanPrice, relative], given];
  }
  return [
    ["revenue", "Revenue", sum, relative],
    ...(reward.cost === 0 ? [] : [["reward", "Margin", sum, relative]]),
    ["conversion", "Conversion", percent, points],
    ["mean_price_paid", "Mean price paid", meanPrice, relative],
    ["sold", soldName(unit), count, relative],
    given,
  ];
}

function relative(value, former) {
  if (!(former > 0)) return null;
  const change = value / former - 1;
  return { up: change >= 0, text: `${change < 0 ? "−" : "+"}${percent(Math.abs(change))}` };
}

function points(value, former) {
  const change = 100 * (value - former);
  return { up: change >= 0, text: `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} points` };
}

/** The change of a figure from the complete buckets of the time before to those of this one; null if unknown. */
export function changeOf([field, , , compare], buckets, former) {
  const [now, before] = [total(buckets.slice(0, -1)), former && total(former.buckets)];
  if (!before?.decisions || !now.decisions || now[field] === null || before[field] === null) return null;
  return compare(now[field], before[field]);
}

/** Functions that write the times of a city's buckets: in its own time zone. */
export function datesOf({ time_zone: timeZone, per, buckets }) {
  const form = (options) => {
    const format = new Intl.DateTimeFormat("en-GB", { timeZone, ...options });
    return (at) => format.format(at * 1000).replace(",", "");
  };
  const isLong = buckets.at(-1).start - buckets[0].start > 330 * 86400;
  const day = form({ day: "numeric", month: "short", ...(isLong ? { year: "2-digit" } : {}) });
  const clock = form({ hour: "2-digit", minute: "2-digit" });
  const whole = form({ weekday: "short", day: "numeric", month: "short", year: "numeric" });
  const tick = (at) => (per === "hour" && clock(at) !== "00:00" ? clock(at) : day(at));
  const name = ({ start }) => (per === "hour" ? `${whole(start)} ${clock(start)}` : per === "week" ? `week of ${whole(start)}` : whole(start));
  return { tick, name, moment: (at) => `${day(at)} ${clock(at)}` };
}

