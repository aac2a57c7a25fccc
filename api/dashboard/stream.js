// Server-sent events over fetch: an EventSource could send the key in no header.

import { Refusal, get } from "./session.js";
import { parse } from "./visible.js";

const LONGEST_WAIT = 15000;

/** The events of a stream's bytes: {name, id, data}. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const whole = (rest + value).split("\n\n");
      rest = whole.pop();
      for (const block of whole) {
        const event = { name: "message", id: "", data: "" };
        for (const line of block.split("\n")) {
          const [, field, text] = line.match(/^([a-z]+): ?(.*)$/s) ?? [];
          if (field === "event") event.name = text;
          else if (field === "id") event.id = text;
          else if (field === "data") event.data += text;
        }
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });

/** Follow entries until the signal: `onEntries(rows)`, `onState(state, message)`. It goes on where it was cut. */
export async function follow(parameters, { signal, onEntries, onState }) {
  let place = "";
  let wait = 1000;
  while (!signal.aborted) {
    try {
      const headers = place ? { "Last-Event-ID": place } : {};
      const response = await get("api/tail", { parameters, headers, signal });
      for await (const event of events(response.body)) {
        place = event.id || place;
        wait = 1000;
        if (event.name === "entries") onEntries(parse(event.data).result);
        else if (event.name === "missed" || event.name === "end") onState(event.name, parse(event.data).message);
        else onState("live");
      }
      if (!signal.aborted) onState("cut", "The stream was cut; it goes on in a moment.");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && ["key", "forbidden", "wrong"].includes(error.kind)) {
        onState("refused", error.message);
        return;
      }
      onState("cut", error instanceof Refusal ? error.message : "The stream was cut; it goes on in a moment.");
    }
    await pause(wait, signal);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }
}
