// Invocation statistics: how many over time and how many failed, how long they took, and the same by function.

import { Chart, bucketTimes, columnsOf } from "./charts.js";
import { count, milliseconds, percent } from "./format.js";
import { INTERVALS, spanText } from "./intervals.js";
import { $, make, showState, showTotals } from "./page.js";
import { ask } from "./session.js";
import { visible } from "./visible.js";

let counts, times, whole;

export function setUpInvocations() {
  const columns = [
    { label: "invocations", colour: "current", kind: "columns" },
    { label: "errors", colour: "alert", kind: "columns" },
  ];
  const lines = ["avg", "p95", "p99"].map((name) => ({ label: name, colour: name, kind: "line" }));
  counts = new Chart("counts-chart", { series: columns, unit: "invocations", read: (at) => point(at, 0) });
  times = new Chart("times-chart", { series: lines, unit: "ms", read: (at) => point(at, 1) });
}

export async function showInvocations(project, interval, signal) {
  const [grain, length] = INTERVALS[interval].invocations;
  $("invocations-span").textContent = spanText(interval, grain);
  const [over, by] = await Promise.all([
    ask("functions.invocation-stats", { project, interval }, { signal }),
    ask("functions.statistics", { project, interval }, { signal }),
  ]);
  const all = by.result.find((row) => row.function_id === null);
  if (!over.result.length) {
    const nothing =
      "No invocations in this interval. Choose a longer one, or see that the functions’ logs reach the topic.";
    for (const panel of ["invocations", "functions"]) showState(panel, nothing);
    return over;
  }
  for (const panel of ["invocations", "functions"]) showState(panel, null);
  const rows = over.result.map((row) => [row.timestamp / 1e6, row]);
  const at = bucketTimes(Math.floor((over.server || Date.now()) / 1000), grain, length);
  whole = [
    ["Invocations", count(all?.count ?? 0), "current"],
    ["Errors", `${count(all?.error_count ?? 0)} · ${percent(all?.error_count ?? 0, all?.count)}`, "alert"],
    ["Average", `${milliseconds(all?.avg_execution_time)} ms`, "avg"],
    ["p95", `${milliseconds(all?.p95_execution_time)} ms`, "p95"],
    ["p99", `${milliseconds(all?.p99_execution_time)} ms`, "p99"],
  ];
  showTotals($("invocations-totals"), whole);
  const said = whole.map(([term, value]) => `${term} ${value}`).join(", ");
  counts.draw(columnsOf(rows, at, ["count", "error_count"]), grain, `Invocations and errors over time. ${said}`);
  times.draw(
    columnsOf(rows, at, ["avg_execution_time", "p95_execution_time", "p99_execution_time"], null),
    grain,
    `Execution times over time in ms. ${said}`,
  );
  showFunctions(by.result.filter((row) => row.function_id !== null));
  return over;
}

/** Under the pointer: one bucket's values in place of the whole interval's. */
function point(at, chart) {
  if (!whole) return;
  const values = at?.values ?? [];
  const shown = whole.map(([term, value, swatch], index) => {
    if (!at || index < 2 !== (chart === 0)) return [term, value, swatch];
    return [term, chart ? `${milliseconds(values[index - 2])} ms` : count(values[index] ?? 0), swatch];
  });
  showTotals($("invocations-totals"), shown);
  $("invocations-totals").dataset.at = at ? at.time : "";
}

function showFunctions(rows) {
  const most = Math.max(1, ...rows.map((row) => row.count));
  $("functions-rows").replaceChildren(
    ...rows.map((row) => {
      const name = make(
        "th",
        { scope: "row" },
        make("span", { className: "name" }, visible(row.function_id, { longest: 120 })),
      );
      const meter = make("span", { className: "share" });
      meter.style.setProperty("--share", `${(100 * row.count) / most}%`);
      name.append(meter);
      const errors = make(
        "td",
        { className: row.error_count ? "bad" : "" },
        row.error_count ? `${count(row.error_count)} · ${percent(row.error_count, row.count)}` : "0",
      );
      const timesOf = ["avg", "p50", "p95", "p99", "max"].map((column) =>
        make("td", {}, milliseconds(row[`${column}_execution_time`])),
      );
      return make("tr", {}, name, make("td", {}, count(row.count)), errors, ...timesOf);
    }),
  );
}
