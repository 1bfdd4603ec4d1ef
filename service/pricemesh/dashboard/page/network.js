// Cities as a network around this one: an edge is as wide as what a peer's word counts for here.

import { draw, text } from "./chart.js";
import { s } from "./dom.js";
import { age, count, percent } from "./text.js";

/** A status in a shape, so that colour is never alone in saying it. */
export const STATUSES = {
  fresh: { mark: "●", kind: "good", says: "heard within the last ticks" },
  relayed: { mark: "◆", kind: "plain", says: "known through others" },
  silent: { mark: "▲", kind: "warn", says: "stale, does not answer; what it told still counts" },
  quarantined: { mark: "■", kind: "bad", says: "what it sent was refused" },
  left: { mark: "○", kind: "faint", says: "has left the mesh" },
  dropped: { mark: "✕", kind: "faint", says: "dropped by an operator" },
  "not reached": { mark: "◌", kind: "faint", says: "has never answered" },
};

export const nameOf = (peer) => peer.origin ?? peer.address ?? "unknown";

export function drawNetwork(place, { city, peers }) {
  const n = peers.length;
  const said = `${city} and ${n} other ${n === 1 ? "city" : "cities"}; the table has the same`;
  const wide = place.clientWidth >= 520;
  const crowded = n > 16;
  const height = crowded ? 560 : n <= 2 ? 240 : 400;
  draw(place, height, said, (add, width) => {
    const [cx, cy] = [width / 2, height / 2];
    const [rx, ry] = [Math.min(width / 2 - (wide ? 70 : 48), 300), cy - 66];
    const spots = peers.map((peer, i) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * (i + (n === 2 ? 0.5 : 0))) / n;
      return { peer, x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle) };
    });
    for (const { peer, x, y } of spots) {
      const dashes = peer.status === "fresh" ? null : "7 6";
      const thick = (1.5 + 36 * (peer.share ?? 0)).toFixed(1);
      add(s("line", { x1: cx, y1: cy, x2: x, y2: y, class: `edge ${STATUSES[peer.status].kind}`, "stroke-width": thick, "stroke-dasharray": dashes }));
    }
    if (wide && !crowded) add(spots.filter(({ peer }) => peer.share !== null).map(({ peer, x, y }) => plate(cx + (x - cx) * 0.54, cy + (y - cy) * 0.54, percent(peer.share))));
    const own = 1 - peers.reduce((sum, peer) => sum + (peer.share ?? 0), 0);
    add(s("circle", { cx, cy, r: 42, class: "here" }));
    add(text(cx, cy - 1, short(city, 10), { class: "on", "text-anchor": "middle" }), text(cx, cy + 16, `own ${percent(own)}`, { class: "on small", "text-anchor": "middle" }));
    for (const { peer, x, y } of spots) {
      const { mark, kind } = STATUSES[peer.status];
      const above = y < cy - 20; // where the edge leaves downwards, the words stand above
      add(s("circle", { cx: x, cy: y, r: 17, class: `node ${kind}` }), text(x, y + 5.5, mark, { class: `mark ${kind}`, "text-anchor": "middle" }));
      add(text(x, above ? y - (crowded ? 24 : 39) : y + 34, short(nameOf(peer).replace(/^https?:\/\//, ""), wide ? 16 : 11), { class: "label strong", "text-anchor": "middle" }));
      if (!crowded) add(text(x, above ? y - 24 : y + 49, detail(peer, wide), { class: "note", "text-anchor": "middle" }));
    }
  });
}

const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

function plate(x, y, said) {
  return [s("rect", { x: x - 25, y: y - 11, width: 50, height: 22, rx: 11, class: "plate" }), text(x, y + 4.5, said, { class: "value", "text-anchor": "middle" })];
}

function detail(peer, wide) {
  if (peer.status === "silent") return `silent ${age(peer.age_seconds)}`;
  if (peer.status !== "fresh" && peer.status !== "relayed") return peer.status;
  return wide || peer.share === null ? `v ${count(peer.version)}` : `${percent(peer.share)} · v ${count(peer.version)}`;
}
