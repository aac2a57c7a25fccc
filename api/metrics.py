"""`GET /metrics`: how the stream stands and what all processes on the data folder do, in Prometheus' text form.

It needs no key, and names no project. Every process of the API answers the same: the store of the current generation
says how the stream stands, and the rest is the sum over all processes (schema/meters.py).
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw
from falcon.asgi import Request, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.databases import ControlReader, open_database
from schema.clock import Clock
from schema.lag import lag_seconds
from schema.meters import collect, latest_look
from schema.tables import LIVE_POSITIONS, store_migrations, store_path
from schema.timestamps import SECOND

_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_PLACE = ("topic", "partition")
_LAG = "Age of the last record applied, 0 at the end; without a living worker, the time since one last looked"


class Metrics:
    """Answers GET from a store opened for each scrape."""

    needs = None  # no key

    def __init__(self, data: Path, clock: Clock) -> None:
        self._data, self._clock = data, clock

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with all metrics. Raises StoreMissing before the first worker has run."""
        response.data = await asyncio.to_thread(self._scrape)
        response.content_type = _PLAIN

    on_head = on_get

    def _scrape(self) -> bytes:
        with closing(ControlReader(self._data)) as control:
            generation = control.generation()
        path = store_path(self._data, generation)
        counted = collect(self._data)
        with closing(open_database(path, store_migrations)) as db:
            registry = CollectorRegistry()
            registry.register(StoreCollector(db, generation, path.stat().st_size, self._clock(), latest_look(counted)))
            registry.register(ProcessCollector(counted))
            return generate_latest(registry)


class ProcessCollector(Collector):
    """What the processes have counted, summed up already."""

    def __init__(self, counted: Sequence[Metric]) -> None:
        self._counted = counted

    def collect(self) -> Sequence[Metric]:
        """All families."""
        return self._counted


class StoreCollector(Collector):
    """The metrics of one store as of `now` (µs).

    `size` is its file's, in bytes; `looked_at` when a worker last fetched, in s.
    """

    def __init__(
        self, db: apsw.Connection, generation: int, size: int, now: int, looked_at: float | None = None
    ) -> None:
        self._db, self._generation, self._size, self._now, self._looked_at = db, generation, size, now, looked_at

    def collect(self) -> Iterator[Metric]:
        """All families, from one state of the store."""
        self._db.execute("BEGIN")
        yield GaugeMetricFamily("freshet_generation", "The generation that answers", self._generation)
        yield GaugeMetricFamily("freshet_store_bytes", "Size of its database", self._size)
        yield from self._partitions()
        yield from self._counters()
        horizon = GaugeMetricFamily(
            "freshet_horizon_timestamp_seconds", "What is older has expired", labels=("table", "grain")
        )
        for kind, grain, micros in self._db.execute("SELECT kind, grain, horizon FROM horizons"):
            horizon.add_metric((kind, str(grain)), micros / SECOND)
        yield horizon

    def _partitions(self) -> Iterator[Metric]:
        position = GaugeMetricFamily("freshet_position_offset", "The next offset to apply", labels=_PLACE)
        end = GaugeMetricFamily("freshet_log_end_offset", "The log's end as a worker last saw it", labels=_PLACE)
        lag = GaugeMetricFamily("freshet_lag_messages", "Offsets not applied yet", labels=_PLACE)
        behind = GaugeMetricFamily("freshet_lag_seconds", _LAG, labels=_PLACE)
        commit = GaugeMetricFamily("freshet_last_commit_timestamp_seconds", "When a batch was applied", labels=_PLACE)
        gaps = CounterMetricFamily("freshet_gaps", "Times that a log was cut past the position", labels=_PLACE)
        lost = CounterMetricFamily("freshet_gap_offsets", "Offsets that the log lost by that", labels=_PLACE)
        for topic, partition, next_offset, end_offset, last, noted, applied_at in self._db.execute(_PARTITIONS):
            place = topic, str(partition)
            cuts = json.loads(noted)
            position.add_metric(place, next_offset)
            end.add_metric(place, end_offset)
            lag.add_metric(place, max(0, end_offset - next_offset))
            behind.add_metric(place, lag_seconds(self._now, next_offset, end_offset, last, applied_at, self._looked_at))
            commit.add_metric(place, applied_at / SECOND)
            gaps.add_metric(place, len(cuts))
            lost.add_metric(place, sum(stop - start for start, stop, _ in cuts))
        yield from (position, end, lag, behind, commit, gaps, lost)

    def _counters(self) -> Iterator[Metric]:
        families = {
            prefix: CounterMetricFamily(f"freshet_{name}", text, labels=("topic", label) if label else ("topic",))
            for prefix, (name, label, text) in _COUNTERS.items()
        }
        for topic, name, count in self._db.execute("SELECT topic, name, count FROM counters"):
            prefix, _, rest = name.partition(".")
            family = families[prefix if prefix in _COUNTERS else ""]
            family.add_metric((topic, rest or name) if prefix not in _UNLABELLED else (topic,), count)
        yield from families.values()


_COUNTERS = {
    "messages": ("messages", "", "Records applied"),
    "events": ("events", "", "Events in them"),
    "reject": ("rejects", "reason", "Elements that were not taken"),
    "retried": ("retried_rejects", "reason", "Of these elements, those that a retry has folded since"),
    "unreadable": ("unreadable_fields", "field", "Fields of events that counted as absent"),
    "expired": ("expired", "table", "Parts of events that came too late for a table"),
    "": ("skipped", "reason", "Messages and elements that mean nothing"),
}
"""By the first part of a counter's name: a metric, what the rest of the name is to it, and its help."""
_UNLABELLED = frozenset(name for name, (_, label, _) in _COUNTERS.items() if not label)
_PARTITIONS = f"""
SELECT topic, partition, next_offset, end_offset, last_timestamp, gaps, applied_at FROM ({LIVE_POSITIONS})
"""  # noqa: S608  # a query of our own
