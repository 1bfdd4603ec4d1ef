// Which view the address names: #business, #live or #operate; #decision=ID opens a record over any of them.

import { byId } from "./dom.js";

const VIEWS = ["business", "live", "operate"];
const PARTS = { beliefs: "business", now: "live", mesh: "live" }; // parts of a view that can be linked
let current = null;

export const currentView = () => current;

/** Calls `onView(name)` whenever another view is shown, and `onDecision(id)` for the address of a decision. */
export function startViews(onView, onDecision) {
  const read = () => {
    const [, name, , rest] = location.hash.match(/^#([a-z]*)(=(.*))?$/) ?? [];
    if (name === "decision") {
      if (!current) show("business", onView);
      return onDecision(decodeURIComponent(rest ?? ""));
    }
    onDecision(null);
    if (PARTS[name]) {
      show(PARTS[name], onView);
      byId(name).scrollIntoView();
    } else if (VIEWS.includes(name)) {
      if (show(name, onView)) scrollTo(0, 0);
    } else if (!current) show("business", onView);
  };
  addEventListener("hashchange", read);
  read();
}

function show(name, onView) {
  if (name === current) return false;
  current = name;
  for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
  document.querySelectorAll("nav [data-view]").forEach((link) => {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  onView(name);
  return true;
}
