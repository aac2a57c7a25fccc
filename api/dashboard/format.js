// Numbers and times as people read them. Times come in µs since the epoch; the zone is local or UTC, and stated.

const number = new Intl.NumberFormat("en-GB");
const short = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 });
const ZONE = "freshet.zone";

export const zone = () => sessionStorage.getItem(ZONE) || "local";
export const setZone = (name) => sessionStorage.setItem(ZONE, name);

export function zoneText() {
  return zone() === "utc"
    ? "UTC"
    : `local time (${Intl.DateTimeFormat().resolvedOptions().timeZone || "unknown zone"})`;
}

export const count = (value) => number.format(value);
export const compact = (value) => short.format(value);

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? number.format(Math.round(value)) : number.format(Math.round(value * 10) / 10);
}

export function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(part && part / whole < 0.1 ? 2 : 1)} %` : "–";
}

const parts = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

function formatter(options) {
  return new Intl.DateTimeFormat("en-GB", { ...options, ...(zone() === "utc" ? { timeZone: "UTC" } : {}) });
}

/** 12:31:04.213, with the day in front where it is not today's. */
export function time(micros, now = Date.now()) {
  const date = new Date(Math.floor(micros / 1000));
  const day = formatter({ day: "2-digit", month: "short" });
  const clock = `${formatter(parts).format(date)}.${String(Math.floor(micros / 1000) % 1000).padStart(3, "0")}`;
  return day.format(date) === day.format(new Date(now)) ? clock : `${day.format(date)} ${clock}`;
}

/** A bucket's start in a chart's legend: to the second, the minute or the day, as its grain is. */
export function bucket(seconds, grain) {
  const day = { day: "2-digit", month: "short" };
  const options =
    grain >= 86400
      ? { weekday: "short", ...day }
      : grain >= 3600
        ? { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
        : grain >= 60
          ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
          : parts;
  return formatter(grain >= 86400 ? { ...options, timeZone: "UTC" } : options).format(new Date(seconds * 1000));
}

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

/** What a datetime-local field says, in the zone that is shown, as ISO 8601 in UTC; empty where it says nothing. */
export function fieldTime(text) {
  if (!text) return "";
  const date = new Date(zone() === "utc" ? `${text}Z` : text);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}
