// Elements from plain values. Text goes in as text, never as markup: names and reasons come from others.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Set text only where it differs, so that nothing flickers and no selection is lost. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Children for items, kept by key from one time to the next: focus stays where it is. */
export function keyed(parent, items, key, make, update) {
  const had = (parent.keyed ??= new Map());
  const has = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const child = had.get(name) ?? make(item);
    has.set(name, child);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update?.(child, item); // in its place, for drawings to know how wide it is
  }
  for (const [name, child] of had) if (!has.has(name)) child.remove();
  parent.keyed = has;
}

/** A table: columns are [heading, cell of a row, whether it is a number]. */
export function table(caption, columns, rows) {
  const cell = ([, of, isNumber], row) => {
    const content = of(row);
    return h("td", { class: isNumber ? "number" : null }, content instanceof Node ? content : String(content));
  };
  return h(
    "table",
    null,
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, columns.map(([name, , isNumber]) =>
      h("th", { scope: "col", class: isNumber ? "number" : null }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, columns.map((column) => cell(column, row))))),
  );
}

/** Under a chart, the same numbers for those who do not see it: made when it is opened, and kept current. */
export function asTable(details, make) {
  details.make = make;
  const draw = () => {
    if (details.open) details.lastElementChild.replaceChildren(details.make());
  };
  if (!details.ready) {
    details.ready = true;
    details.replaceChildren(h("summary", null, "As a table"), h("div", { class: "scroll", tabindex: 0 }));
    details.addEventListener("toggle", draw);
  }
  draw();
}
