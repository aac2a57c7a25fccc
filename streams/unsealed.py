"""Which blocks are to be merged: how unsealed ones are found, by steps in an index, and chosen by their sizes."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schema.blocks import ENTRIES_PER_BLOCK
from schema.retention import ENTRIES, URLS
from schema.timestamps import HOUR, floor_to
from schema.url_blocks import URLS_PER_BLOCK

FANOUT = 16
_MOST_BLOCKS = 2048  # of one merge


class Group(NamedTuple):
    """What is merged together: one UTC hour (its start in µs), of entries one project's."""

    project: str
    hour: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A block, before it is read: its id, and how many requests or entries it holds."""

    id: int
    count: int


class Table:
    """One of the two tables of blocks: `half` is what a block holds that needs no further merge."""

    def __init__(self, name: str, full: int, key: str, columns: str) -> None:
        self.name = name
        self.half = full // 2
        first, where, order = (f"{key}, ", f"{key} = ? AND ", f"{key}, ") if key else ("'', ", "? = '' AND ", "")
        after = f"({key}, max_timestamp) >= (?, ?)" if key else "'' >= ? AND max_timestamp >= ?"
        unsealed = f"FROM {name} INDEXED BY {name}_unsealed WHERE sealed = 0 AND "
        hour = f"{where}max_timestamp >= ? AND max_timestamp < ?"
        self._next = f"SELECT {first}max_timestamp {unsealed}{after} ORDER BY {order}max_timestamp LIMIT 1"
        self._unsealed = f"SELECT id, count {unsealed}{hour} ORDER BY id LIMIT ?"
        self._small = f"SELECT id, count FROM {name} WHERE {hour} AND sealed = 1 AND count < ?"  # noqa: S608
        self.insert = f"INSERT INTO {name} ({columns}, sealed) VALUES ({', '.join('?' * (columns.count(',') + 2))})"  # noqa: S608

    def groups(self, db: sqlite3.Connection) -> Iterator[Group]:
        """All hours (of all projects) with unsealed blocks, by one step in an index each."""
        after = Group("", 0)
        while (row := db.execute(self._next, after).fetchone()) is not None:
            group = Group(row[0], floor_to(row[1], HOUR))
            yield group
            after = Group(group.project, group.hour + HOUR)

    def to_merge(self, db: sqlite3.Connection, group: Group, closing: bool) -> list[Piece]:
        """The blocks to be merged now: in an hour to be closed all that are unsealed, and small ones sealed before."""
        span = (group.project, group.hour, group.hour + HOUR)
        pieces = [Piece(*row) for row in db.execute(self._unsealed, (*span, _MOST_BLOCKS))]
        if not closing:
            return same_tier(pieces)
        return pieces and pieces + [Piece(*row) for row in db.execute(self._small, (*span, self.half))]


TABLES = (
    Table(ENTRIES, ENTRIES_PER_BLOCK, "project", "project, min_timestamp, max_timestamp, count, dictionary, payload"),
    Table(URLS, URLS_PER_BLOCK, "", "min_timestamp, max_timestamp, count, payload"),
)


def same_tier(pieces: Sequence[Piece]) -> list[Piece]:
    """The blocks of the smallest tier that has enough of them to be merged; none where none has."""
    tiers: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        tiers[(piece.count.bit_length() - 1) // (FANOUT.bit_length() - 1)].append(piece)
    return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) >= FANOUT), [])
