// The log panel: live, or a range of time; filters; held still while it is read.

import { row } from "./entries.js";
import { count, fieldTime, zoneText } from "./format.js";
import { $, say, showState } from "./page.js";
import { Refusal, ask } from "./session.js";
import { follow } from "./stream.js";

const MOST_ROWS = 500;
const PAGE = 50;
let project = "", abort = null, waiting = [], held = false, next = null, shown = new Set(), typing;

const keyOf = (entry) => `${entry.timestamp} ${entry.id} ${entry.event_message}`;
const filters = () => ({ project, min_status: $("status").value, text: $("text").value });

export function setUpTail() {
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["range", "status", "from", "to"]) $(id).addEventListener("change", () => restart());
  $("text").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(restart, 350); });
  $("hold").addEventListener("click", () => hold(!held));
  $("newer").addEventListener("click", () => { $("lines").scrollTop = 0; hold(false); release(); });
  $("older").addEventListener("click", () => older());
  $("lines").addEventListener("scroll", () => { if (!held && $("lines").scrollTop < 4) release(); }, { passive: true });
}

export function showTail(chosen) {
  if (chosen !== project) {
    project = chosen;
    restart();
  }
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
  if ($("range").value !== "live" && name !== "range") return;
  $("pulse").dataset.mode = name;
  if ($("tail-mode").textContent !== text) {
    $("tail-mode").textContent = text;
    if (name !== "live" || !held) say(`Log entries: ${text}`);
  }
}

/** Begin anew: other filters, another range or project. */
export function restart() {
  abort?.abort();
  abort = new AbortController();
  waiting = [];
  shown = new Set();
  next = null;
  const own = $("range").value === "own";
  for (const field of document.querySelectorAll(".own")) field.hidden = !own;
  const live = $("range").value === "live";
  $("hold").hidden = !live;
  for (const id of ["newer", "older"]) $(id).hidden = true;
  $("entries").replaceChildren();
  showState("tail", null);
  if (!project) return;
  if (live) {
    let loaded = false;
    const { signal } = abort;
    follow(filters(), {
      signal,
      onEntries: (rows) => add(rows),
      onState: (state, message) => {
        if (state === "live") {
          if (!held) mode("live", "live");
          if (!loaded) { loaded = true; load({}, signal, true); } else if (shown.size || $("entries").children.length) showState("tail", null);
        } else if (state === "refused") { mode("cut", "stopped"); showState("tail", message, "bad"); }
        else { mode("cut", state === "missed" ? "live, some left out" : "waiting for the API"); if (state !== "end") showState("tail", `${message}.`.replace("..", "."), "note"); }
      },
    });
  } else {
    mode("range", own ? `in ${zoneText()}` : $("range").selectedOptions[0].textContent.toLowerCase());
    load(bounds(), abort.signal, false);
  }
}

function bounds() {
  if ($("range").value !== "own") return { iso_timestamp_start: new Date(Date.now() - 60000 * Number($("range").value)).toISOString() };
  return { iso_timestamp_start: fieldTime($("from").value), iso_timestamp_end: fieldTime($("to").value) };
}

/** A page of entries, newest first, below what is there. */
async function load(range, signal, live) {
  try {
    const parameters = { ...filters(), ...range, project_tier: "ENTERPRISE", limit: PAGE };
    const answer = await ask("logs.search", { ...parameters, cursor: next ?? "" }, { signal });
    const already = new Set(live ? waiting.map(keyOf).concat([...shown]) : []);
    const rows = answer.result.filter((entry) => !already.has(keyOf(entry)));
    if (live) shown = new Set([...shown, ...rows.map(keyOf)]);
    $("entries").append(...rows.map(row));
    next = answer.next;
    $("older").hidden = next === null;
    $("older").onclick = () => load(range, signal, false);
    const none = !$("entries").children.length;
    if (none) showState("tail", live ? "Nothing yet. Entries show here as they come; any of the last 90 days would be here already." : "No entries in this range with these filters. Widen the one or the others.");
    if (none && next !== null) showState("tail", "None found so far. “Older entries” looks further back.");
    if (!none) showState("tail", null);
  } catch (error) {
    if (signal.aborted) return;
    showState("tail", error instanceof Refusal ? error.message : "The entries can’t be shown: see the browser’s console.", "bad");
    if (!(error instanceof Refusal)) throw error;
  }
}

const older = () => {};

function add(rows) {
  waiting.push(...rows.filter((entry) => !shown.has(keyOf(entry))));
  if (waiting.length > MOST_ROWS) waiting = waiting.slice(-MOST_ROWS);
  const reading = held || $("lines").scrollTop > 4 || $("entries").querySelector("details[open]");
  if (!reading) release();
  $("newer").hidden = !waiting.length;
  $("newer").textContent = `${waiting.length >= MOST_ROWS ? `${count(MOST_ROWS)} or more` : count(waiting.length)} new ${waiting.length === 1 ? "entry" : "entries"} above`;
}

function release() {
  $("newer").hidden = true;
  if (!waiting.length) return;
  $("entries").prepend(...waiting.reverse().map(row));
  waiting = [];
  showState("tail", null);
  while ($("entries").children.length > MOST_ROWS) $("entries").lastElementChild.remove();
}
