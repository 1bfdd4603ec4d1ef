// Building elements. Text is inserted as text, never as markup: names and reasons come from others.

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

/** Set an element's text if it differs, so that nothing flickers and no selection is lost. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Show one child for each item. Children are reused by key, so that focus stays where it is. */
export function keyed(parent, items, key, make, update) {
  const previous = (parent.keyed ??= new Map());
  const current = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const child = previous.get(name) ?? make(item);
    current.set(name, child);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update?.(child, item); // after it is inserted: drawings need their width
  }
  for (const [name, child] of previous) if (!current.has(name)) child.remove();
  parent.keyed = current;
}

/** A table. Columns are [heading, function from row to cell, whether it is a number]. */
export function table(caption, columns, rows) {
  const cell = ([, contentOf, isNumber], row) => {
    const content = contentOf(row);
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

/** Under a chart, its numbers as a table for those who cannot see it: filled while it is open. */
export function asTable(details, make) {
  details.make = make;
  const draw = () => {
    if (details.open) details.lastElementChild.replaceChildren(details.make());
  };
  if (!details.initialised) {
    details.initialised = true;
    details.replaceChildren(h("summary", null, "As a table"), h("div", { class: "scroll", tabindex: 0 }));
    details.addEventListener("toggle", draw);
  }
  draw();
}
