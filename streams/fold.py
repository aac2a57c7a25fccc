"""The fold: from a batch's events to the deltas that its transaction adds to the tables. Pure: no clock, no I/O.

Every delta is a count, an integer sum, a minimum, a maximum, a mergeable histogram or a block, so batches may be cut
and ordered in any way and still come to the same answers (design section 1).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add, attrgetter

from schema.blocks import ENTRIES_PER_BLOCK, Entry
from schema.events import EdgeEvent, Invocation
from schema.histogram import cell_of, whole_milliseconds
from schema.retention import (
    ENTRIES,
    INVOCATIONS,
    NO_GRAIN,
    NOTHING_EXPIRED,
    ORIGIN_HITS,
    URLS,
    Horizons,
    bucket_expired,
)
from schema.tables import INVOCATION_GRAINS, ORIGIN_GRAINS
from schema.timestamps import HOUR, MINUTE, SECOND, floor_to
from schema.url_blocks import Requested

_timestamp = attrgetter("timestamp")


@dataclass(slots=True)
class InvocationDelta:
    """What a batch adds to one bucket of `invocations`. Times in integer µs; `cells` counts by histogram cell."""

    count: int = 0
    error_count: int = 0
    classes: list[int] = field(default_factory=lambda: [0] * 5)
    timed_count: int = 0
    sum_time: int = 0
    min_time: int | None = None
    max_time: int | None = None
    cells: dict[int, int] = field(default_factory=dict)

    def add(self, status: int | None, time: int | None) -> None:
        """Count one invocation: a status from 400 on is an error; without a time it counts in no statistic of times."""
        self.count += 1
        if status is not None:
            self.error_count += status >= 400
            if 100 <= status < 600:
                self.classes[status // 100 - 1] += 1
        if time is not None:
            self.timed_count += 1
            self.sum_time += time
            self.min_time = time if self.min_time is None else min(self.min_time, time)
            self.max_time = time if self.max_time is None else max(self.max_time, time)
            cell = cell_of(whole_milliseconds(time))
            self.cells[cell] = self.cells.get(cell, 0) + 1

    def merge(self, other: "InvocationDelta") -> None:
        """Count what another has counted."""
        self.count += other.count
        self.error_count += other.error_count
        self.classes = list(map(add, self.classes, other.classes))
        if other.min_time is None or other.max_time is None:
            return
        self.timed_count += other.timed_count
        self.sum_time += other.sum_time
        self.min_time = other.min_time if self.min_time is None else min(self.min_time, other.min_time)
        self.max_time = other.max_time if self.max_time is None else max(self.max_time, other.max_time)
        for cell, count in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + count


InvocationKey = tuple[str, str, int, int]
"""(project, function, grain in seconds, bucket start in µs); function '' stands for all of the project."""
_Bucket = tuple[str, str, int]
"""(project, function, bucket start in µs) of one grain."""
OriginKey = tuple[str, str, int, int, int]
"""(project, origin, grain in seconds, bucket start in µs, family set)."""
_Times = defaultdict[Requested, list[int]]
UrlRun = tuple[str, str, _Times]
"""(project, origin, and of each URL the times of its requests in µs since the hour's start)."""


@dataclass(slots=True)
class Deltas:
    """What a batch adds to the tables. Entry and URL blocks keep to one UTC hour each."""

    invocations: dict[InvocationKey, InvocationDelta] = field(default_factory=dict)
    origin_hits: Counter[OriginKey] = field(default_factory=Counter)
    entry_blocks: list[tuple[str, list[Entry]]] = field(default_factory=list)
    url_blocks: list[tuple[int, list[UrlRun]]] = field(default_factory=list)
    """Of each hour its start in µs, and the runs in ascending order of project and origin."""
    expired: Counter[str] = field(default_factory=Counter)
    """How often an event came too late for a table and grain, by `TABLE.GRAIN`."""


def fold_invocations(events: Iterable[Invocation], horizons: Horizons = NOTHING_EXPIRED) -> Deltas:
    """The deltas of invocations: each counts in its function's buckets and in its project's, once in each grain.

    Each is added once, to its function's bucket of the finest grain; all others are merged from finer ones, which takes
    a third of the time of adding it to eight. A bucket that has expired takes nothing any more.
    """
    finest: defaultdict[_Bucket, InvocationDelta] = defaultdict(InvocationDelta)
    size = INVOCATION_GRAINS[0] * SECOND
    for event in events:
        bucket = event.timestamp - event.timestamp % size
        finest[event.project, event.function, bucket].add(event.status, event.execution_time)
    deltas: dict[InvocationKey, InvocationDelta] = {}
    expired: Counter[str] = Counter()
    of_functions: dict[_Bucket, InvocationDelta] = finest
    for grain in INVOCATION_GRAINS:
        of_functions = _merged(
            ((project, function, floor_to(bucket, grain * SECOND)), delta)
            for (project, function, bucket), delta in of_functions.items()
        )
        of_projects = _merged(((project, "", bucket), delta) for (project, _, bucket), delta in of_functions.items())
        for project, _, bucket in of_projects:
            if bucket_expired(horizons, INVOCATIONS, grain, bucket):
                expired[f"{INVOCATIONS}.{grain}"] += of_projects[project, "", bucket].count
        for buckets in (of_functions, of_projects):
            for (project, function, bucket), delta in buckets.items():
                if not bucket_expired(horizons, INVOCATIONS, grain, bucket):
                    deltas[project, function, grain, bucket] = delta
    return Deltas(invocations=deltas, expired=expired)


def _merged(parts: Iterable[tuple[_Bucket, InvocationDelta]]) -> dict[_Bucket, InvocationDelta]:
    """The sums by bucket. What stands alone in its bucket is not copied."""
    groups: defaultdict[_Bucket, list[InvocationDelta]] = defaultdict(list)
    for bucket, delta in parts:
        groups[bucket].append(delta)
    return {bucket: deltas[0] if len(deltas) == 1 else _sum(deltas) for bucket, deltas in groups.items()}


def _sum(deltas: Iterable[InvocationDelta]) -> InvocationDelta:
    total = InvocationDelta()
    for delta in deltas:
        total.merge(delta)
    return total


def fold_edge(events: Iterable[EdgeEvent], horizons: Horizons = NOTHING_EXPIRED) -> Deltas:
    """The deltas of edge requests: blocks of entries and of URLs, hits by origin. What has expired takes nothing."""
    entries: defaultdict[tuple[str, int], list[EdgeEvent]] = defaultdict(list)
    urls: defaultdict[tuple[int, str, str], _Times] = defaultdict(lambda: defaultdict(list))
    minutes: Counter[tuple[int, str, str, int]] = Counter()
    expired: Counter[str] = Counter()
    oldest_entry, oldest_url = horizons.get((ENTRIES, NO_GRAIN), 0), horizons.get((URLS, NO_GRAIN), 0)
    for event in events:
        timestamp, project, origin = event.timestamp, event.project, event.origin
        hour = timestamp // HOUR
        if timestamp > oldest_entry:
            entries[project, hour].append(event)
        else:
            expired[f"{ENTRIES}.{NO_GRAIN}"] += 1
        if timestamp > oldest_url:
            urls[hour, project, origin][event.families, event.url.encode()].append(timestamp - hour * HOUR)
        else:
            expired[f"{URLS}.{NO_GRAIN}"] += 1
        minutes[timestamp // MINUTE, project, origin, event.families] += 1
    return Deltas(
        origin_hits=_by_grain(minutes, horizons, expired),
        entry_blocks=_entry_blocks(entries),
        url_blocks=_url_blocks(urls),
        expired=expired,
    )


def _by_grain(
    minutes: Counter[tuple[int, str, str, int]], horizons: Horizons, expired: Counter[str]
) -> Counter[OriginKey]:
    hits: Counter[OriginKey] = Counter()
    for (minute, project, origin, families), count in minutes.items():
        for grain in ORIGIN_GRAINS:
            bucket = floor_to(minute * MINUTE, grain * SECOND)
            if bucket_expired(horizons, ORIGIN_HITS, grain, bucket):
                expired[f"{ORIGIN_HITS}.{grain}"] += count
            else:
                hits[project, origin, grain, bucket, families] += count
    return hits


def _entry_blocks(groups: dict[tuple[str, int], list[EdgeEvent]]) -> list[tuple[str, list[Entry]]]:
    blocks: list[tuple[str, list[Entry]]] = []
    for (project, _), events in groups.items():
        events.sort(key=_timestamp)
        entries = [Entry(event.timestamp, event.missing_id, event.data) for event in events]
        for start in range(0, len(entries), ENTRIES_PER_BLOCK):
            blocks.append((project, entries[start : start + ENTRIES_PER_BLOCK]))
    return blocks


def _url_blocks(runs: dict[tuple[int, str, str], _Times]) -> list[tuple[int, list[UrlRun]]]:
    blocks: defaultdict[int, list[UrlRun]] = defaultdict(list)
    for hour, project, origin in sorted(runs):
        blocks[hour].append((project, origin, runs[hour, project, origin]))
    return [(hour * HOUR, block) for hour, block in blocks.items()]
