// uPlot with this page's colours and units: columns, stacked columns and lines over time.

import { $ } from "./page.js";
import { bucket, compact, zone } from "./format.js";

/* global uPlot */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const font = (size) => `${size}px ${getComputedStyle(document.body).fontFamily}`;

/** One chart in one element; `draw` may be called as often as there are answers. */
export class Chart {
  /** `series`: {label, colour, kind: "columns" | "line"}; `unit` is the axis's; `read` gets {time, values} or null. */
  constructor(id, { series, unit, stacked = false, read = () => {} }) {
    Object.assign(this, { box: $(id), series, unit, stacked, read, plot: null, data: null, grain: 60 });
    new ResizeObserver(() => this.resize()).observe(this.box);
    addEventListener("freshet-theme", () => this.rebuild());
  }

  /** `rows`: [times in s, values of the first series, …]; `grain`: a bucket's length in s; `summary`: in words. */
  draw(rows, grain, summary) {
    const same = this.plot && this.grain === grain && this.zone === zone();
    this.rows = rows;
    this.grain = grain;
    this.data = this.stacked ? [rows[0], ...stack(rows.slice(1))] : rows;
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", summary);
    if (same) this.plot.setData(this.data);
    else this.rebuild();
  }

  rebuild() {
    if (!this.data || !this.box.clientWidth) return;
    this.plot?.destroy();
    this.zone = zone();
    this.plot = new uPlot(this.options(), this.data, this.box);
  }

  resize() {
    if (!this.plot) this.rebuild();
    else if (
      this.box.clientWidth &&
      (this.box.clientWidth !== this.plot.width || this.box.clientHeight !== this.plot.height)
    )
      this.plot.setSize({ width: this.box.clientWidth, height: this.box.clientHeight });
  }

  options() {
    const half = this.grain / 2;
    const columns = this.series.some(({ kind }) => kind === "columns");
    const axis = {
      stroke: colour("muted"),
      font: font(12),
      grid: { stroke: colour("grid"), width: 1 },
      ticks: { show: false },
    };
    return {
      width: this.box.clientWidth,
      height: this.box.clientHeight,
      padding: [8, 22, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { show: !columns, size: 7 } },
      tzDate: (seconds) =>
        zone() === "utc" || this.grain >= 86400
          ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC")
          : new Date(seconds * 1000),
      scales: {
        x: { time: true, range: (_, min, max) => [min - half, max + half] },
        y: { range: (_, __, max) => [0, Math.max(max * 1.08, columns ? 4 : 1)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          space: 72,
          size: 30,
          values: (_, ticks) =>
            ticks.map((tick) => bucket(tick, this.grain >= 86400 ? 86400 : this.grain < 60 ? 1 : 60)),
        },
        {
          ...axis,
          label: this.unit,
          labelFont: font(12),
          labelSize: 18,
          labelGap: 0,
          size: 52,
          space: 34,
          values: (_, ticks) => ticks.map((tick) => (tick % 1 ? "" : compact(tick))),
        },
      ],
      series: [{}, ...(this.stacked ? [...this.series].reverse() : this.series).map((one) => this.look(one))],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    };
  }

  look({ label, colour: name, kind }) {
    if (kind === "line")
      return {
        label,
        stroke: colour(name),
        width: 2,
        dash: name === "p99" ? [2, 3] : name === "p95" ? [7, 4] : undefined,
        spanGaps: true,
        points: { size: 5, show: this.data[0].length <= 60, fill: colour(name) },
      };
    const isNarrow = this.box.clientWidth / this.data[0].length < 6; // no room for gaps and outlines
    return {
      label,
      stroke: isNarrow ? undefined : colour("surface"),
      width: isNarrow ? 0 : 1,
      fill: colour(name),
      paths: uPlot.paths.bars({ size: isNarrow ? [1] : [0.86, 44], radius: 0 }),
      points: { show: false },
    };
  }

  point(index) {
    this.read(
      index == null
        ? null
        : { time: bucket(this.rows[0][index], this.grain), values: this.rows.slice(1).map((series) => series[index]) },
    );
  }
}

/** Series as sums of themselves and those before, the largest first: each is drawn over the one that it stands on. */
function stack(series) {
  const sums = [];
  for (const values of series) {
    const below = sums.at(-1);
    sums.push(values.map((value, index) => (value ?? 0) + (below ? below[index] : 0)));
  }
  return sums.reverse();
}

/** Rows that leave out empty buckets, as full columns: [times, …columns]; `empty` stands where there is no row. */
export function columnsOf(rows, times, names, empty = 0) {
  const found = new Map(rows);
  return [times, ...names.map((name) => times.map((at) => found.get(at)?.[name] ?? empty))];
}

/** The starts of all buckets of a span that ends now, in s; `at` is now in s. */
export function bucketTimes(at, grain, count) {
  const last = at - (at % grain);
  return Array.from({ length: count + 1 }, (_, index) => last - (count - index) * grain);
}
