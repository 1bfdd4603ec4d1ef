// The live feed: server-sent events read by fetch, because an EventSource cannot send an API key.

import { call } from "./city-api.js";

const MAX_SILENCE_MS = 25_000; // after which the connection counts as dead
const MAX_WAIT_MS = 15_000;

/** Calls `onEvent(name, content)` for every event, and `onState(state, why)` when the connection changes. */
export async function listen(onEvent, onState) {
  let wait = 1000;
  for (;;) {
    let why = "the city has ended the connection";
    try {
      onState("connecting");
      await read((name, content) => {
        wait = 1000;
        onState("live");
        onEvent(name, content);
      });
    } catch (fault) {
      why = fault instanceof TypeError || fault.name === "AbortError" ? "the city cannot be reached" : fault.message;
    }
    onState("lost", why);
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, MAX_WAIT_MS);
  }
}

async function read(onEvent) {
  const controller = new AbortController();
  let timer = setTimeout(() => controller.abort(), MAX_SILENCE_MS);
  try {
    const answer = await call("events", { signal: controller.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done: ended, value } = await reader.read();
      if (ended) return;
      clearTimeout(timer);
      timer = setTimeout(() => controller.abort(), MAX_SILENCE_MS);
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) dispatch(block, onEvent);
    }
  } finally {
    clearTimeout(timer);
  }
}

function dispatch(block, onEvent) {
  const fields = block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]);
  const { event, data } = Object.fromEntries(fields);
  if (event && data) onEvent(event, JSON.parse(data));
}
