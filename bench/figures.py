"""What a benchmark finds: tables and charts, on what machine, when, and of which commit; kept as JSON."""

import os
import platform
import statistics
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "performance"
Cell = str | int | float | None


class Table(msgspec.Struct):
    """Rows under named columns; the note tells what the figures mean."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""


class Chart(msgspec.Struct):
    """A bar a name, or a line a name where `x` gives the places of its values."""

    name: str
    title: str
    unit: str
    series: dict[str, list[float | None]]
    labels: list[str]
    x: list[float] = []
    logarithmic: bool = False


class Result(msgspec.Struct):
    """One run of one benchmark. `variant` tells runs apart that stand beside each other, such as `1M events`."""

    subject: str
    tables: list[Table]
    charts: list[Chart] = []
    variant: str = ""
    short: bool = False
    machine: str = ""
    date: str = ""
    commit: str = ""


class Options(msgspec.Struct, frozen=True):
    """What the command line asks of a benchmark. Where a number is None the benchmark's own counts."""

    events: int | None = None
    rounds: int | None = None
    minutes: float | None = None
    short: bool = False
    peers: bool = True


def stamped(result: Result, options: Options) -> Result:
    """The result with what is known of where it was found."""
    return msgspec.structs.replace(
        result, short=options.short, machine=_machine(), date=f"{datetime.now(UTC):%Y-%m-%d}", commit=_commit()
    )


def save(result: Result, folder: Path = FOLDER) -> None:
    """Keep a result. Those of the same subject and another variant stay, but never short forms beside full ones."""
    others = load(result.subject, folder)
    results = [old for old in others if old.short == result.short and old.variant != result.variant] + [result]
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / f"{result.subject}.json").write_bytes(text + b"\n")


def load(subject: str, folder: Path = FOLDER) -> list[Result]:
    """The results kept of a subject, in the order in which they were found."""
    file = folder / f"{subject}.json"
    return msgspec.json.decode(file.read_bytes(), type=list[Result]) if file.exists() else []


def median(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-percent * len(ordered) // 100) - 1)]


def how_many(count: int) -> str:
    """A round number in few characters: 200 k, 10 M."""
    for size, letter in ((1_000_000, " M"), (1_000, " k")):
        if count >= size:
            return f"{count / size:g}{letter}"
    return str(count)


def shown(cell: Cell) -> str:
    """A cell's text: three digits that count, and a gap for what was not measured."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if cell < 100 else f"{cell:.0f}"


def _machine() -> str:
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    kilobytes = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return f"{os.cpu_count()} cores of {cpu}, {kilobytes / 1e6:.0f} GB, Python {platform.python_version()}"


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()  # noqa: S607

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "schema", "streams", "api", "ops", "bench")
    return git("rev-parse", "--short", "HEAD") + (" and changes" if changed else "")
