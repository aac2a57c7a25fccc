"""What a store holds, whatever way it came there: a digest by table, grain and UTC day, and what differs between two.

A digest is the sum of the hashes of the rows, entries and URL hits themselves, so neither their order nor how they were
cut into blocks shows. What has expired in either of two stores is left out of a comparison.
"""

import hashlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from schema.blocks import NO_DICTIONARY, Decompressor, unpack_entries
from schema.retention import ENTRIES, INVOCATIONS, NO_GRAIN, ORIGIN_HITS, URLS, Horizons, bucket_expired, time_expired
from schema.timestamps import DAY, datetime_text
from schema.url_blocks import unpack_urls

_encode = msgspec.msgpack.Encoder().encode
_DAMAGED = (zstandard.ZstdError, msgspec.MsgspecError, LookupError, ValueError)
_MODULUS = 1 << 128
_REPORT_EVERY = 1000  # rows
_SIZE = """
SELECT (SELECT count(*) FROM invocations) + (SELECT count(*) FROM origin_hits)
    + (SELECT coalesce(sum(count), 0) FROM entry_blocks) + (SELECT coalesce(sum(count), 0) FROM url_blocks)
"""


class Range(NamedTuple):
    """A day's content of one table and grain; `day` is its start in µs, UTC."""

    table: str
    grain: int
    day: int

    def __str__(self) -> str:
        grain = f" by {self.grain} s" if self.grain else ""
        return f"{self.table}{grain} of {datetime_text(self.day)[:10]}"


class Row(NamedTuple):
    """One row, entry or URL hit: where it belongs, its time in µs, and all that it says."""

    range: Range
    timestamp: int
    values: tuple[str | int | bytes | None, ...]

    def __str__(self) -> str:
        shown = [value if not isinstance(value, bytes) else f"{len(value)} bytes" for value in self.values]
        return f"{self.range.table} at {self.timestamp} µs: {', '.join(map(str, shown))}"


class Digest(NamedTuple):
    """How many rows, and the sum of their hashes."""

    rows: int
    sum: int


class Difference(NamedTuple):
    """A row that only one of two stores holds, and in which: `first` or `second`."""

    only_in: str
    row: Row


@contextmanager
def snapshot(store: Path) -> Iterator[sqlite3.Connection]:
    """One state of a store, for reading alone: writers go on meanwhile, and what they write does not show."""
    uri = f"{store.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN")
        yield db


def size(db: sqlite3.Connection) -> int:
    """How many rows, entries and URL hits a store holds."""
    total: int
    (total,) = db.execute(_SIZE).fetchone()
    return total


def higher(first: Horizons, second: Horizons) -> dict[tuple[str, int], int]:
    """Of two stores' horizons the ones that stand further on."""
    return {kind: max(first.get(kind, 0), second.get(kind, 0)) for kind in {*first, *second}}


def digests(
    db: sqlite3.Connection, horizons: Horizons, report: Callable[[int], None] = lambda _: None
) -> dict[Range, Digest]:
    """The digest of each range of a store that holds anything not expired. `report` is told how many rows are done."""
    rows: Counter[Range] = Counter()
    sums: defaultdict[Range, int] = defaultdict(int)
    for number, row in enumerate(rows_of(db, horizons), 1):
        rows[row.range] += 1
        sums[row.range] += int.from_bytes(hashlib.blake2b(_encode(row.values), digest_size=16).digest(), "little")
        if number % _REPORT_EVERY == 0:
            report(_REPORT_EVERY)
    return {span: Digest(count, sums[span] % _MODULUS) for span, count in rows.items()}


def differences(
    first: sqlite3.Connection, second: sqlite3.Connection, report: Callable[[int], None], most: int = 20
) -> tuple[list[Range], list[Difference]]:
    """The ranges in which two stores differ, and at most so many of the rows that only one of them holds."""
    horizons = higher(_horizons(first), _horizons(second))
    in_first, in_second = digests(first, horizons, report), digests(second, horizons, report)
    spans = sorted(span for span in {*in_first, *in_second} if in_first.get(span) != in_second.get(span))
    found: list[Difference] = []
    for span in spans:
        ours, theirs = (Counter(row for row in rows_of(db, horizons) if row.range == span) for db in (first, second))
        found += [Difference("first", row) for row in sorted((ours - theirs).elements(), key=_place)]
        found += [Difference("second", row) for row in sorted((theirs - ours).elements(), key=_place)]
        if len(found) >= most:
            break
    return spans, found[:most]


def rows_of(db: sqlite3.Connection, horizons: Horizons) -> Iterator[Row]:
    """All that a store holds and has not expired."""
    yield from _bucket_rows(db, horizons)
    yield from _entries(db, horizons)
    yield from _urls(db, horizons)


def _horizons(db: sqlite3.Connection) -> dict[tuple[str, int], int]:
    return {(kind, grain): horizon for kind, grain, horizon in db.execute("SELECT * FROM horizons")}


def _place(row: Row) -> tuple[int, str]:
    return row.timestamp, repr(row.values)


def _bucket_rows(db: sqlite3.Connection, horizons: Horizons) -> Iterator[Row]:
    for table in (INVOCATIONS, ORIGIN_HITS):
        for values in db.execute(f"SELECT grain, bucket, * FROM {table}"):  # noqa: S608  # a name of our own
            grain, bucket = values[:2]
            if not bucket_expired(horizons, table, grain, bucket):
                yield Row(Range(table, grain, bucket - bucket % DAY), bucket, values[2:])


def _entries(db: sqlite3.Connection, horizons: Horizons) -> Iterator[Row]:
    decompressors = {NO_DICTIONARY: Decompressor()}
    for number, content in db.execute("SELECT id, content FROM dictionaries"):
        decompressors[number] = Decompressor(content)
    for project, count, dictionary, payload, *span in db.execute(
        "SELECT project, count, dictionary, payload, min_timestamp, max_timestamp FROM entry_blocks"
    ):
        try:
            entries = unpack_entries(decompressors[dictionary].decompress(payload), count, payload)
        except _DAMAGED as error:
            yield _mismatch(ENTRIES, span, project, repr(error))
            continue
        times = [entry.timestamp for entry in entries]
        if span != [min(times, default=None), max(times, default=None)]:
            yield _mismatch(ENTRIES, span, project, "its times are not its entries'")
        for entry in entries:
            if not time_expired(horizons, ENTRIES, entry.timestamp):
                span = Range(ENTRIES, NO_GRAIN, entry.timestamp - entry.timestamp % DAY)
                yield Row(span, entry.timestamp, (project, entry.timestamp, entry.missing_id, entry.data))


def _mismatch(table: str, span: list[int], *values: str | int) -> Row:
    """Stands for a block that can't be read, or whose columns, by which queries choose it, are not its content's."""
    return Row(Range(table, NO_GRAIN, span[1] - span[1] % DAY), span[1], (*span, *values))


def _urls(db: sqlite3.Connection, horizons: Horizons) -> Iterator[Row]:
    plain = Decompressor()
    for count, payload, *span in db.execute("SELECT count, payload, min_timestamp, max_timestamp FROM url_blocks"):
        try:
            runs = [(run, list(run.hits())) for run in unpack_urls(plain.decompress(payload))]
        except _DAMAGED as error:
            yield _mismatch(URLS, span, repr(error))
            continue
        times = [hit.timestamp for _, hits in runs for hit in hits]
        if [count, *span] != [len(times), min(times, default=None), max(times, default=None)]:
            yield _mismatch(URLS, span, count, "its times or count are not its requests'")
        for run, hits in runs:
            for hit in hits:
                if not time_expired(horizons, URLS, hit.timestamp):
                    span = Range(URLS, NO_GRAIN, hit.timestamp - hit.timestamp % DAY)
                    values = (run.project, run.origin, hit.timestamp, hit.families, hit.url)
                    yield Row(span, hit.timestamp, values)
