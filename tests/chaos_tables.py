"""What every table must hold according to the oracle, and where a store parts from it.

The expectation comes from the oracle's own lists by plain loops; of the product only what reads its stored forms
(blocks, histograms) is used. Both sides become dicts, so one comparison finds what is lost, double or made up.
"""

import json
import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from oracle import DAY, HOUR, MINUTE, SECOND, Entry, Invocation, Oracle, Record

from schema import histogram
from schema.blocks import Decompressor, unpack_entries
from schema.url_blocks import unpack_urls

KEPT_REJECTS = 10_000
ENTRIES_PER_BLOCK = 128
NOT_COMPARED = "expired", "unreadable"  # counters that the oracle does not keep
_ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)", re.DOTALL)
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+|(?:\.[0-9]+)?[eE][+-]?[0-9]+)")
Table = Mapping[Any, Any]


class Difference(AssertionError):
    """A table is not what the log says."""


@dataclass(slots=True)
class Statistics:
    """One expected row of `invocations`."""

    counts: list[int] = field(default_factory=lambda: [0] * 7)  # all, errors, 1xx to 5xx
    times: list[int] = field(default_factory=list)

    def row(self) -> tuple[Any, ...]:
        """The row; its histogram is a dict from a cell's lower edge to its count."""
        cells = Counter(_lower_edge((time + 500) // 1000) for time in self.times)
        bounds = (min(self.times), max(self.times)) if self.times else (None, None)
        return (*self.counts, len(self.times), sum(self.times), *bounds, dict(cells))


def _lower_edge(milliseconds: int) -> int:
    return milliseconds - milliseconds % (1 << max(0, milliseconds.bit_length() - 11))


class Expectation:
    """Every table as the log has it. Can be fed the whole log again and again: it takes what it has not seen."""

    def __init__(self, log: str, edge: str, functions: str) -> None:
        self._log, self._edge, self._functions = log, edge, functions
        self._oracle = Oracle(log, edge, functions)
        self._seen: dict[tuple[str, int], int] = {}
        self._statistics: dict[tuple[str, str, int, int], Statistics] = {}
        self._origin_hits: Counter[tuple[Any, ...]] = Counter()
        self._entries: Counter[tuple[Any, ...]] = Counter()
        self._urls: Counter[tuple[Any, ...]] = Counter()
        self._counters: Counter[tuple[str, str]] = Counter()
        self._positions: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.events = 0

    def feed(self, records: Iterable[Record]) -> None:
        """Take records in that come in the order of their offsets."""
        for record in records:
            place = record.topic, record.partition
            if record.offset > self._seen.get(place, -1):
                self._seen[place] = record.offset
                self._feed(record)

    def _feed(self, record: Record) -> None:
        oracle, topic = self._oracle, record.topic
        entries, invocations, skipped = len(oracle.entries), len(oracle.invocations), Counter(oracle.skipped)
        oracle.feed([record])
        rewritten = b'"resourceLogs"' in (record.value or b"")
        for entry in islice(oracle.entries, entries, None):
            self._add_entry(entry, rewritten)
        for invocation in islice(oracle.invocations, invocations, None):
            self._add_invocation(invocation)
        events = len(oracle.entries) + len(oracle.invocations) - entries - invocations
        self.events += events
        self._counters += Counter({(topic, "messages"): 1, (topic, "events"): events})
        self._counters += Counter({(topic, name): count for name, count in (oracle.skipped - skipped).items()})
        last = record.offset, record.timestamp_ms, zlib.crc32(record.value or b"")
        self._positions[topic, record.partition] = last

    def _add_entry(self, entry: Entry, rewritten: bool) -> None:
        families = sum(1 << bit for bit, there in enumerate(entry.families) if there)
        url = entry.url.decode()
        match = _ORIGIN.match(url)
        origin = match[0] if match else entry.project  # such traffic has no URL without a scheme but with a host
        for grain in (MINUTE, HOUR, DAY):
            bucket = entry.timestamp // grain * grain
            self._origin_hits[entry.project, origin, grain // SECOND, bucket, families] += 1
        raw = _ESCAPE.sub(_paired, entry.raw)
        data = _canonical(raw) if rewritten else raw
        self._entries[entry.timestamp, entry.project, _given_id(entry.row["id"]), data] += 1
        self._urls[entry.timestamp, entry.project, origin, families, entry.url] += 1

    def _add_invocation(self, one: Invocation) -> None:
        for function in {one.function, ""}:
            for grain in (SECOND, MINUTE, HOUR, DAY):
                key = one.project, function, grain // SECOND, one.timestamp // grain * grain
                statistics = self._statistics.setdefault(key, Statistics())
                statistics.counts[0] += 1
                if one.status is not None:
                    statistics.counts[1] += one.status >= 400
                    if 100 <= one.status <= 599:
                        statistics.counts[1 + one.status // 100] += 1
                if one.execution_time is not None:
                    statistics.times.append(one.execution_time)

    def tables(self, ends: Mapping[tuple[str, int], int]) -> dict[str, Table]:
        """Every table, where the log ends at `ends`."""
        rejects = Counter((self._log, *reject) for reject in self._oracle.rejects)
        reasons = Counter((reject[0], f"reject.{reject[-1]}") for reject in self._oracle.rejects)
        none = None, None, None
        return {
            "invocations": {key: statistics.row() for key, statistics in self._statistics.items()},
            "origin_hits": self._origin_hits,
            "entry_blocks": self._entries,
            "url_blocks": self._urls,
            "rejects": rejects,
            "counters": +(self._counters + reasons),
            "positions": {
                (self._log, *place): (end, *self._positions.get(place, none), "[]") for place, end in ends.items()
            },
        }


def _given_id(text: str) -> str:
    """The id that an entry was given, which is a UUID of version 5; '' for one that came with its own."""
    try:
        return text if UUID(text).version == 5 else ""
    except ValueError:
        return ""


def _paired(escape: re.Match[bytes]) -> bytes:
    """Half a surrogate pair stands for no character: it is stored as U+FFFD."""
    return rb"\ufffd" if len(escape[0]) == 6 and escape[0][2:3] in b"dD" else escape[0]


def _canonical(data: bytes) -> bytes:
    """An event that was OTLP: its JSON is written anew, so its spelling says nothing."""
    return b"OTLP" + json.dumps(_with_floats(json.loads(data)), sort_keys=True).encode()


def _with_floats(value: Any) -> Any:
    """A JSON value in which texts of decimals are numbers: an OTLP double may be stored as either."""
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def stored_tables(path: Path, expected: Mapping[str, Table]) -> dict[str, Table]:
    """Every table of a store, read in one transaction. Raises Difference where a block contradicts itself."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30, isolation_level=None)) as db:
        db.execute("BEGIN")
        return {
            "invocations": _invocations(db),
            "origin_hits": _keyed(db, "SELECT project, origin, grain, bucket, families, hits FROM origin_hits"),
            "entry_blocks": _entries(db, expected["entry_blocks"]),
            "url_blocks": _urls(db),
            "rejects": Counter(db.execute('SELECT log, topic, partition, "offset", element, reason FROM rejects')),
            "counters": {
                key: count
                for key, count in _keyed(db, "SELECT topic, name, count FROM counters").items()
                if not key[1].startswith(NOT_COMPARED)
            },
            "positions": {
                (log, topic, partition): tuple(rest)
                for log, topic, partition, *rest in db.execute(
                    """SELECT log, topic, partition, next_offset, last_offset, last_timestamp, last_crc, gaps
                    FROM positions"""
                )
            },
        }


def _keyed(db: sqlite3.Connection, query: str) -> dict[tuple[Any, ...], int]:
    return {tuple(key): count for *key, count in db.execute(query)}


def _invocations(db: sqlite3.Connection) -> Table:
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for project, function, grain, bucket, *numbers, cells in db.execute(
        """SELECT project, function, grain, bucket, count, error_count, count_1xx, count_2xx, count_3xx, count_4xx,
            count_5xx, timed_count, sum_time, min_time, max_time, histogram FROM invocations"""
    ):
        edges = {histogram.lower_edge(cell): count for cell, count in histogram.decode(cells)}
        rows[project, function, grain, bucket] = (*numbers, edges)
    return rows


def _entries(db: sqlite3.Connection, expected: Table) -> Table:
    dictionaries = dict(db.execute("SELECT id, content FROM dictionaries"))
    decompressors = {number: Decompressor(content) for number, content in dictionaries.items()} | {0: Decompressor()}
    found: Counter[tuple[Any, ...]] = Counter()
    for number, project, first, last, count, dictionary, payload in db.execute(
        "SELECT id, project, min_timestamp, max_timestamp, count, dictionary, payload FROM entry_blocks"
    ):
        entries = unpack_entries(decompressors[dictionary].decompress(payload), count, payload)
        times = [entry.timestamp for entry in entries]
        _check_block("entry_blocks", number, (first, last, count), times)
        if times != sorted(times) or count > ENTRIES_PER_BLOCK:
            raise Difference(f"entry_blocks, block {number}: {count} entries at {times}, not in order or too many")
        for entry in entries:
            given = str(UUID(bytes=entry.missing_id)) if entry.missing_id else ""
            key = entry.timestamp, project, given, entry.data.strip(b" \t\r\n")
            rewritten = key if key in expected else (*key[:3], _canonical(entry.data))
            found[rewritten if rewritten in expected else key] += 1
    return found


def _urls(db: sqlite3.Connection) -> Table:
    decompressor = Decompressor()
    found: Counter[tuple[Any, ...]] = Counter()
    for number, first, last, count, payload in db.execute(
        "SELECT id, min_timestamp, max_timestamp, count, payload FROM url_blocks"
    ):
        times: list[int] = []
        for run in unpack_urls(decompressor.decompress(payload)):
            for hit in run.hits():
                times.append(hit.timestamp)
                found[hit.timestamp, run.project, run.origin, hit.families, hit.url] += 1
        _check_block("url_blocks", number, (first, last, count), times)
    return found


def _check_block(table: str, number: int, said: tuple[int, int, int], times: list[int]) -> None:
    holds = min(times, default=0), max(times, default=0), len(times)
    if said != holds or holds[0] // HOUR != holds[1] // HOUR:
        raise Difference(f"{table}, block {number}: says (first, last, count) {said}, holds {holds}")


def compare(path: Path, expectation: Expectation, ends: Mapping[tuple[str, int], int]) -> Counter[str]:
    """How many rows, entries and hits of each table are the same in a store as in the log.

    Raises Difference with the first row that is not, and how many there are.
    """
    expected = expectation.tables(ends)
    stored = stored_tables(path, expected)
    compared: Counter[str] = Counter()
    wrong: list[str] = []
    for name, rows in expected.items():
        differing = _differing(stored[name], rows, bounded=name == "rejects")
        for key in differing[:1]:
            wrong.append(
                f"{name}: {len(differing)} rows differ; first {_shown(key)}: "
                f"stored {_shown(stored[name].get(key))}, the log says {_shown(rows.get(key))}"
            )
        compared[name] = sum(rows.values()) if name in ("entry_blocks", "url_blocks") else len(rows)
    if wrong:
        raise Difference("\n".join(wrong))
    return compared


def _differing(stored: Table, expected: Table, *, bounded: bool) -> list[Any]:
    """The keys whose rows differ, in order. Of rejects only the newest are kept."""
    if bounded and sum(expected.values()) > KEPT_REJECTS:
        if sum(stored.values()) != KEPT_REJECTS:
            return sorted(stored, key=repr)
        expected = {key: expected.get(key) for key in stored}
    either: Callable[[Any], bool] = lambda key: stored.get(key) != expected.get(key)  # noqa: E731
    return sorted(filter(either, stored.keys() | expected.keys()), key=repr)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
