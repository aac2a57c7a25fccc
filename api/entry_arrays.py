"""The table function recent_entries_array: what recent_entries answers, as JSON text in one row (few where it is long).

A block never changes and its id is not used again within a generation, so the rows of blocks read lately are kept as
they are to be sent: 100 entries of 2.5 KB take 0.1 ms instead of 0.7, of which half went into handing them to SQLite
and back, value by value.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter, eq
from typing import Any, NamedTuple

import apsw
import msgspec

from api.deadline import Deadline
from api.recent_entries import EntryRow, drop_older, entry_row, recent_entries
from schema.blocks import unpack_entries
from schema.timestamps import HOUR

_BLOCKS = """
SELECT id, max_timestamp FROM entry_blocks
WHERE project = ? AND max_timestamp > ? AND max_timestamp < ? AND min_timestamp <= ?
ORDER BY max_timestamp DESC
"""
_BLOCK = "SELECT count, dictionary, payload FROM entry_blocks WHERE id = ?"
_FOREVER = 1 << 62
_LONGEST_ARRAY = 16 << 20  # bytes, unless a single entry takes more
_OF_EACH_ROW = 250  # bytes of memory beside its text
_order = attrgetter("timestamp", "id", "record")
_place = attrgetter("timestamp", "id")
_timestamp = attrgetter("timestamp")
_encode = msgspec.json.Encoder().encode


class Written(NamedTuple):
    """An entry as it is answered: time (µs) and id, by which rows are ordered, and its JSON text."""

    timestamp: int
    id: str
    text: bytes


Block = tuple[Written, ...]
"""A block's entries in ascending order of time, id and record."""


class WrittenBlocks:
    """The blocks read last, by generation and id, in at most so many bytes. Safe for threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self.bytes = 0

    def get(self, generation: int, number: int) -> Block | None:
        """A block that is kept."""
        with self._lock:
            block = self._blocks.get((generation, number))
            if block is not None:
                self._blocks.move_to_end((generation, number))
            return block

    def keep(self, generation: int, number: int, block: Block) -> None:
        """Keep a block; those used longest ago make room, but not for one that takes more than there is."""
        size = _size(block)
        with self._lock:
            if size <= self._most and (generation, number) not in self._blocks:
                self._blocks[generation, number] = block
                self.bytes += size
                while self.bytes > self._most:
                    self.bytes -= _size(self._blocks.popitem(last=False)[1])


def recent_entries_array(
    db: apsw.Connection,
    decompress: Callable[[int, bytes], bytes],
    deadline: Deadline,
    written: WrittenBlocks,
    generation: int,
    project: str,
    after: int,
    until: int | None,
    limit: int,
) -> list[tuple[bytes, int]]:
    """What `recent_entries` answers as JSON arrays, each with its number of entries: one, but where it is too long."""
    end = _FOREVER if until is None else until
    found: list[Written] = []
    mixed = False  # whether blocks overlap, so that order has to be made
    for number, newest in db.execute(_BLOCKS, (project, after, end + HOUR, end)):
        if len(found) >= limit and newest < found[-1].timestamp:
            break
        deadline.check()
        block = written.get(generation, number)
        if block is None:
            block = _read(db, decompress, number)
            written.keep(generation, number, block)
        first = bisect_right(block, after, key=_timestamp) if block[0].timestamp <= after else 0
        last = bisect_right(block, end, key=_timestamp) if block[-1].timestamp > end else len(block)
        mixed = mixed or bool(found and newest >= found[-1].timestamp)
        found += block[first:last][::-1]
        if mixed:
            found.sort(key=_place, reverse=True)
        drop_older(found, limit)
    if mixed and any(map(eq, map(_place, found), map(_place, found[1:]))):  # the records tell their order
        rows = recent_entries(db, decompress, deadline, project, after, until, limit)
        found = [_written(EntryRow(*row[1:])) for row in rows]
    return [(b"[%b]" % b",".join(texts), len(texts)) for texts in _pieces([row.text for row in found[:limit]])]


def _pieces(texts: list[bytes]) -> list[list[bytes]]:
    """Cut where the array would be more than SQLite takes as a value."""
    pieces: list[list[bytes]] = [[]]
    size = 0
    for text in texts:
        size += len(text)
        if size > _LONGEST_ARRAY and pieces[-1]:
            pieces.append([])
            size = len(text)
        pieces[-1].append(text)
    return pieces


def _read(db: apsw.Connection, decompress: Callable[[int, bytes], bytes], number: int) -> Block:
    row: Any = db.execute(_BLOCK, (number,)).fetchone()
    count, dictionary, payload = row
    entries = unpack_entries(decompress(dictionary, payload), count, payload)
    return tuple(map(_written, sorted(map(entry_row, entries), key=_order)))


def _written(row: EntryRow) -> Written:
    text = _encode(
        {
            "id": row.id,
            "timestamp": row.timestamp,
            "event_message": row.event_message,
            "metadata": msgspec.Raw(row.metadata),
        }
    )
    return Written(row.timestamp, row.id, text)


def _size(block: Block) -> int:
    return sum(len(row.text) for row in block) + _OF_EACH_ROW * len(block)
