"""Charts as SVG: bars, one a label and series, or lines over x. Plain text, no scripts, nothing from elsewhere."""

import math
from collections.abc import Callable, Iterable
from xml.sax.saxutils import escape

from bench.figures import Chart, shown

_COLOURS = ("#1b6ca8", "#e08e2b", "#5a9e4b", "#b3475b", "#7a5fa8", "#6b7280")
_WIDTH, _LEFT, _RIGHT, _TOP = 820, 270, 90, 46
_BAR, _GAP, _LINES_HEIGHT = 16, 10, 260


def draw(chart: Chart) -> str:
    """The chart's picture."""
    return _lines(chart) if chart.x else _bars(chart)


def _bars(chart: Chart) -> str:
    scale = _scale([value for values in chart.series.values() for value in values if value], chart.logarithmic)
    parts: list[str] = []
    y = float(_TOP)
    for number, label in enumerate(chart.labels):
        group = _BAR * len(chart.series)
        parts.append(_text(_LEFT - 8, y + group / 2 + 4, label, "end"))
        for (_, values), colour in zip(chart.series.items(), _COLOURS, strict=False):
            value = values[number]
            width = (_WIDTH - _LEFT - _RIGHT) * (scale(value) if value else 0)
            parts.append(f'<rect x="{_LEFT}" y="{y:.0f}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            parts.append(_text(_LEFT + width + 5, y + 11, shown(value)))
            y += _BAR
        y += _GAP
    return _picture(chart, y, parts)


def _lines(chart: Chart) -> str:
    values = [value for series in chart.series.values() for value in series if value is not None]
    highest, last = max(values) * 1.1, max(chart.x) or 1.0
    left, width, bottom = 60, _WIDTH - 60 - _RIGHT, _TOP + _LINES_HEIGHT

    def place(x: float, value: float) -> str:
        return f"{left + width * x / last:.1f},{bottom - _LINES_HEIGHT * value / highest:.1f}"

    parts = [f'<path d="M{left},{_TOP} V{bottom} H{left + width}" stroke="#999" fill="none"/>']
    parts += [_text(left - 6, _TOP + 4, shown(highest), "end"), _text(left - 6, bottom, "0", "end")]
    parts.append(_text(left + width, bottom + 16, shown(last), "end"))
    for (_, series), colour in zip(chart.series.items(), _COLOURS, strict=False):
        points = " ".join(place(x, value) for x, value in zip(chart.x, series, strict=True) if value is not None)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return _picture(chart, bottom + 24, parts)


def _picture(chart: Chart, height: float, parts: Iterable[str]) -> str:
    legend: list[str] = []
    x = 12.0
    for name, colour in zip(chart.series, _COLOURS, strict=False):
        if len(chart.series) > 1:
            legend.append(f'<rect x="{x:.0f}" y="{height:.0f}" width="12" height="12" fill="{colour}"/>')
            legend.append(_text(x + 17, height + 10, name))
            x += 40 + 7 * len(name)
    height += 24 if legend else 0
    scale = " (logarithmic)" if chart.logarithmic else ""
    title = (
        f'<text x="12" y="24" font-size="15" font-weight="bold">{escape(f"{chart.title}, {chart.unit}{scale}")}</text>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}"'
    return "\n".join(
        [
            f'{head} font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            title,
            *parts,
            *legend,
            "</svg>\n",
        ]
    )


def _scale(values: list[float], logarithmic: bool) -> Callable[[float], float]:
    """From a value to its part of the width."""
    largest = max(values, default=1.0)
    if not logarithmic:
        return lambda value: value / largest
    low = math.floor(math.log10(min(values, default=1.0)))
    span = math.log10(largest) - low or 1.0
    return lambda value: (math.log10(value) - low) / span


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
