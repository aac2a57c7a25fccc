// API requests by family, stacked over time.

import { Chart, bucketTimes, columnsOf } from "./charts.js";
import { count } from "./format.js";
import { INTERVALS, spanText } from "./intervals.js";
import { $, showState, showTotals } from "./page.js";
import { ask } from "./session.js";

const FAMILIES = ["rest", "auth", "storage", "realtime"];
const NAMES = { rest: "REST", auth: "Auth", storage: "Storage", realtime: "Realtime" };
let chart, whole;

export function setUpFamilies() {
  const series = FAMILIES.map((name) => ({ label: NAMES[name], colour: name, kind: "columns" }));
  chart = new Chart("families-chart", { series, unit: "requests", stacked: true, read: point });
}

/** A text as a pattern that finds it alone. */
const quoted = (text) =>
  text.replace(/[^A-Za-z0-9_]/g, (character) => (character.charCodeAt(0) < 128 ? `\\${character}` : character));

export async function showFamilies(project, interval, signal) {
  const [word, grain, length, instead] = INTERVALS[interval].families;
  $("families-span").textContent = spanText(interval, grain, instead);
  const answer = await ask("usage.api-counts", { project: quoted(project), interval: word }, { signal });
  const names = FAMILIES.map((name) => `total_${name}_requests`);
  const totals = names.map((name) => answer.result.reduce((sum, row) => sum + row[name], 0));
  if (!totals.some(Boolean)) {
    showState(
      "families",
      "No API requests in this interval. Choose a longer one, or see that the edge’s logs reach the topic.",
    );
    return answer;
  }
  showState("families", null);
  const rows = answer.result.map((row) => [
    Date.parse(`${row.timestamp.replace(" ", "T").replace(/Z?$/, "")}Z`) / 1000,
    row,
  ]);
  const at = bucketTimes(Math.floor((answer.server || Date.now()) / 1000), grain, length);
  whole = FAMILIES.map((name, index) => [NAMES[name], count(totals[index]), name]);
  showTotals($("families-totals"), whole);
  chart.draw(
    columnsOf(rows, at, names),
    grain,
    `API requests over time. ${whole.map(([name, total]) => `${name} ${total}`).join(", ")}`,
  );
  return answer;
}

function point(at) {
  if (!whole) return;
  showTotals(
    $("families-totals"),
    whole.map(([name, total, swatch], index) => [name, at ? count(at.values[index] ?? 0) : total, swatch]),
  );
  $("families-totals").dataset.at = at ? at.time : "";
}
