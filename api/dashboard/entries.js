// Log entries as rows: text as text, whatever it says; what belongs to one is made when it is opened.

import { time } from "./format.js";
import { make } from "./page.js";
import { pretty, visible } from "./visible.js";

const LONGEST_LINE = 600;

/** The status of the response that an entry's metadata tells, or null. */
export function statusOf(metadata) {
  const first = (value) => (Array.isArray(value) ? value[0] : value);
  const status = first(first(metadata)?.response)?.status_code;
  return Number.isInteger(status) && status >= 100 && status < 1000 ? status : null;
}

export function row(entry) {
  const status = statusOf(entry.metadata);
  const chip = make(
    "span",
    { className: `status s${status ? Math.floor(status / 100) : 0}` },
    status === null ? "–" : String(status),
  );
  const message = make(
    "span",
    { className: "message", dir: "ltr" },
    visible(entry.event_message, { longest: LONGEST_LINE }),
  );
  const summary = make(
    "summary",
    {},
    make("time", { dateTime: new Date(entry.timestamp / 1000).toISOString() }, time(entry.timestamp)),
    chip,
    message,
  );
  const details = make("details", {}, summary);
  details.addEventListener(
    "toggle",
    () => {
      if (details.open && details.children.length === 1) details.append(whole(entry));
    },
    { once: true },
  );
  return make("li", {}, details);
}

function whole(entry) {
  const id = make(
    "p",
    { className: "id" },
    make("span", {}, "id "),
    visible(entry.id, { longest: 300 }),
    make("span", {}, " · µs "),
    String(entry.timestamp),
  );
  const text = make("pre", { className: "text", dir: "ltr" }, visible(entry.event_message));
  const metadata = make("pre", { className: "json", dir: "ltr" }, visible(pretty(entry.metadata), { breaks: true }));
  return make("div", { className: "whole" }, id, text, metadata);
}
