"""Which events a partition's log holds twice: the ids taken lately, kept beside the partition's position.

A partition's time is the largest timestamp among the records whose ids have been looked at, floored to a tenth of the
window; it never goes back. An id is known from the record that brought it until the partition's time is more than the
window past its own then: at least the window, at most a tenth longer. So a decision depends on the log's order
alone: not on a clock, nor on how batches are cut. docs/decisions/0011-deduplication.md has the rest.
"""

import sqlite3
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from schema.events import Source

MARK_BYTES = 12
"""Of the hash kept of a project and an id: among a million ids known, one of 10²³ events matches by chance."""
MOST_IDS = 1 << 20
"""Ids known of one partition; with more the oldest are forgotten before their time."""
_SLOTS = 10  # of a window

_marks = blake2b(digest_size=MARK_BYTES)


class StoredIds(NamedTuple):
    """Ids of one batch and one slot: the slot's start in ms, the batch's start, and their marks in a row.

    Without marks it tells how far the partition's time has come.
    """

    time: int
    offset: int
    marks: bytes


class IdChanges(NamedTuple):
    """What a batch's transaction does to the ids kept: adds these, and forgets all before a (time, offset)."""

    added: list[StoredIds]
    first: tuple[int, int]


class _Run:
    """How many of the ids known belong to a slot and a batch."""

    __slots__ = ("count", "offset", "time")

    def __init__(self, time: int, offset: int, count: int = 0) -> None:
        self.time, self.offset, self.count = time, offset, count


class RecentIds:
    """The ids known of a partition as of `position`, the next offset; `window` in ms.

    Changed by the batch in hand, so it is to be loaded anew wherever a batch comes to nothing.
    """

    def __init__(self, window: int, position: int, stored: Iterable[StoredIds] = (), most: int = MOST_IDS) -> None:
        self.position = position
        self._window, self._width, self._most = window, window // _SLOTS, most
        self._time = self._offset = 0
        self._order: deque[bytes] = deque()
        self._runs: deque[_Run] = deque()
        for time, offset, marks in stored:
            self._time = time
            self._runs.append(_Run(time, offset, len(marks) // MARK_BYTES))
            self._order.extend(marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES))
        self._known: set[bytes] = set()
        self._added: list[tuple[int, bytearray]] = []
        self._expire()
        self._forget(len(self._order) - most)
        self._known.update(self._order)  # not before: one that was forgotten may have been taken again

    def begin(self, start: int) -> None:
        """A batch from this offset on is looked at."""
        self._offset = start
        self._added = []

    def is_duplicate(self, project: str, identity: str, timestamp: int) -> bool:
        """Whether an event's id is known, in a record of this time in ms (0 or less: none); if not, it is now."""
        time = timestamp - timestamp % self._width
        if time > self._time:
            self._time = time
            self._open()
            self._expire()
        hashing = _marks.copy()
        hashing.update(f"{len(project)} {project}{identity}".encode())
        mark = hashing.digest()
        if mark in self._known:
            return True
        if not self._added:
            self._open()
        self._known.add(mark)
        self._order.append(mark)
        self._added[-1][1].extend(mark)
        self._runs[-1].count += 1
        if len(self._order) > self._most:
            self._forget(1)
        return False

    def end(self, end: int) -> IdChanges | None:
        """The batch reaches to this offset; returns what its transaction has to write, None where that is nothing."""
        self.position = end
        if not self._added:
            return None
        added = [StoredIds(time, self._offset, bytes(marks)) for time, marks in self._added if marks]
        if not added or added[-1].time < self._time:
            added.append(StoredIds(self._time, self._offset, b""))
        return IdChanges(added, (self._runs[0].time, self._runs[0].offset))

    def _open(self) -> None:
        self._added.append((self._time, bytearray()))
        self._runs.append(_Run(self._time, self._offset))

    def _expire(self) -> None:
        while self._runs and self._runs[0].time < self._time - self._window:
            for _ in range(self._runs.popleft().count):
                self._known.discard(self._order.popleft())

    def _forget(self, count: int) -> None:
        """Forget the oldest ids, however new."""
        for _ in range(count):
            while not self._runs[0].count:
                self._runs.popleft()
            self._runs[0].count -= 1
            self._known.discard(self._order.popleft())


def load(db: sqlite3.Connection, source: Source) -> list[StoredIds]:
    """What a partition's batches have written and not yet forgotten, in their order."""
    query = """
        SELECT time, "offset", marks FROM recent_ids WHERE log = ? AND topic = ? AND partition = ?
        ORDER BY time, "offset"
    """
    return [StoredIds(*row) for row in db.execute(query, source)]


def recent_ids(db: sqlite3.Connection, source: Source, window: int, position: int) -> RecentIds:
    """The ids known of a partition that stands at this position, for a window in ms."""
    return RecentIds(window, position, load(db, source))


def save(db: sqlite3.Connection, source: Source, changes: IdChanges) -> None:
    """Write a batch's changes, within its transaction."""
    db.executemany(
        'INSERT INTO recent_ids (log, topic, partition, time, "offset", marks) VALUES (?, ?, ?, ?, ?, ?)',
        [(*source, *stored) for stored in changes.added],
    )
    db.execute(
        'DELETE FROM recent_ids WHERE log = ? AND topic = ? AND partition = ? AND (time, "offset") < (?, ?)',
        (*source, *changes.first),
    )
