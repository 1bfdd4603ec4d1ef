// The live feed: server-sent events read by fetch, because an EventSource cannot carry a key.

import { call } from "./city-api.js";

const SILENCE = 25_000; // no word for so long: the connection is dead, whatever the system says
const LONGEST_WAIT = 15_000;

/** Calls `heard(event, content)` for every event, and `connected(state, why)` when that changes. */
export async function listen(heard, connected) {
  let wait = 1000;
  for (;;) {
    let why = "the city has ended the connection";
    try {
      connected("connecting");
      await read((event, content) => {
        wait = 1000;
        connected("live");
        heard(event, content);
      });
    } catch (fault) {
      why = fault instanceof TypeError || fault.name === "AbortError" ? "the city cannot be reached" : fault.message;
    }
    connected("lost", why);
    await new Promise((over) => setTimeout(over, wait));
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }
}

async function read(heard) {
  const giveUp = new AbortController();
  let alarm = setTimeout(() => giveUp.abort(), SILENCE);
  try {
    const answer = await call("events", { signal: giveUp.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(alarm);
      alarm = setTimeout(() => giveUp.abort(), SILENCE);
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) tell(block, heard);
    }
  } finally {
    clearTimeout(alarm);
  }
}

function tell(block, heard) {
  const fields = block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]);
  const { event, data } = Object.fromEntries(fields);
  if (event && data) heard(event, JSON.parse(data));
}
