"""Rejects as a store keeps them: the newest 10,000 with their first 4 KB, found by where they come from and why."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from schema.events import Source
from schema.messages import is_pruned
from schema.redaction import is_length_alone


class KeptReject(NamedTuple):
    """One reject: its message's partition, offset and time in ms (0: none known), and its place in the message.

    `rejected_at` in µs; `size` is that of all its bytes, `data` has the first of them. A replay has read its events
    from `folded_from` (µs) on, None: none of them (docs/decisions/0010-retry.md).
    """

    id: int
    source: Source
    offset: int
    timestamp: int
    element: int
    reason: str
    rejected_at: int
    size: int
    folded_from: int | None
    data: bytes

    @property
    def whole(self) -> bool:
        """Whether `data` is all that it came as."""
        return len(self.data) == self.size and not is_pruned(self.data) and not is_length_alone(self.data)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rejects are meant: of these reasons and topics (empty: any), rejected at times [since, until) in µs."""

    reasons: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    partition: int | None = None
    offset: int | None = None

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """The same in SQL, and its parameters."""
        parts = ["TRUE"]
        values: list[Any] = []
        for column, words in (("reason", self.reasons), ("topic", self.topics)):
            if words:
                parts.append(f"{column} IN ({', '.join('?' * len(words))})")
                values += words
        for comparison, value in (
            ("rejected_at >= ?", self.since),
            ("rejected_at < ?", self.until),
            ("partition = ?", self.partition),
            ('"offset" = ?', self.offset),
        ):
            if value is not None:
                parts.append(comparison)
                values.append(value)
        return " AND ".join(parts), values


_SELECT = """
SELECT id, log, topic, partition, "offset", timestamp, element, reason, rejected_at, size, folded_from, data
FROM rejects
"""


def newest(db: sqlite3.Connection, wanted: Wanted, most: int = -1) -> Iterator[KeptReject]:
    """The rejects meant, the newest first; at most so many (-1: all)."""
    condition, values = wanted.condition
    return _rejects(db.execute(f"{_SELECT} WHERE {condition} ORDER BY id DESC LIMIT ?", (*values, most)))


def with_ids(db: sqlite3.Connection, ids: Iterable[int]) -> list[KeptReject]:
    """Those of these rejects that are still there."""
    found = (db.execute(f"{_SELECT} WHERE id = ?", (number,)) for number in ids)
    return [reject for rows in found for reject in _rejects(rows)]


def counted(db: sqlite3.Connection, wanted: Wanted) -> list[tuple[str, str, int]]:
    """How many of the rejects meant are kept, by topic and reason."""
    condition, values = wanted.condition
    query = f"SELECT topic, reason, count(*) FROM rejects WHERE {condition} GROUP BY 1, 2 ORDER BY 1, 2"  # noqa: S608
    return db.execute(query, values).fetchall()


def retried_counts(db: sqlite3.Connection) -> dict[tuple[str, str], int]:
    """How many rejects a retry has folded, by topic and reason."""
    rows = db.execute("SELECT topic, substr(name, 9), count FROM counters WHERE name LIKE 'retried.%'")
    return {(topic, reason): count for topic, reason, count in rows}


def messages(db: sqlite3.Connection, wanted: Wanted) -> list[tuple[Source, list[int]]]:
    """The ids of the rejects meant, message by message in the order of the log.

    Those of one message that a replay has treated alike are together; one of the message as a whole is by itself.
    """
    condition, values = wanted.condition
    rows = db.execute(
        f"""SELECT log, topic, partition, json_group_array(id) FROM rejects WHERE {condition}
        GROUP BY log, topic, partition, "offset", folded_from, element < 0
        ORDER BY log, topic, partition, "offset", folded_from""",  # noqa: S608  # conditions of our own
        values,
    )
    return [(Source(log, topic, partition), json.loads(ids)) for log, topic, partition, ids in rows]


def _rejects(rows: Iterable[tuple[Any, ...]]) -> Iterator[KeptReject]:
    for number, log, topic, partition, *rest in rows:
        yield KeptReject(number, Source(log, topic, partition), *rest)
