"""Step 4 of the commit protocol: a batch's rows, rejects and counters are added to the tables."""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain

from schema import histogram
from schema.events import PlacedReject, Source
from streams.packing import Row, Rows

KEPT_REJECTS = 10_000  # the newest; their counters are kept for good
KEPT_REJECT_BYTES = 4096  # of each

_ROWS_PER_STATEMENT = (256, 32, 4, 1)
"""SQLite lets go of Python's lock for each statement, and gets it back only after the switch interval while other
threads compute: row by row a batch took 900 ms beside a busy thread, in these chunks and 0.5 ms it takes 30."""

_ADD_INVOCATIONS = """
INSERT INTO invocations (project, function, grain, bucket, count, error_count, count_1xx, count_2xx, count_3xx,
    count_4xx, count_5xx, timed_count, sum_time, min_time, max_time, histogram)
VALUES {rows}
ON CONFLICT DO UPDATE SET
    count = count + excluded.count, error_count = error_count + excluded.error_count,
    count_1xx = count_1xx + excluded.count_1xx, count_2xx = count_2xx + excluded.count_2xx,
    count_3xx = count_3xx + excluded.count_3xx, count_4xx = count_4xx + excluded.count_4xx,
    count_5xx = count_5xx + excluded.count_5xx,
    timed_count = timed_count + excluded.timed_count,
    sum_time = CASE WHEN sum_time > 9223372036854775807 - excluded.sum_time THEN 9223372036854775807
        ELSE sum_time + excluded.sum_time END,
    min_time = min(coalesce(min_time, excluded.min_time), coalesce(excluded.min_time, min_time)),
    max_time = max(coalesce(max_time, excluded.max_time), coalesce(excluded.max_time, max_time)),
    histogram = excluded.histogram
"""
_STORED_HISTOGRAMS = """
WITH wanted (project, function, grain, bucket) AS (VALUES {rows})
SELECT project, function, grain, bucket, histogram
FROM wanted CROSS JOIN invocations USING (project, function, grain, bucket)
"""
_ADD_ORIGIN_HITS = """
INSERT INTO origin_hits (project, origin, grain, bucket, families, hits) VALUES {rows}
ON CONFLICT DO UPDATE SET hits = hits + excluded.hits
"""
_ADD_ENTRY_BLOCKS = """
INSERT INTO entry_blocks (project, min_timestamp, max_timestamp, count, dictionary, payload) VALUES {rows}
"""
_ADD_URL_BLOCKS = "INSERT INTO url_blocks (min_timestamp, max_timestamp, count, payload) VALUES {rows}"
_ADD_REJECTS = """
INSERT INTO rejects (log, topic, partition, "offset", timestamp, element, reason, rejected_at, size, data)
VALUES {rows}
"""
_ADD_COUNTERS = """
INSERT INTO counters (topic, name, count) VALUES {rows} ON CONFLICT DO UPDATE SET count = count + excluded.count
"""


def add(
    db: sqlite3.Connection,
    source: Source,
    rows: Rows,
    rejects: Sequence[PlacedReject],
    counts: Mapping[str, int],
    now: int,
) -> None:
    """Add what a batch of a partition came to, within its transaction; `now` in µs is when rejects were made."""
    _run(db, _ADD_INVOCATIONS, _merged(db, rows.invocations))
    _run(db, _ADD_ORIGIN_HITS, rows.origin_hits)
    _run(db, _ADD_ENTRY_BLOCKS, rows.entry_blocks)
    _run(db, _ADD_URL_BLOCKS, rows.url_blocks)
    if rejects:
        kept = [
            (
                *(*source, offset, timestamp, reject.index, reject.reason),
                *(now, len(reject.data), reject.data[:KEPT_REJECT_BYTES]),
            )
            for offset, reject, timestamp in rejects[-KEPT_REJECTS:]
        ]
        _run(db, _ADD_REJECTS, kept)
        db.execute("DELETE FROM rejects WHERE id <= (SELECT max(id) FROM rejects) - ?", (KEPT_REJECTS,))
    _run(db, _ADD_COUNTERS, [(source.topic, name, count) for name, count in counts.items()])


def _merged(db: sqlite3.Connection, invocations: Sequence[Row]) -> list[Row]:
    """The rows with what is stored already merged into their histograms: by Python, so not by a function of SQL's."""
    stored = {tuple(key): found for *key, found in _run(db, _STORED_HISTOGRAMS, [row[:4] for row in invocations])}
    return [(*row[:-1], histogram.merge(stored[row[:4]], row[-1])) if row[:4] in stored else row for row in invocations]


def _run(db: sqlite3.Connection, statement: str, rows: Sequence[Row]) -> list[Row]:
    """Run a statement for all rows, as many at a time as fit; returns what it selects."""
    found: list[Row] = []
    at = 0
    for size in _ROWS_PER_STATEMENT:
        if len(rows) - at < size:
            continue
        sql = statement.format(rows=_placeholders(len(rows[0]), size))
        while len(rows) - at >= size:
            found += db.execute(sql, list(chain.from_iterable(rows[at : at + size])))
            at += size
    return found


@cache
def _placeholders(columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)
