"""Step 4 of the commit protocol: a batch's rows, rejects and counters are added to the tables."""

import sqlite3
from collections.abc import Mapping, Sequence

from schema import histogram
from schema.events import PlacedReject, Source
from streams.packing import Rows

KEPT_REJECTS = 10_000  # the newest; their counters are kept for good
KEPT_REJECT_BYTES = 4096  # of each

_ADD_INVOCATIONS = """
INSERT INTO invocations (project, function, grain, bucket, count, error_count, count_1xx, count_2xx, count_3xx,
    count_4xx, count_5xx, timed_count, sum_time, min_time, max_time, histogram)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
    histogram = merge_histograms(histogram, excluded.histogram)
"""
_ADD_ORIGIN_HITS = """
INSERT INTO origin_hits (project, origin, grain, bucket, families, hits) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET hits = hits + excluded.hits
"""
_ADD_ENTRY_BLOCK = """
INSERT INTO entry_blocks (project, min_timestamp, max_timestamp, count, dictionary, payload)
VALUES (?, ?, ?, ?, ?, ?)
"""
_ADD_URL_BLOCK = "INSERT INTO url_blocks (min_timestamp, max_timestamp, count, payload) VALUES (?, ?, ?, ?)"
_ADD_REJECT = """
INSERT INTO rejects (log, topic, partition, "offset", timestamp, element, reason, rejected_at, size, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_COUNTER = """
INSERT INTO counters (topic, name, count) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count
"""


def register(db: sqlite3.Connection) -> None:
    """Give a connection the functions that `add` calls."""
    db.create_function("merge_histograms", 2, histogram.merge, deterministic=True)


def add(
    db: sqlite3.Connection,
    source: Source,
    rows: Rows,
    rejects: Sequence[PlacedReject],
    counts: Mapping[str, int],
    now: int,
) -> None:
    """Add what a batch of a partition came to, within its transaction; `now` in µs is when rejects were made."""
    db.executemany(_ADD_INVOCATIONS, rows.invocations)
    db.executemany(_ADD_ORIGIN_HITS, rows.origin_hits)
    db.executemany(_ADD_ENTRY_BLOCK, rows.entry_blocks)
    db.executemany(_ADD_URL_BLOCK, rows.url_blocks)
    if rejects:
        db.executemany(
            _ADD_REJECT,
            [
                (
                    *(*source, offset, timestamp, reject.index, reject.reason),
                    *(now, len(reject.data), reject.data[:KEPT_REJECT_BYTES]),
                )
                for offset, reject, timestamp in rejects[-KEPT_REJECTS:]
            ],
        )
        db.execute("DELETE FROM rejects WHERE id <= (SELECT max(id) FROM rejects) - ?", (KEPT_REJECTS,))
    db.executemany(_ADD_COUNTER, [(source.topic, name, count) for name, count in counts.items()])
