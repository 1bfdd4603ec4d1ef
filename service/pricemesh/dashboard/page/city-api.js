// Calls to the city that serves this page, with an API key if the city needs one.

import { byId, say } from "./dom.js";

const STORAGE_NAME = "pricemesh-key";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the city answers ${status}`);
    this.status = status;
    this.errors = body.errors ?? [];
  }

  /** What is wrong, for people: the faults of single fields, or of the whole. */
  get words() {
    return this.errors.length ? this.errors.map(({ field, detail }) => (field ? `${field}: ${detail}` : detail)).join("; ") : this.message;
  }
}

/** The response to a call. Asks the user for an API key, as often as the city refuses it. */
export async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(STORAGE_NAME);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { cache: "no-store", ...options, headers });
    if (answer.ok) return answer;
    const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
    if (problem.status !== 401 && problem.status !== 403) throw problem;
    if (key !== sessionStorage.getItem(STORAGE_NAME)) continue; // another call has got a key meanwhile
    await askForKey(key ? problem.message : "");
  }
}

let operatorKey = ""; // in the memory of this tab, nowhere else

export const setOperatorKey = (key) => (operatorKey = key);

/** A call of an operator, with the operator's key if there is one. Every refusal is thrown as a Problem. */
export async function operate(method, path, body = null) {
  const key = operatorKey || sessionStorage.getItem(STORAGE_NAME);
  const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { method, cache: "no-store", headers, body: body ? JSON.stringify(body) : undefined });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, content);
  return content;
}

export const get = async (path) => (await call(path)).json();
export const post = async (path, body) =>
  (await call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();

let dialogResult = null; // a promise while the dialog is open

function askForKey(fault) {
  dialogResult ??= new Promise((resolve) => {
    const dialog = byId("key");
    say(byId("key-fault"), fault);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.querySelector("form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        sessionStorage.setItem(STORAGE_NAME, byId("key-text").value.trim());
        byId("key-text").value = "";
        dialog.close();
        dialogResult = null;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return dialogResult;
}
