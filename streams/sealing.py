"""Sealing: small blocks of one UTC hour are merged into full ones, off the hot path (docs/decisions/0007).

Small batches make small blocks, which cost space and slow queries down. A step of the sealer looks at a few hours (of
entries: a project's hours), going round them for ever:

- In any hour, 16 unsealed blocks of about the same size are merged: of one tier, each tier 16 times the one before. A
  block that comes to half full or more is sealed. So an event is rewritten once a tier at most, however many come.
- Where the hour is over, all that is not sealed yet is merged and sealed. What comes late makes new small blocks; they
  are merged with the hour's small sealed ones, once in a while.

Blocks are read, merged and compressed without the write lock. The transaction then checks that the very blocks are
still there, since another worker or the pruner may have been faster, deletes them and adds what takes their place. A
block never changes, and ids are not used again, so a remembered id means the same content for ever. Of merged entries
the table `arrivals` tells for a while in which block each came, so that whoever follows them misses none.
"""

import fcntl
import logging
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import zstandard

from schema.arrivals import FOLLOWED_BLOCKS, came_in
from schema.blocks import ENTRIES_PER_BLOCK, NO_DICTIONARY, Decompressor, Entry, pack_numbers, unpack_entries
from schema.clock import Clock
from schema.retention import ENTRIES, URLS
from schema.timestamps import HOUR, MINUTE
from schema.url_blocks import URLS_PER_BLOCK, UrlBlock
from streams.dictionary import usable_dictionary
from streams.merging import ENTRY_BYTES_PER_BLOCK, merge_arrivals, merge_entries, merge_urls
from streams.packing import Row, SealedPacker
from streams.store import Store
from streams.unsealed import TABLES, Group, Piece, Table

log = logging.getLogger("freshet.sealing")

GRACE = 5 * MINUTE  # after an hour's end, for what comes a little late
CLOSE_EVERY = 60.0  # seconds between two rounds that seal what came late to hours that are over
STEP_SECONDS = 0.02
_GROUPS_BETWEEN_URLS = 16  # of entries: each project's hour is one
MOST_BYTES = 8 << 20  # of one merge, decompressed


@dataclass(frozen=True, slots=True)
class Merge:
    """Blocks of a table by id, and the rows that take their place; by row of entries, in which block each came."""

    table: str
    ids: Sequence[int]
    rows: Sequence[Row]
    came_in: Sequence[bytes] = ()


class Block(NamedTuple):
    """A block that was read: its id, how many it holds, its payload, and the stored form of that."""

    id: int
    size: int
    payload: bytes
    stored: bytes


_INSERT = {table.name: table.insert for table in TABLES}


class Sealer:
    """Finds and prepares what is to be merged in one generation's database, which it only reads; `commit` writes."""

    def __init__(
        self, path: Path, clock: Clock, close_every: float = CLOSE_EVERY, redacted: Collection[str] = ()
    ) -> None:
        self._clock = clock
        self._redacted = redacted
        self._close_every = close_every
        self._lock = path.with_name("seal.lock")
        self._db = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5, isolation_level=None, check_same_thread=False
        )
        self._plain = Decompressor()
        self._trained: dict[int, Decompressor] = {}
        self._packer = SealedPacker()
        self._damaged: set[tuple[str, Group]] = set()
        self._last_close = float("-inf")
        self._closing = False
        self._round = self._groups()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def prepare(self) -> list[Merge]:
        """A step's merges. None while another worker prepares some, and at the end of a round."""
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return []
            end = time.monotonic() + STEP_SECONDS
            self._use_newest_dictionary()
            merges: list[Merge] = []
            prepared: set[tuple[Table, Group]] = set()  # their blocks are there until all is committed
            while (found := next(self._round, None)) is not None:
                if found not in prepared:
                    prepared.add(found)
                    merges += self._merge(*found)
                if time.monotonic() > end:
                    return merges
            self._round = self._groups()
            return merges

    def _groups(self) -> Iterator[tuple[Table, Group]]:
        """One round: every hour (of every project) with unsealed blocks; the few of URLs several times."""
        self._closing = time.monotonic() - self._last_close >= self._close_every
        if self._closing:
            self._last_close = time.monotonic()
        entries, urls = TABLES
        groups = entries.groups(self._db)
        while some := list(islice(groups, _GROUPS_BETWEEN_URLS)):
            yield from self._undamaged(entries, some)
            yield from self._undamaged(urls, urls.groups(self._db))
        yield from self._undamaged(urls, urls.groups(self._db))

    def _undamaged(self, table: Table, groups: Iterable[Group]) -> Iterator[tuple[Table, Group]]:
        return ((table, group) for group in groups if (table.name, group) not in self._damaged)

    def _merge(self, table: Table, group: Group) -> Iterator[Merge]:
        closing = self._closing and group.hour + HOUR + GRACE <= self._clock()
        chosen = table.to_merge(self._db, group, closing)
        if not chosen:
            return
        try:
            self._db.execute("BEGIN")  # a block and its dictionary as of one moment
            try:
                blocks = self._read(table, chosen)
            finally:
                self._db.execute("COMMIT")
            came: Sequence[bytes] = ()
            if table.name == ENTRIES:
                rows, came = self._entries(group.project, blocks, closing)
            else:
                rows = self._urls(blocks, closing)
            yield Merge(table.name, [block.id for block in blocks], rows, came)
        except zstandard.ZstdError as error:
            log.error("%s: a block of %s can't be read (%s); they stay as they are", table.name, group, error)
            self._damaged.add((table.name, group))

    def _read(self, table: Table, pieces: Sequence[Piece]) -> list[Block]:
        """The first block, and of the others as many as are not too much for one merge."""
        select = {
            ENTRIES: "SELECT dictionary, payload FROM entry_blocks WHERE id = ?",
            URLS: "SELECT 0, payload FROM url_blocks WHERE id = ?",
        }[table.name]
        blocks: list[Block] = []
        size = 0
        for piece in pieces:
            row = self._db.execute(select, (piece.id,)).fetchone()
            if row is None:
                continue  # another worker or the pruner was faster
            payload = self._decompressor(row[0]).decompress(row[1])
            size += len(payload)
            if blocks and size > MOST_BYTES:
                break
            blocks.append(Block(piece.id, piece.count, payload, row[1]))
        return blocks

    def _entries(self, project: str, blocks: Sequence[Block], closing: bool) -> tuple[list[Row], list[bytes]]:
        """The rows of the merged entries, and for each the ids of the blocks in which its entries came."""
        entries = [unpack_entries(block.payload, block.size, block.stored) for block in blocks]
        came = iter(merge_arrivals(entries, [came_in(self._db, block.id, block.size) for block in blocks]))
        parts = list(merge_entries(entries))
        rows = [self._entry_block(project, part, closing) for part in parts]
        return rows, [zlib.compress(pack_numbers("q", list(islice(came, len(part))))) for part in parts]

    def _entry_block(self, project: str, part: Sequence[Entry], closing: bool) -> Row:
        """The row of merged entries: sealed at an hour's close, and where they are half a block or few large ones."""
        large = sum(len(entry.data) for entry in part) >= ENTRY_BYTES_PER_BLOCK // 2
        sealed = closing or large or len(part) >= ENTRIES_PER_BLOCK // 2
        pack = self._packer.sealed_entry_block if sealed else self._packer.entry_block
        return (*pack(project, part), int(sealed))

    def _urls(self, blocks: Sequence[Block], closing: bool) -> list[Row]:
        merged = merge_urls([UrlBlock(block.payload) for block in blocks])
        rows = [self._packer.url_block(*part) for part in merged]
        return [(*row, int(closing or self._is_done(row))) for row in rows]

    @staticmethod
    def _is_done(row: Row) -> bool:
        """Whether a merged block of URLs is worth no further merge: half full, or few long ones."""
        large = zstandard.frame_content_size(row[-1]) >= ENTRY_BYTES_PER_BLOCK // 2
        return bool(row[-2] >= URLS_PER_BLOCK // 2 or large)

    def _use_newest_dictionary(self) -> None:
        newest = usable_dictionary(self._db, self._redacted)
        if newest != self._packer.dictionary_id:
            self._packer = SealedPacker(newest, self._content(newest))

    def _decompressor(self, dictionary: int) -> Decompressor:
        if dictionary == NO_DICTIONARY:
            return self._plain
        if dictionary not in self._trained:
            self._trained[dictionary] = Decompressor(self._content(dictionary))
        return self._trained[dictionary]

    def _content(self, dictionary: int) -> bytes:
        row = self._db.execute("SELECT content FROM dictionaries WHERE id = ?", (dictionary,)).fetchone()
        return bytes(row[0])


def commit(store: Store, merges: Sequence[Merge]) -> int:
    """Replace blocks by what they were merged into, those whose ids are all there still; returns how many went.

    Raises what a write to the store raises.
    """
    if not merges:
        return 0
    replaced = 0
    with store.transaction() as db:
        for merge in merges:
            places = ", ".join("?" * len(merge.ids))
            found = f"SELECT count(*) FROM {merge.table} WHERE id IN ({places})"  # noqa: S608  # a name of our own
            if db.execute(found, merge.ids).fetchone() == (len(merge.ids),):
                db.execute(f"DELETE FROM {merge.table} WHERE id IN ({places})", merge.ids)  # noqa: S608
                if merge.came_in:
                    _add_with_arrivals(db, merge)
                else:
                    db.executemany(_INSERT[merge.table], merge.rows)
                replaced += len(merge.ids)
    return replaced


def _add_with_arrivals(db: sqlite3.Connection, merge: Merge) -> None:
    for row, came in zip(merge.rows, merge.came_in, strict=True):
        block = db.execute(_INSERT[merge.table], row).lastrowid
        db.execute("INSERT INTO arrivals (block, came_in) VALUES (?, ?)", (block, came))
    db.execute("DELETE FROM arrivals WHERE block < ?", (int(block or 0) - FOLLOWED_BLOCKS,))
