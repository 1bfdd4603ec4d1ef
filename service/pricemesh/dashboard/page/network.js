// A drawing of the peers around this city. An edge is as wide as the peer's share.

import { draw, text } from "./chart.js";
import { s } from "./dom.js";
import { age, count, percent } from "./text.js";

/** Every status has a shape as well as a colour, for those who cannot tell the colours apart. */
export const STATUSES = {
  fresh: { mark: "●", kind: "good", meaning: "heard within the last ticks" },
  relayed: { mark: "◆", kind: "plain", meaning: "known through letters that others relay" },
  silent: { mark: "▲", kind: "warn", meaning: "stale, does not answer; its letters still count" },
  quarantined: { mark: "■", kind: "bad", meaning: "a letter of it, or that it brought, was refused" },
  left: { mark: "○", kind: "faint", meaning: "has left the mesh" },
  dropped: { mark: "✕", kind: "faint", meaning: "dropped by an operator" },
  "other terms": { mark: "◇", kind: "warn", meaning: "has other prices or features; heard again when both agree" },
  "not reached": { mark: "◌", kind: "faint", meaning: "has never answered" },
  "not called": { mark: "◌", kind: "faint", meaning: "another replica of this city, the publisher, calls it" },
};

export const nameOf = (peer) => peer.origin ?? peer.address ?? "unknown";

export function drawNetwork(place, { city, peers: rows }) {
  const named = rows.filter((peer) => peer.status !== "not called"); // the same cities are known by their letters
  const peers = named.length ? named : rows;
  const n = peers.length;
  const label = `${city} and ${n} other ${n === 1 ? "city" : "cities"}; the table has the same`;
  const isWide = place.clientWidth >= 520;
  const crowded = n > 16;
  const height = crowded ? 560 : n <= 2 ? 240 : 400;
  draw(place, height, label, (add, width) => {
    const [cx, cy] = [width / 2, height / 2];
    const [rx, ry] = [Math.min(width / 2 - (isWide ? 70 : 48), 300), cy - 66];
    const spots = peers.map((peer, i) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * (i + (n === 2 ? 0.5 : 0))) / n;
      return { peer, x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle) };
    });
    for (const { peer, x, y } of spots) {
      const dashArray = peer.status === "fresh" ? null : "7 6";
      const strokeWidth = (1.5 + 36 * (peer.share ?? 0)).toFixed(1);
      add(s("line", { x1: cx, y1: cy, x2: x, y2: y, class: `edge ${STATUSES[peer.status].kind}`, "stroke-width": strokeWidth, "stroke-dasharray": dashArray }));
    }
    if (isWide && !crowded) add(spots.filter(({ peer }) => peer.share !== null).map(({ peer, x, y }) => plate(cx + (x - cx) * 0.54, cy + (y - cy) * 0.54, percent(peer.share))));
    const own = 1 - peers.reduce((sum, peer) => sum + (peer.share ?? 0), 0);
    add(s("circle", { cx, cy, r: 42, class: "here" }));
    add(text(cx, cy - 1, short(city, 10), { class: "on", "text-anchor": "middle" }), text(cx, cy + 16, `own ${percent(own)}`, { class: "on small", "text-anchor": "middle" }));
    for (const { peer, x, y } of spots) {
      const { mark, kind } = STATUSES[peer.status];
      const above = y < cy - 20; // the label goes to the side that the edge does not cross
      add(s("circle", { cx: x, cy: y, r: 17, class: `node ${kind}` }), text(x, y + 5.5, mark, { class: `mark ${kind}`, "text-anchor": "middle" }));
      add(text(x, above ? y - (crowded ? 24 : 39) : y + 34, short(nameOf(peer).replace(/^https?:\/\//, ""), isWide ? 16 : 11), { class: "label strong", "text-anchor": "middle" }));
      if (!crowded) add(text(x, above ? y - 24 : y + 49, detail(peer, isWide), { class: "note", "text-anchor": "middle" }));
    }
  });
}

const short = (name, maxLength) => (name.length > maxLength ? `${name.slice(0, maxLength - 1)}…` : name);

function plate(x, y, label) {
  return [s("rect", { x: x - 25, y: y - 11, width: 50, height: 22, rx: 11, class: "plate" }), text(x, y + 4.5, label, { class: "value", "text-anchor": "middle" })];
}

function detail(peer, isWide) {
  if (peer.status === "silent") return `silent ${age(peer.age_seconds)}`;
  if (peer.status !== "fresh" && peer.status !== "relayed") return peer.status;
  return isWide || peer.share === null ? `v ${count(peer.version)}` : `${percent(peer.share)} · v ${count(peer.version)}`;
}
