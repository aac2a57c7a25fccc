"""The table function request_counts: how many requests' URLs a pattern matches, by bucket and family.

The window's start is exact to the microsecond (design section 4). Origins in whose own text the pattern is found are
answered from `origin_hits`, by whole minutes, hours and days. The runs of all other origins are searched in the URL
blocks, each block once: what it gave is remembered. What lies in the window's first, partial minute is searched for in
the few blocks that overlap it, once while windows begin in that minute.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any, NamedTuple

import apsw
import msgspec

from api.origins import DecidedOrigins, Origin
from api.patterns import compile_pattern
from api.remembered import BlockCounts, Edge, HourCounts, Known, Remembered, Subject
from api.searching import Look, Search
from schema.tables import DAY_GRAIN, HOUR_GRAIN, MINUTE_GRAIN
from schema.timestamps import HOUR, MINUTE, SECOND, datetime_text, floor_to
from schema.url_blocks import UrlBlock


class Row(NamedTuple):
    """A bucket's start in µs, requests of each family (one may be of several, or of none), and all of them."""

    bucket: int
    rest: int
    storage: int
    auth: int
    realtime: int
    hits: int


_sums = msgspec.json.Decoder(list[Row]).decode
_encode = msgspec.json.Encoder().encode


Decompress = Callable[[bytes], bytes]
_FOREVER = 1 << 62
_MOST_BUCKETS = 1000  # max_rows: events may be a day ahead, so that a window of minutes has up to 1,620
_SUMS = """
SELECT json_group_array(json_array(bucket, rest, storage, auth, realtime, hits))
FROM (
    SELECT
        bucket,
        sum(hits * (families & 1 > 0)) AS rest, sum(hits * (families & 2 > 0)) AS storage,
        sum(hits * (families & 4 > 0)) AS auth, sum(hits * (families & 8 > 0)) AS realtime, sum(hits) AS hits
    FROM origin_hits
    WHERE project = ? AND origin = ? AND grain = ? AND bucket >= ? AND bucket < ?
    GROUP BY bucket
)
"""
_BLOCKS = "SELECT id FROM url_blocks WHERE max_timestamp >= ? AND max_timestamp < ?"
_HOURS = """
SELECT min_timestamp / 3600000000 AS hour, count(*), sum(id) FROM url_blocks WHERE max_timestamp >= ? GROUP BY hour
"""
_BLOCKS_OVER = "SELECT id FROM url_blocks WHERE max_timestamp >= ? AND max_timestamp < ? AND min_timestamp < ?"
_OLDEST_BLOCK = "SELECT min(max_timestamp) FROM url_blocks"
_PAYLOAD = "SELECT payload FROM url_blocks WHERE id = ?"


def request_counts(
    db: apsw.Connection,
    decompress: Decompress,
    look: Look,
    remembered: Remembered,
    subject: Subject,
    since: int,
    grain: int,
    decided: DecidedOrigins | None = None,
) -> list[Row]:
    """Rows to be added up by bucket, of the requests at or after `since` (µs); `grain` is the buckets' in seconds.

    Only events of the subject's projects count, whatever their URLs name. `look` is called between the pieces of a
    search; what it raises leaves here, and what has been searched by then is remembered. Raises ParameterError for a
    pattern that RE2 refuses.
    """
    search = Search(compile_pattern(subject.pattern), subject.projects, look)
    known = remembered.known(subject)
    first_minute = -floor_to(-since, MINUTE)
    counts: Counter[tuple[int, int]] = Counter()  # by bucket and family set
    origins, others = (decided or DecidedOrigins()).get(db, search, subject)
    rows = list(_decided_sums(db, search, origins, first_minute, grain))
    if others:
        _add_searched(db, decompress, search, remembered, known, counts, since, grain)
    if since < first_minute:
        for families in _first_minute(db, decompress, search, remembered, known, since, first_minute):
            counts[floor_to(since, grain * SECOND), families] += 1
    rows += [_row(bucket, families, hits) for (bucket, families), hits in counts.items()]
    return rows


def counts_array(rows: Iterable[Row]) -> tuple[bytes, int]:
    """What `request_counts` gives, as the JSON array that usage.api-counts answers, and the number of its buckets."""
    buckets: dict[int, Sequence[int]] = {}
    for bucket, *hits in rows:
        others = buckets.get(bucket)
        buckets[bucket] = hits if others is None else list(map(add, others, hits))
    counts = [
        {
            "timestamp": datetime_text(bucket),
            "total_rest_requests": rest,
            "total_storage_requests": storage,
            "total_auth_requests": auth,
            "total_realtime_requests": realtime,
        }
        for bucket, (rest, storage, auth, realtime, _) in sorted(buckets.items())[:_MOST_BUCKETS]
    ]
    return _encode(counts), len(counts)


def go_on(
    db: apsw.Connection, decompress: Decompress, look: Look, remembered: Remembered, subject: Subject, since: int
) -> None:
    """Search what `request_counts` would have to search, and remember it.

    Outside of a transaction, so that it holds back no checkpoint: blocks may go meanwhile.
    """
    search = Search(compile_pattern(subject.pattern), subject.projects, look)
    known = remembered.known(subject)
    blocks: list[Any] = db.execute(_BLOCKS, (since, _FOREVER)).fetchall()
    for (number,) in blocks:
        look()
        if number not in known.blocks:
            block = _block(db, decompress, number)
            if block is not None:
                remembered.keep(known, number, BlockCounts(block, search.matched(block)))


def _decided_sums(
    db: apsw.Connection, search: Search, origins: Iterable[Origin], since: int, grain: int
) -> Iterator[Row]:
    """The hits of origins that decide for all their URLs."""
    size = grain * SECOND
    for project, origin in origins:
        search.look()
        for at, piece, end in _pieces(since, grain):
            sums = _sums(db.execute(_SUMS, (project, origin, piece, at, end)).get)
            yield from sums if piece == grain else (Row(floor_to(bucket, size), *hits) for bucket, *hits in sums)


def _row(bucket: int, families: int, hits: int) -> Row:
    rest, storage, auth, realtime = (hits * (families >> bit & 1) for bit in range(4))
    return Row(bucket, rest, storage, auth, realtime, hits)


def _add_searched(
    db: apsw.Connection,
    decompress: Decompress,
    search: Search,
    remembered: Remembered,
    known: Known,
    counts: Counter[tuple[int, int]],
    since: int,
    grain: int,
) -> None:
    """Add the hits of all other origins, from the window's first whole minute on.

    An hour that counts as a whole is added up once, and anew when its blocks are others: new ones have larger ids than
    all before, so that their number and the sum of their ids are never the same again.
    """
    size, first_minute = grain * SECOND, -floor_to(-since, MINUTE)
    whole = -floor_to(-first_minute, HOUR) if size >= HOUR else _FOREVER
    changed = False

    def block_counts(start: int, end: int) -> Iterator[BlockCounts]:
        nonlocal changed
        for (number,) in db.execute(_BLOCKS, (start, end)):
            found = known.blocks.get(number)
            if found is None:
                changed = True
                block = _present(db, decompress, search, number)
                found = BlockCounts(block, search.matched(block))
                remembered.keep(known, number, found)
            yield found

    for found in block_counts(since, whole):
        for minute, families, hits in found.by_minute(first_minute):
            counts[floor_to(minute, size), families] += hits
    hours = {number * HOUR: blocks for number, *blocks in db.execute(_HOURS, (whole,))}
    changed = changed or any(hour >= whole and hour not in hours for hour in list(known.hours))
    for hour, blocks in hours.items():
        known_hour = known.hours.get(hour)
        if known_hour is None or known_hour.blocks != blocks:
            changed = True
            known_hour = HourCounts(blocks, sum((found.totals for found in block_counts(hour, hour + HOUR)), Counter()))
            remembered.keep_hour(known, hour, known_hour)
        bucket = floor_to(hour, size)
        for families, hits in known_hour.totals.items():
            counts[bucket, families] += hits
    if changed:
        present = {number for (number,) in db.execute(_BLOCKS, (since, _FOREVER))}
        remembered.forget_gone(known, present, db.execute(_OLDEST_BLOCK).get or 0, since)


def _first_minute(
    db: apsw.Connection,
    decompress: Decompress,
    search: Search,
    remembered: Remembered,
    known: Known,
    since: int,
    end: int,
) -> Iterator[int]:
    """The family sets of the requests in the window's first, partial minute, which ends at `end` (µs)."""
    minute = end - MINUTE
    for (number,) in db.execute(_BLOCKS_OVER, (since, end + HOUR, end)):
        edge = known.edges.get(number)
        if edge is None or edge.minute != minute:
            block = _present(db, decompress, search, number)
            edge = Edge(minute, search.matched_between(block, minute, end))
            remembered.keep_edge(known, number, edge)
        yield from edge.since(since)


def _present(db: apsw.Connection, decompress: Decompress, search: Search, number: int) -> UrlBlock:
    """A block that is to be searched, in the transaction that has found its id."""
    search.look()
    block = _block(db, decompress, number)
    assert block is not None
    return block


def _block(db: apsw.Connection, decompress: Decompress, number: int) -> UrlBlock | None:
    row = db.execute(_PAYLOAD, (number,)).fetchone()
    return UrlBlock(decompress(row[0])) if row is not None else None


def _pieces(start: int, grain: int) -> Iterator[tuple[int, int, int]]:
    """Cut [start, ∞) into pieces (from, grain, to): the coarsest whole buckets that are no coarser than `grain`."""
    for piece, coarser in ((MINUTE_GRAIN, HOUR_GRAIN), (HOUR_GRAIN, DAY_GRAIN), (DAY_GRAIN, None)):
        if piece == grain or coarser is None:
            yield start, piece, _FOREVER
            return
        end = -floor_to(-start, coarser * SECOND)
        if start < end:
            yield start, piece, end
        start = end
