// The intervals to choose from, and what each means to the two kinds of statistics: bucket length in s, and how many.

export const INTERVALS = {
  "5min": { label: "5 min", invocations: [1, 300], families: ["15min", 60, 15, "last 15 minutes, the shortest"] },
  "15min": { label: "15 min", invocations: [60, 15], families: ["15min", 60, 15] },
  "1hr": { label: "1 h", invocations: [60, 60], families: ["1hr", 60, 60] },
  "1day": { label: "1 day", invocations: [3600, 24], families: ["1day", 3600, 24] },
  "7day": { label: "7 days", invocations: [86400, 7], families: ["7day", 86400, 7] },
};

const GRAINS = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const SPANS = {
  "5min": "last 5 minutes",
  "15min": "last 15 minutes",
  "1hr": "last hour",
  "1day": "last day",
  "7day": "last 7 days",
};

/** What a panel's head says of an interval: “last hour, by minute”. */
export function spanText(interval, grain, instead) {
  return `${instead ?? SPANS[interval]}, by ${GRAINS[grain]}${grain === 86400 ? " (UTC)" : ""}`;
}
