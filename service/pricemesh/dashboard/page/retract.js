// Taking answers back: choose them, count first, then confirm; and the list of what was taken back.

import { operate } from "./city-api.js";
import { byId, h, say, table } from "./dom.js";
import { count, moment } from "./text.js";

const answers = (n) => `${count(n)} ${n === 1 ? "answer" : "answers"}`;
let act = null; // confirms and runs an act, see operate.js

export function retractCard(actOf) {
  act = actOf;
  const choice = (value, text, checked) => h("label", { class: "choice" }, h("input", { type: "radio", name: "retract-by", value, checked }), text);
  const form = h(
    "form",
    { id: "retract" },
    h("fieldset", null, h("legend", null, "Which answers"), choice("decisions", "of these decisions", true), choice("time", "received in this time")),
    h("label", { class: "by-decisions" }, "Decision ids, one a line", h("textarea", { id: "retract-ids", rows: 3, spellcheck: "false" })),
    h("div", { class: "by-time", hidden: true }, timeField("retract-since", "From"), timeField("retract-until", "Until"), h("span", { class: "hint" }, "in the time zone of your browser")),
    h("p", { class: "fault-text", id: "retract-fault", role: "alert" }),
    h("button", { type: "submit" }, "Count them first…"),
  );
  form.addEventListener("change", () => {
    const isByTime = form.elements["retract-by"].value === "time";
    form.querySelector(".by-decisions").hidden = isByTime;
    form.querySelector(".by-time").hidden = !isByTime;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    retract(form.elements["retract-by"].value);
  });
  const list = h("div", { class: "card wide" }, h("h3", null, "Taken back so far"), h("div", { class: "scroll", id: "retractions", tabindex: 0, role: "region", "aria-label": "Taken back so far" }));
  return h("div", { class: "pair" }, h("div", { class: "card" }, h("h3", null, "Take answers back"), h("p", { class: "hint" }, "A till that counted twice, a stolen key: such answers must not count."), form), list);
}

const timeField = (id, text) => h("label", null, text, h("input", { id, type: "datetime-local", step: 1 }));

function selection(by) {
  if (by === "decisions") {
    const decisions = byId("retract-ids").value.split(/\s+/).filter(Boolean);
    return decisions.length ? { decisions } : null;
  }
  const at = (id) => byId(id).value && new Date(byId(id).value).getTime() / 1000;
  const [since, until] = [at("retract-since"), at("retract-until")];
  return since || until ? { ...(since ? { since } : {}), ...(until ? { until } : {}) } : null;
}

/** A dry run first: the confirmation says how many answers it is about. */
async function retract(by) {
  say(byId("retract-fault"), "");
  const chosen = selection(by);
  if (!chosen) return say(byId("retract-fault"), by === "time" ? "Give a time from which or until which answers were received." : "Give the id of at least one decision.");
  let counts;
  try {
    counts = await operate("POST", "admin/retract", { ...chosen, reason: "count only", dry_run: true });
  } catch (fault) {
    return say(byId("retract-fault"), fault.words ?? fault.message);
  }
  const text = [
    `${answers(counts.selected)} will stop counting: in the figures, in what this city has learned, and at every city that heard of it.`,
    ...(counts.already_retracted ? [`${answers(counts.already_retracted)} of these did not count before.`] : []),
    ...(counts.without_feedback ? [`${count(counts.without_feedback)} of the decisions have no answer.`] : []),
    "They stay in the records, and the retraction can be lifted.",
  ];
  const run = (reason) => operate("POST", "admin/retract", { ...chosen, reason });
  const isDone = await act({ title: `Take ${answers(counts.selected)} back?`, text, verb: "Take them back", run }, (result) =>
    `${answers(result.selected)} taken back${result.relearned ? "" : "; the city is still learning again without them"}.`);
  if (isDone) byId("retract-ids").value = "";
}

export function showRetractions(retractions) {
  const place = byId("retractions");
  if (!place) return;
  if (!retractions.length) return place.replaceChildren(h("p", { class: "hint" }, "Nothing was taken back."));
  place.replaceChildren(
    table("Answers that were taken back, newest first", [
      ["No.", (each) => each.id],
      ["What, and why", (each) => h("span", null, `${answers(each.feedback)} ${what(each.selection)}`, h("span", { class: "small why" }, `“${each.reason}”, ${moment(each.at).slice(0, -3)}, ${each.by}`))],
      ["", (each) => (each.lifted_at === null ? h("button", { type: "button", "aria-label": `Lift retraction ${each.id}`, onclick: () => lift(each) }, "Lift…") : `lifted, “${each.lift_reason}”`)],
    ], retractions),
  );
}

function what({ decisions, since, until, key, import: name }) {
  if (decisions) return `of ${decisions.slice(0, 3).join(", ")}${decisions.length > 3 ? ", …" : ""}`;
  if (key) return `sent with the key ${key}`;
  if (name) return `of the import ${name}`;
  return [since && `from ${moment(since)}`, until && `until ${moment(until)}`].filter(Boolean).join(" ");
}

function lift({ id, feedback }) {
  const text = [`${answers(feedback)} will count again, as if they had never been taken back, unless another retraction covers them, too.`];
  const run = (reason) => operate("POST", `admin/retractions/${id}/lift`, { reason });
  act({ title: `Lift retraction ${id}?`, text, verb: "Let them count again", run }, (result) =>
    `${answers(result.restored)} count again${result.still_retracted ? `; ${count(result.still_retracted)} are covered by another retraction` : ""}.`);
}
