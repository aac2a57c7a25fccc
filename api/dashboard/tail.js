// The log panel: live, or a range of time; filters; held still while it is read.

import { row } from "./entries.js";
import { count, fieldTime, zoneText } from "./format.js";
import { $, say, showState } from "./page.js";
import { Refusal, ask } from "./session.js";
import { follow } from "./stream.js";

const MOST_ROWS = 500;
const PAGE = 50;
const NONE_YET = "Nothing yet. Entries show here as they come; any of the last 90 days would be here already.";
const NONE_THERE = "No entries in this range with these filters. Widen the one or the others.";
const NONE_SO_FAR = "None found so far. “Older entries” looks further back.";

let project = "",
  abort = null,
  held = false,
  typing;
let waiting = []; // that came and are not shown yet, oldest first
let known = new Set(); // what the stream and the first page may both bring
let next = null; // where the next page begins
let loaded = false; // the first page

const keyOf = (entry) => `${entry.timestamp} ${entry.id} ${entry.event_message}`;
const filters = () => ({ project, min_status: $("status").value, text: $("text").value });
const isLive = () => $("range").value === "live";

export function setUpTail() {
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["range", "status", "from", "to"]) $(id).addEventListener("change", restart);
  $("text").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(restart, 350);
  });
  $("hold").addEventListener("click", () => hold(!held));
  $("newer").addEventListener("click", () => {
    $("lines").scrollTop = 0;
    hold(false);
  });
  $("lines").addEventListener(
    "scroll",
    () => {
      if (!held && $("lines").scrollTop < 4) release();
    },
    { passive: true },
  );
}

export function showTail(chosen) {
  if (chosen === project) return;
  project = chosen;
  restart();
}

export function stopTail() {
  abort?.abort();
  project = "";
  $("entries").replaceChildren();
}

function hold(still) {
  held = still;
  $("hold").setAttribute("aria-pressed", String(still));
  $("hold").textContent = still ? "Go on" : "Pause";
  mode(still ? "held" : "live", still ? "paused" : "live");
  if (!still) release();
}

function mode(name, text) {
  $("pulse").dataset.mode = name;
  if ($("tail-mode").textContent === text) return;
  $("tail-mode").textContent = text;
  say(`Log entries: ${text}`);
}

/** Begin anew: other filters, another range or project. */
export function restart() {
  clearTimeout(typing); // what has been typed is read now: once more would drop what is shown by then
  abort?.abort();
  abort = new AbortController();
  waiting = [];
  known = new Set();
  next = null;
  loaded = false;
  for (const field of document.querySelectorAll(".own")) field.hidden = $("range").value !== "own";
  $("hold").hidden = !isLive();
  for (const id of ["newer", "older"]) $(id).hidden = true;
  $("entries").replaceChildren();
  showState("tail", null);
  if (!project) return;
  if (isLive()) live(abort.signal);
  else {
    mode("range", $("range").value === "own" ? `in ${zoneText()}` : $("range").selectedOptions[0].text.toLowerCase());
    load(bounds(), abort.signal);
  }
}

function bounds() {
  if ($("range").value === "own")
    return { iso_timestamp_start: fieldTime($("from").value), iso_timestamp_end: fieldTime($("to").value) };
  return { iso_timestamp_start: new Date(Date.now() - 60000 * Number($("range").value)).toISOString() };
}

function live(signal) {
  let begun = false;
  const onState = (state, message) => {
    if (state === "live") {
      if (!held) mode("live", "live");
      if (begun && $("entries").children.length) showState("tail", null);
      if (!begun) load({}, signal);
      begun = true;
    } else if (state === "refused") {
      mode("cut", "stopped");
      showState("tail", message, "bad");
    } else {
      mode("cut", state === "missed" ? "live, some left out" : "waiting for the API");
      if (state !== "end") showState("tail", message);
    }
  };
  follow(filters(), { signal, onEntries: add, onState });
}

/** A page of entries, newest first, below what is there. */
async function load(range, signal) {
  try {
    const parameters = { ...filters(), ...range, project_tier: "ENTERPRISE", limit: PAGE, cursor: next ?? "" };
    const answer = await ask("logs.search", parameters, { signal });
    const rows = answer.result.filter((entry) => !known.has(keyOf(entry)));
    if (!loaded) known = new Set(answer.result.map(keyOf));
    loaded = true;
    $("entries").append(...rows.map(row));
    next = answer.next;
    $("older").hidden = next === null;
    $("older").onclick = () => load(range, signal);
    const none = !$("entries").children.length && !waiting.length;
    showState("tail", none ? (next !== null ? NONE_SO_FAR : isLive() ? NONE_YET : NONE_THERE) : null);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Refusal)) throw error;
    showState("tail", error.message, "bad");
  }
}

function add(rows) {
  const fresh = rows.filter((entry) => !known.has(keyOf(entry)));
  if (!loaded) for (const entry of fresh) known.add(keyOf(entry));
  waiting = [...waiting, ...fresh].slice(-MOST_ROWS);
  const isRead = held || $("lines").scrollTop > 4 || $("entries").querySelector("details[open]");
  if (!isRead) release();
  const some = waiting.length >= MOST_ROWS ? `${count(MOST_ROWS)} or more` : count(waiting.length);
  $("newer").textContent = `${some} new ${waiting.length === 1 ? "entry" : "entries"} above`;
  $("newer").hidden = !waiting.length;
}

function release() {
  $("newer").hidden = true;
  if (!waiting.length) return;
  $("entries").prepend(...waiting.reverse().map(row));
  waiting = [];
  showState("tail", null);
  while ($("entries").children.length > MOST_ROWS) $("entries").lastElementChild.remove();
}
