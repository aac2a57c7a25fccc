"""What a replay keeps of the tables, because the log no longer has it (docs/decisions/0006-replay.md).

The log is cut by offset, the tables by event time. Marks tell how new the events before an offset can be; the cut is
the first UTC midnight after that. What the tables hold of the time before the cut is kept, and replayed events from
before it are left out, since they are in what is kept. No bucket and no block straddles a midnight.

Blocks are copied while the old store goes on, and its workers seal: a copied block may be merged into a new one, which
would then be copied as well. So the new store notes which block is whose copy, and copies of blocks that are gone from
the state that is copied go too.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from schema.blocks import NO_DICTIONARY
from schema.errors import LogError
from schema.events import Source
from schema.retention import ENTRIES, INVOCATIONS, ORIGIN_HITS, URLS
from schema.timestamps import DAY, floor_to
from streams.content import snapshot
from streams.kept_rejects import Replayed, take_over_rejects
from streams.store import Store

EVERYTHING = 1 << 62
"""The cut of a topic that is not replayed: all that its tables hold is kept."""

_BLOCKS_A_STEP = 500
_BLOCK_COLUMNS = {
    ENTRIES: ("project", "min_timestamp", "max_timestamp", "count", "sealed", "dictionary", "payload"),
    URLS: ("min_timestamp", "max_timestamp", "count", "sealed", "payload"),
}
_BOUND = """
SELECT coalesce(
    (SELECT largest_timestamp FROM marks WHERE log = :log AND topic = :topic AND partition = :partition
        AND "offset" >= :start ORDER BY "offset" LIMIT 1),
    largest_timestamp
), next_offset, last_offset FROM positions WHERE log = :log AND topic = :topic AND partition = :partition
"""


def cut_of(store: Path, topic: str, starts: Mapping[Source, int]) -> int:
    """The cut of a topic whose partitions are replayed from these offsets, in µs; 0 where nothing has to be kept.

    Logs that the topic had before it was created anew count as well. Raises LogError where events before an offset
    were applied and no mark tells how new they are.
    """
    bounds: list[int] = []
    with snapshot(store) as db:
        for source, start in starts.items():
            log, _, partition = source
            row = db.execute(_BOUND, {"log": log, "topic": topic, "partition": partition, "start": start}).fetchone()
            if start == 0 or row is None:
                continue
            largest, next_offset, last_offset = row
            if largest is not None:
                bounds.append(largest)
            elif next_offset > 0 and last_offset is not None and _applied_any(db, topic):
                raise LogError(f"{source}: no mark tells what the tables hold from before offset {start}")
        logs = {source.log for source in starts}
        former = "SELECT log, max(largest_timestamp) FROM positions WHERE topic = ? GROUP BY log"
        for log, largest in db.execute(former, (topic,)):
            if log not in logs and largest is not None:
                bounds.append(largest)
    return floor_to(max(bounds), DAY) + DAY if bounds else 0


def _applied_any(db: sqlite3.Connection, topic: str) -> bool:
    return db.execute("SELECT 1 FROM counters WHERE topic = ? AND name = 'events'", (topic,)).fetchone() is not None


class Keeper:
    """Copies what is kept from a state of the old store to the new: blocks in steps, the rest as often as asked."""

    def __init__(self, new: Store, edge_cut: int, functions_cut: int) -> None:
        self._new = new
        self._cuts = {INVOCATIONS: functions_cut, ORIGIN_HITS: edge_cut, ENTRIES: edge_cut, URLS: edge_cut}
        self._dictionaries = {NO_DICTIONARY: NO_DICTIONARY}

    def copy_blocks(self, old: sqlite3.Connection, copied: dict[str, int]) -> Iterator[int]:
        """Copy the blocks before the cut that are newer than those `copied` already (ids by table), a step each time.

        Gives how many blocks each step has copied, and keeps `copied` up to date in the same transaction.
        """
        with self._new.transaction() as db:
            _copy(old, db, "horizons", "TRUE", ())
        for table, columns in _BLOCK_COLUMNS.items():
            places = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608  # names of our own
            while rows := self._blocks(old, table, columns, copied.get(table, 0)):
                with self._new.transaction() as db:
                    if table == ENTRIES:
                        rows = [(*row[:-2], self._dictionary(old, db, row[-2]), row[-1]) for row in rows]
                    copies = [(table, row[0], db.execute(insert, row[1:]).lastrowid) for row in rows]
                    db.executemany("INSERT INTO copies (kind, original, copy) VALUES (?, ?, ?)", copies)
                    copied[table] = rows[-1][0]
                    self._new.note_replay(db, {"copied": copied})
                yield len(rows)
            self._remove_orphans(old, table)

    def _dictionary(self, old: sqlite3.Connection, new: sqlite3.Connection, number: int) -> int:
        """The id in the new store of a dictionary that a block names; copied with the first block that does."""
        if number not in self._dictionaries:
            columns = "trained_at, content, redacted"
            row = old.execute(f"SELECT {columns} FROM dictionaries WHERE id = ?", (number,)).fetchone()  # noqa: S608
            there = new.execute("SELECT id FROM dictionaries WHERE content = ?", (row[1],)).fetchone()
            insert = f"INSERT INTO dictionaries ({columns}) VALUES (?, ?, ?) RETURNING id"  # noqa: S608
            (self._dictionaries[number],) = there or new.execute(insert, row).fetchone()
        return self._dictionaries[number]

    def _remove_orphans(self, old: sqlite3.Connection, table: str) -> None:
        """Delete copies of blocks that the old store no longer has: merged into others, or expired."""
        with self._new.transaction() as db:
            there = {number for (number,) in old.execute(f"SELECT id FROM {table}")}  # noqa: S608
            copies = db.execute("SELECT original, copy FROM copies WHERE kind = ?", (table,)).fetchall()
            gone = [(original, copy) for original, copy in copies if original not in there]
            db.executemany(f"DELETE FROM {table} WHERE id = ?", [(copy,) for _, copy in gone])  # noqa: S608
            db.executemany("DELETE FROM copies WHERE kind = ? AND original = ?", [(table, one) for one, _ in gone])

    def copy_rest(
        self, old: sqlite3.Connection, replayed: Mapping[Source, Replayed], recounted: Collection[str]
    ) -> None:
        """Copy buckets before the cut, positions not replayed, counters and rejects of topics not recounted."""
        with self._new.transaction() as db:
            for table in (INVOCATIONS, ORIGIN_HITS):
                cut = self._cuts[table]
                db.execute(f"DELETE FROM {table} WHERE bucket < ?", (cut,))  # noqa: S608
                _copy(old, db, table, "bucket < ?", (cut,))
            for row in old.execute("SELECT log, topic, partition, largest_timestamp, gaps FROM positions").fetchall():
                source = Source(*row[:3])
                if source in replayed:
                    db.execute(
                        """UPDATE positions SET largest_timestamp = ?, gaps = ?
                        WHERE log = ? AND topic = ? AND partition = ?""",
                        (*row[3:], *source),
                    )
                else:
                    of_source = "log = ? AND topic = ? AND partition = ?"
                    db.execute(f"DELETE FROM recent_ids WHERE {of_source}", source)  # noqa: S608
                    _copy(old, db, "positions", of_source, source)
                    _copy(old, db, "recent_ids", of_source, source)
            for (topic,) in old.execute("SELECT DISTINCT topic FROM counters").fetchall():
                if topic not in recounted:
                    db.execute("DELETE FROM counters WHERE topic = ?", (topic,))
                    _copy(old, db, "counters", "topic = ?", (topic,))
                    take_over_rejects(old, db, topic, replayed)

    def require_same_logs(self, old: sqlite3.Connection) -> None:
        """Raises LogError where a topic was accepted as created anew since the replay began."""
        query = "SELECT cluster, topic, count FROM recreations ORDER BY cluster, topic"
        with self._new.transaction() as db:
            if old.execute(query).fetchall() != db.execute(query).fetchall():
                raise LogError(
                    "a topic was accepted as created anew meanwhile: --discard this replay, and start another"
                )

    def copy_frame(self, old: sqlite3.Connection) -> None:
        """Copy what holds for both: horizons, marks, and the topics' recreations."""
        with self._new.transaction() as db:
            for table in ("horizons", "marks", "recreations"):
                _copy(old, db, table, "TRUE", ())

    def _blocks(
        self, old: sqlite3.Connection, table: str, columns: tuple[str, ...], after: int
    ) -> list[tuple[Any, ...]]:
        return old.execute(
            f"SELECT id, {', '.join(columns)} FROM {table} "  # noqa: S608
            "WHERE id > ? AND max_timestamp < ? ORDER BY id LIMIT ?",
            (after, self._cuts[table], _BLOCKS_A_STEP),
        ).fetchall()


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, where: str, values: tuple[Any, ...]) -> None:
    """Copy a table's rows for which a condition holds, replacing those with the same key."""
    columns = [name for _, name, *_ in old.execute(f"PRAGMA table_info({table})")]
    names = ", ".join(f'"{name}"' for name in columns)
    new.executemany(
        f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})",  # noqa: S608
        old.execute(f"SELECT {names} FROM {table} WHERE {where}", values),  # noqa: S608
    )
