"""`freshet status`: how far each partition is, what was not taken, what has expired, and how large the files are."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import click
from aiokafka.errors import KafkaError

from schema.clock import system_clock
from schema.errors import LogError, StoreMissing
from schema.lag import lag_seconds
from schema.settings import EMBEDDED, Settings
from schema.tables import LIVE_POSITIONS, control_path, current_generation, store_path
from schema.timestamps import datetime_text
from streams.rebuild import LogReader


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: offsets, lag in messages and seconds, gaps as [start, end, noted at in µs], last commit in µs.

    An `end` before the `position` shows a topic that was created anew.
    """

    log: str
    topic: str
    partition: int
    position: int
    end: int
    lag: int
    lag_seconds: float
    gaps: list[list[int]]
    last_commit: int


@dataclass(frozen=True, slots=True)
class Status:
    """All that `freshet status --json` prints. Times in µs since the epoch, sizes in bytes."""

    generation: int
    now: int
    broker: str
    partitions: list[PartitionStatus]
    rejects: dict[str, int]
    retried: dict[str, int]
    counters: dict[str, dict[str, int]]
    horizons: dict[str, int]
    files: dict[str, int]


def read_status(settings: Settings) -> Status:
    """Look at the current generation, read-only, and at the broker, if it answers.

    Raises StoreMissing before a worker has run.
    """
    if not control_path(settings.data).exists():
        raise StoreMissing(f"there is no database in {settings.data} yet: start a worker")
    generation = current_generation(settings.data)
    path = store_path(settings.data, generation)
    if not path.exists():
        raise StoreMissing(f"{path} is not there yet: start a worker")
    now = system_clock()
    ends, broker = _ends(settings)
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
        db.execute("BEGIN")
        partitions = [_partition(row, ends, now) for row in db.execute(_POSITIONS)]
        counters: dict[str, dict[str, int]] = {}
        for topic, name, count in db.execute("SELECT topic, name, count FROM counters ORDER BY topic, name"):
            counters.setdefault(topic, {})[name] = count
        horizons = {
            f"{kind}.{grain}" if grain else kind: horizon
            for kind, grain, horizon in db.execute("SELECT kind, grain, horizon FROM horizons ORDER BY kind, grain")
        }
    rejects, retried = _by_reason(counters, "reject."), _by_reason(counters, "retried.")
    files = {file.name: file.stat().st_size for file in sorted(settings.data.glob("*.db*"))}
    return Status(generation, now, broker, partitions, rejects, retried, counters, horizons, files)


def show_status(status: Status, as_json: bool) -> None:
    """Print a status for people, or as JSON."""
    if as_json:
        click.echo(json.dumps(asdict(status)))
        return
    click.echo(f"generation {status.generation}, broker {status.broker}")
    click.echo(f"{'partition':40} {'position':>14} {'end':>14} {'lag':>10} {'behind':>10}  last commit")
    for place in status.partitions:
        name = f"{place.topic}[{place.partition}]"
        behind, commit = f"{place.lag_seconds:,.1f} s", datetime_text(place.last_commit)
        click.echo(f"{name:40} {place.position:14,} {place.end:14,} {place.lag:10,} {behind:>10}  {commit}")
        if place.end < place.position:
            click.echo(f"  the log ends before the position: created anew? See freshet accept-recreated {place.topic}")
        for start, end, noted_at in place.gaps:
            click.echo(f"  gap: offsets {start:,} to {end - 1:,} were gone from the log at {datetime_text(noted_at)}")
    retried = [("of these folded by a retry", status.retried)] if status.retried else []
    again = {topic: names["duplicate"] for topic, names in status.counters.items() if "duplicate" in names}
    shown = (("rejects", status.rejects), *retried, ("duplicates", again), ("bytes", status.files))
    for title, values in shown:
        click.echo(f"{title}: " + (", ".join(f"{name} {value:,}" for name, value in values.items()) or "none"))
    kept = ", ".join(f"{kind} {datetime_text(horizon)}" for kind, horizon in status.horizons.items())
    click.echo(f"kept from: {kept or 'the beginning'}")


_POSITIONS = f"""
SELECT log, topic, partition, next_offset, end_offset, last_timestamp, gaps, applied_at FROM ({LIVE_POSITIONS})
"""  # noqa: S608  # a query of our own


def _by_reason(counters: Mapping[str, Mapping[str, int]], prefix: str) -> dict[str, int]:
    """Counters of all topics together whose names begin so, by the rest of their names."""
    sums: Counter[str] = Counter()
    for of_topic in counters.values():
        sums.update({name.removeprefix(prefix): n for name, n in of_topic.items() if name.startswith(prefix)})
    return dict(sums)


def _partition(row: tuple[Any, ...], ends: dict[tuple[str, int], int], now: int) -> PartitionStatus:
    log, topic, partition, position, stored_end, last_timestamp, gaps, applied_at = row
    end = ends.get((topic, partition), max(position, stored_end))
    behind = lag_seconds(now, position, end, last_timestamp, applied_at)
    lag = max(0, end - position)
    return PartitionStatus(log, topic, partition, position, end, lag, behind, json.loads(gaps), applied_at)


def _ends(settings: Settings) -> tuple[dict[tuple[str, int], int], str]:
    """The ends of all partitions, and how the broker is called; none where it does not answer or can't be asked."""
    if settings.broker == EMBEDDED:
        return {}, "embedded (ends as a worker last saw them)"
    try:
        return asyncio.run(_ask(settings)), settings.broker
    except (KafkaError, LogError) as error:
        return {}, f"{settings.broker} does not answer ({error}); ends as a worker last saw them"


async def _ask(settings: Settings) -> dict[tuple[str, int], int]:
    async with LogReader(settings) as reader:
        found: dict[tuple[str, int], int] = {}
        for topic in (settings.topic_edge, settings.topic_functions):
            ends = await reader.ends(await reader.partitions(topic))
            found |= {(tp.topic, tp.partition): end for tp, end in ends.items()}
        return found
