// The one dialog before every act of an operator: what will happen, the reason, and a way back.

import { byId, h, say } from "./dom.js";

/**
 * Ask, and do it. `text`: sentences that say what will happen; `fields`: more inputs of the act, as elements;
 * `run(reason)` does it and may throw a Problem, which is shown while the dialog stays open.
 * Resolves to what `run` returned, or to null if the operator cancelled.
 */
export function confirmAct({ title, text, verb, fields = [], run }) {
  const dialog = byId("confirm");
  const form = dialog.querySelector("form");
  const [reason, button] = [byId("confirm-reason"), byId("confirm-do")];
  say(byId("confirm-title"), title);
  say(button, verb);
  say(byId("confirm-fault"), "");
  reason.value = "";
  button.disabled = false;
  byId("confirm-text").replaceChildren(...text.map((sentence) => h("p", null, sentence)));
  byId("confirm-fields").replaceChildren(...fields);
  return new Promise((resolve) => {
    let result = null;
    form.onsubmit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        result = await run(reason.value.trim());
        dialog.close();
      } catch (fault) {
        say(byId("confirm-fault"), fault.words ?? fault.message);
      } finally {
        button.disabled = false;
      }
    };
    byId("confirm-cancel").onclick = () => dialog.close();
    dialog.onclose = () => resolve(result);
    dialog.showModal();
    (fields.length ? byId("confirm-fields").querySelector("input") : reason).focus();
  });
}
