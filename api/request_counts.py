"""The table functions request_counts and request_counts_array: how many requests' URLs a pattern matches, by bucket.

The window's start is exact to the microsecond (design section 4). Origins in whose own text the pattern is found are
answered from `origin_hits`, by whole minutes, hours and days. The runs of all other origins are searched in the URL
blocks, each block once: what it gave is remembered. What lies in the window's first, partial minute is searched for in
the few blocks that overlap it, once while windows begin in that minute.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from operator import add
from typing import Any, NamedTuple

import apsw
import msgspec

from api.origins import DecidedOrigins
from api.patterns import compile_pattern
from api.remembered import BlockCounts, CountsArray, Edge, HourCounts, Remembered, Stamp, Subject
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
_TOTAL = (
    "SELECT total(hits), min(bucket) FROM origin_hits WHERE project = ? AND origin = ? AND grain = ? AND bucket >= ?"
)
_BLOCKS = "SELECT id FROM url_blocks WHERE max_timestamp >= ? AND max_timestamp < ?"
_HOURS = """
SELECT min_timestamp / 3600000000 AS hour, count(*), sum(id) FROM url_blocks WHERE max_timestamp >= ? GROUP BY hour
"""
_BLOCKS_STAMP = "SELECT count(*), sum(id) FROM url_blocks WHERE max_timestamp >= ?"
_BLOCKS_OVER = "SELECT id FROM url_blocks WHERE max_timestamp >= ? AND max_timestamp < ? AND min_timestamp < ?"
_OLDEST_BLOCK = "SELECT min(max_timestamp) FROM url_blocks"
_PAYLOAD = "SELECT payload FROM url_blocks WHERE id = ?"


class RequestCounts:
    """One count of the requests at or after `since` (µs) whose URLs a pattern matches, by buckets of `grain` seconds.

    Only events of the subject's projects count, whatever their URLs name. All is read in one transaction. `look` is
    called between the pieces of a search; what it raises leaves here, and what has been searched by then is
    remembered. Raises ParameterError for a pattern that RE2 refuses.
    """

    def __init__(
        self,
        db: apsw.Connection,
        decompress: Decompress,
        look: Look,
        remembered: Remembered,
        subject: Subject,
        since: int,
        grain: int,
        decided: DecidedOrigins | None = None,
    ) -> None:
        self._db = db
        self._decompress = decompress
        self._subject = subject
        self._look = look
        self._remembered = remembered
        self._known = remembered.known(subject)
        self._since = since
        self._first_minute = -floor_to(-since, MINUTE)
        self._grain = grain
        self._origins, self._others = (decided or DecidedOrigins()).get(db, lambda: self._search, subject)

    def rows(self) -> list[Row]:
        """Rows to be added up by bucket."""
        return [*self._in_whole_minutes(), *self._in_first_minute(self._edges())]

    def array(self) -> tuple[bytes, int]:
        """The JSON array that usage.api-counts answers, and the number of its buckets.

        While windows begin in the same minute and nothing has come, only that minute is counted anew.
        """
        known = self._array()
        buckets = _added([*known.first, *self._in_first_minute(known.edges)])  # two at most
        count, rest = known.buckets - len(known.first) + len(buckets), known.rest
        if count > _MOST_BUCKETS:
            count, rest = _MOST_BUCKETS, rest[: rest.rindex(b",{")]
        return b"[%b%b]" % (b",".join([_written(*bucket) for bucket in buckets.items()]), rest), count

    @cached_property
    def _search(self) -> Search:
        return Search(compile_pattern(self._subject.pattern), self._subject.projects, self._look)

    def _array(self) -> CountsArray:
        """What holds for all windows that begin in the same minute, as long as nothing has come."""
        window, stamp = (self._grain, self._first_minute), self._stamp()
        known = self._known.arrays.get(window)
        if known is None or known.stamp != stamp:
            buckets = _added(self._in_whole_minutes())
            first = [(bucket, *hits) for bucket, hits in islice(buckets.items(), 1)]
            rest = b"".join([b"," + _written(*bucket) for bucket in islice(buckets.items(), 1, _MOST_BUCKETS)])
            known = CountsArray(stamp, min(len(buckets), _MOST_BUCKETS), first, rest, self._edges())
            self._remembered.keep_array(self._known, window, known)
        return known

    def _stamp(self) -> Stamp:
        """Differs from that of any other state of the database with other counts, or blocks over the first minute.

        Hits only grow, but for buckets that go for good, the oldest first; and new blocks have larger ids than all
        before, so that their number and the sum of their ids are never the same again.
        """
        coarser = HOUR_GRAIN if self._grain == MINUTE_GRAIN else DAY_GRAIN
        start = floor_to(self._first_minute, coarser * SECOND)
        totals: list[Any] = []
        for project, origin in self._origins:
            self._look()
            totals += self._db.execute(_TOTAL, (project, origin, coarser, start))
        return self._origins, totals, self._db.execute(_BLOCKS_STAMP, (self._first_minute - MINUTE,)).fetchone()

    def _in_whole_minutes(self) -> Iterator[Row]:
        """What lies in the window's whole minutes."""
        yield from self._decided()
        if self._others:
            yield from _rows(self._searched())

    def _decided(self) -> Iterator[Row]:
        """The hits of origins that decide for all their URLs."""
        size = self._grain * SECOND
        for project, origin in self._origins:
            self._look()
            for at, piece, end in _pieces(self._first_minute, self._grain):
                sums = _sums(self._db.execute(_SUMS, (project, origin, piece, at, end)).get)
                yield from sums if piece == self._grain else (Row(floor_to(at, size), *hits) for at, *hits in sums)

    def _searched(self) -> Counter[tuple[int, int]]:
        """The hits of all other origins by bucket and family set.

        An hour that counts as a whole is added up once, and anew when its blocks are others.
        """
        size, known = self._grain * SECOND, self._known
        counts: Counter[tuple[int, int]] = Counter()
        whole = -floor_to(-self._first_minute, HOUR) if size >= HOUR else _FOREVER
        changed = False

        def block_counts(start: int, end: int) -> Iterator[BlockCounts]:
            nonlocal changed
            for (number,) in self._db.execute(_BLOCKS, (start, end)):
                found = known.blocks.get(number)
                if found is None:
                    changed = True
                    block = self._block(number)
                    found = BlockCounts(block, self._search.matched(block))
                    self._remembered.keep(known, number, found)
                yield found

        for found in block_counts(self._since, whole):
            for minute, families, hits in found.by_minute(self._first_minute):
                counts[floor_to(minute, size), families] += hits
        hours = {number * HOUR: blocks for number, *blocks in self._db.execute(_HOURS, (whole,))}
        changed = changed or any(hour >= whole and hour not in hours for hour in list(known.hours))
        for hour, blocks in hours.items():
            of_hour = known.hours.get(hour)
            if of_hour is None or of_hour.blocks != blocks:
                changed = True
                totals = sum((found.totals for found in block_counts(hour, hour + HOUR)), Counter())
                of_hour = HourCounts(blocks, totals)
                self._remembered.keep_hour(known, hour, of_hour)
            bucket = floor_to(hour, size)
            for families, hits in of_hour.totals.items():
                counts[bucket, families] += hits
        if changed:
            present = {number for (number,) in self._db.execute(_BLOCKS, (self._since, _FOREVER))}
            self._remembered.forget_gone(known, present, self._db.execute(_OLDEST_BLOCK).get or 0, self._since)
        return counts

    def _edges(self) -> list[Edge]:
        """The minute in which the window begins, of the blocks that have requests there, decided or not."""
        end = self._first_minute
        start = end - MINUTE
        edges: list[Edge] = []
        for (number,) in self._db.execute(_BLOCKS_OVER, (start, end + HOUR, end)):
            edge = self._known.edges.get(number)
            if edge is None or edge.minute != start:
                edge = Edge(start, self._search.matched_between(self._block(number), start, end))
                self._remembered.keep_edge(self._known, number, edge)
            edges.append(edge)
        return edges

    def _in_first_minute(self, edges: Iterable[Edge]) -> Iterator[Row]:
        """What of that minute lies in the window."""
        hits = Counter(b"".join([edge.since(self._since) for edge in edges]))
        if hits:
            bucket = floor_to(self._since, self._grain * SECOND)
            yield from _rows({(bucket, families): count for families, count in hits.items()})

    def _block(self, number: int) -> UrlBlock:
        """A block that is to be searched, in the transaction that has found its id."""
        self._look()
        block = _block(self._db, self._decompress, number)
        assert block is not None
        return block


def go_on(
    db: apsw.Connection, decompress: Decompress, look: Look, remembered: Remembered, subject: Subject, since: int
) -> None:
    """Search what `RequestCounts` would have to search, and remember it.

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


def _rows(counts: Mapping[tuple[int, int], int]) -> Iterator[Row]:
    """The rows of hits by bucket and family set."""
    for (bucket, families), hits in counts.items():
        rest, storage, auth, realtime = (hits * (families >> bit & 1) for bit in range(4))
        yield Row(bucket, rest, storage, auth, realtime, hits)


def _added(rows: Iterable[tuple[int, ...]]) -> dict[int, Sequence[int]]:
    """The hits of each family, and all, by bucket and in its order."""
    buckets: dict[int, Sequence[int]] = {}
    for bucket, *hits in rows:
        others = buckets.get(bucket)
        buckets[bucket] = hits if others is None else list(map(add, others, hits))
    return dict(sorted(buckets.items()))


def _written(bucket: int, hits: Iterable[int]) -> bytes:
    """A bucket as usage.api-counts answers it."""
    rest, storage, auth, realtime, _ = hits
    return _encode(
        {
            "timestamp": datetime_text(bucket),
            "total_rest_requests": rest,
            "total_storage_requests": storage,
            "total_auth_requests": auth,
            "total_realtime_requests": realtime,
        }
    )


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
