"""The table function request_counts: how many requests' URLs a pattern matches, by bucket and family set.

The window's start is exact to the microsecond (design section 4). Origins in whose own text the pattern is found are
answered from `origin_hits`: whole minutes, hours and days behind the window's first, partial minute, and that minute
from the URL blocks. The runs of all other origins are searched in the URL blocks.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import apsw

from api.deadline import Deadline
from api.patterns import Pattern, compile_pattern
from schema.blocks import Run, unpack_urls
from schema.tables import DAY_GRAIN, HOUR_GRAIN, MINUTE_GRAIN
from schema.timestamps import HOUR, MINUTE, SECOND, floor_to

Origin = tuple[str, str]
"""(project, origin)"""
_FOREVER = 1 << 62
_PIECE = 32 << 10  # bytes searched between two looks at the clock: a hard pattern takes ms for them
_URLS_BETWEEN_LOOKS = 64
_NEXT_ORIGIN = """
SELECT project, origin FROM origin_hits WHERE (project, origin) > (?, ?) ORDER BY project, origin LIMIT 1
"""
_HITS = """
SELECT bucket, families, hits FROM origin_hits
WHERE project = ? AND origin = ? AND grain = ? AND bucket >= ? AND bucket < ?
"""
_BLOCKS = """
SELECT min_timestamp, payload FROM url_blocks WHERE max_timestamp >= ? AND max_timestamp < ? AND min_timestamp < ?
"""


def request_counts(
    db: apsw.Connection,
    decompress: Callable[[bytes], bytes],
    deadline: Deadline,
    pattern_text: str,
    since: int,
    grain: int,
    projects: frozenset[str] | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Rows (bucket start in µs, family set, hits) of the requests at or after `since` (µs); `grain` in seconds.

    Only events of these projects count (None: all), whatever their URLs name. Raises ParameterError for a pattern
    that RE2 refuses, QueryTimeout past the deadline.
    """
    pattern = compile_pattern(pattern_text)
    size = grain * SECOND
    first_minute = -floor_to(-since, MINUTE)
    counts: Counter[tuple[int, int]] = Counter()
    decided: set[Origin] = set()
    others = False
    for origin in _origins(db):
        if projects is not None and origin[0] not in projects:
            continue
        if pattern.matches_whatever_follows(origin[1].encode()):
            decided.add(origin)
            for at, piece, end in _pieces(first_minute, grain):
                for bucket, families, hits in db.execute(_HITS, (*origin, piece, at, end)):
                    counts[floor_to(bucket, size), families] += hits
        else:
            others = True
        deadline.check()
    blocks = (since, _FOREVER, _FOREVER) if others else (since, first_minute + HOUR, first_minute)
    for oldest, payload in db.execute(_BLOCKS, blocks):
        deadline.check()
        for run in unpack_urls(decompress(payload)):
            if projects is not None and run.project not in projects:
                continue
            if (run.project, run.origin) not in decided:
                _search(run, pattern, since, size, counts, deadline)
            elif oldest < first_minute:
                for timestamp, families in run.times():
                    if since <= timestamp < first_minute:
                        counts[floor_to(timestamp, size), families] += 1
    for (bucket, families), hits in counts.items():
        yield bucket, families, hits


def _origins(db: apsw.Connection) -> Iterator[Origin]:
    """All origins, by one step in the index each rather than by reading every row."""
    origin: Origin | None = db.execute("SELECT project, origin FROM origin_hits ORDER BY 1, 2 LIMIT 1").fetchone()
    while origin is not None:
        yield origin
        origin = db.execute(_NEXT_ORIGIN, origin).fetchone()


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


def _search(
    run: Run, pattern: Pattern, since: int, size: int, counts: Counter[tuple[int, int]], deadline: Deadline
) -> None:
    """Look at each URL of a run, unless a search of its text, a piece of it at a time, shows that none matches."""
    if not any(_may_match(pattern, piece, deadline) for piece in run.pieces(_PIECE)):
        return
    for number, (timestamp, families, url) in enumerate(run.hits()):
        if number % _URLS_BETWEEN_LOOKS == 0:
            deadline.check()
        if timestamp >= since and pattern.matches(url):
            counts[floor_to(timestamp, size), families] += 1


def _may_match(pattern: Pattern, piece: memoryview, deadline: Deadline) -> bool:
    deadline.check()
    return pattern.may_match_a_line(piece)
