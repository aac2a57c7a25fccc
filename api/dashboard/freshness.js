// How fresh what is shown is: up to when all was applied, how far the workers are behind, how old the answers are.

import { compact, count, duration, time } from "./format.js";
import { $, make, showState } from "./page.js";
import { get } from "./session.js";
import { visible } from "./visible.js";

const SPAN = 60; // seconds on the gauge
let latest = null,
  waiting = 0;

/** Note an answer: `complete` and `server` in ms. */
export function noteAnswer(answer) {
  if (answer) latest = answer;
}

/** Every moment: the times that pass. */
export function tick() {
  if (!latest) return;
  const passed = (Date.now() - latest.received) / 1000;
  const age = latest.age + passed;
  $("age").textContent = duration(age);
  if (Number.isNaN(latest.complete)) {
    $("complete").textContent = "not told yet";
    return;
  }
  // The server's clock has whole seconds, so nothing is told from a difference of less.
  const behind = Math.max(0, Math.max(0, (latest.server - latest.complete) / 1000) + passed);
  const said = waiting || behind < SPAN / 4 ? `${duration(behind)} ago` : `${duration(behind)} ago, nothing since`;
  $("complete").replaceChildren(time(latest.complete * 1000), make("small", {}, said));
  $("water").style.setProperty("--level", `${Math.max(0, 100 - (100 * behind) / SPAN)}%`);
  $("gauge").classList.toggle("late", waiting > 0 && behind > SPAN);
  $("gauge").setAttribute("aria-label", `Complete up to ${duration(behind)} ago`);
}

/** Samples of Prometheus’ text form by metric: [labels, value] each. */
export function samples(text) {
  const found = new Map();
  for (const [, name, labels, value] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? (\S+)$/gm)) {
    const named = Object.fromEntries(
      [...(labels ?? "").matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, said]) => [
        label,
        said.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)),
      ]),
    );
    found.set(name, [...(found.get(name) ?? []), [named, Number(value)]]);
  }
  return found;
}

/** `seesRejects`: a key without any scope is told what was retried too; others see Prometheus’ counters. */
export async function showMetrics(signal, seesRejects) {
  const found = samples(await (await get("metrics", { signal })).text());
  const values = (name) => (found.get(name) ?? []).map(([, value]) => value);
  const sum = (name) => values(name).reduce((total, value) => total + value, 0);
  const lag = sum("freshet_lag_messages");
  const seconds = Math.max(0, ...values("freshet_lag_seconds"));
  waiting = lag || seconds; // seconds without messages: no worker looks whether there are any
  $("lag").replaceChildren(
    waiting && !lag ? "unknown" : `${count(lag)} ${lag === 1 ? "message" : "messages"}`,
    ...(waiting ? [make("small", {}, `${lag ? "" : "no worker for "}${duration(seconds)}`)] : []),
  );
  const events = sum("freshet_events_total");
  $("events").replaceChildren(compact(events), make("small", {}, `${count(sum("freshet_messages_total"))} messages`));
  const counters = (found.get("freshet_rejects_total") ?? []).map(([labels, value]) => ({ ...labels, count: value }));
  if (!seesRejects) return showRejects(counters);
  showRejects((await (await get("api/rejects", { parameters: { limit: 1 }, signal })).json()).counts);
}

const WHY = {
  not_json: "not JSON",
  not_utf8: "not UTF-8",
  too_deep: "nested too deep",
  not_object: "not an object",
  too_large: "too large",
  bad_timestamp: "no time that can be read",
  no_project: "no project",
  future: "too far in the future",
};

function showRejects(rows) {
  const told = rows.filter((row) => row.count).sort((one, other) => other.count - one.count);
  showState("rejects", told.length ? null : "Nothing was rejected: every event could be read.", "good");
  const most = Math.max(1, ...told.map((row) => row.count));
  $("rejects-rows").replaceChildren(
    ...told.map((row) => {
      const bar = make("i");
      bar.style.setProperty("--share", `${(100 * row.count) / most}%`);
      const reason = make(
        "span",
        { className: "reason" },
        WHY[row.reason] ?? "",
        make("code", {}, visible(row.reason, { longest: 60 })),
      );
      return make(
        "li",
        {},
        reason,
        make(
          "span",
          { className: "topic" },
          visible(row.topic, { longest: 80 }),
          row.retried ? ` · ${count(row.retried)} retried since` : "",
        ),
        make("b", {}, count(row.count)),
        bar,
      );
    }),
  );
}
