// Calls to the city that serves this page, with an API key where it wants one.

import { byId, say } from "./dom.js";

const KEPT = "pricemesh-key";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the city answers ${status}`);
    this.status = status;
    this.errors = body.errors ?? [];
  }
}

/** The answer, once a key that opens the door is known. */
export async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEPT);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { cache: "no-store", ...options, headers });
    if (answer.ok) return answer;
    const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
    if (problem.status !== 401 && problem.status !== 403) throw problem;
    if (key !== sessionStorage.getItem(KEPT)) continue; // another call was given one meanwhile
    await askForKey(key ? problem.message : "");
  }
}

export const get = async (path) => (await call(path)).json();
export const post = async (path, body) =>
  (await call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();

let asking = null;

function askForKey(fault) {
  asking ??= new Promise((given) => {
    const dialog = byId("key");
    say(byId("key-fault"), fault);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.querySelector("form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        sessionStorage.setItem(KEPT, byId("key-text").value.trim());
        byId("key-text").value = "";
        dialog.close();
        asking = null;
        given();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}
