// Calls to the city that serves this page, with an API key if the city needs one.

import { byId, say } from "./dom.js";

const STORAGE_NAME = "pricemesh-key";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the city answers ${status}`);
    this.status = status;
    this.errors = body.errors ?? [];
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
