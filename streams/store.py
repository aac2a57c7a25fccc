"""The write side's store: a batch's deltas and its position in one transaction.

The commit protocol of a batch [start, end) of a partition; docs/guarantees.md and the tests use the same numbers:

1. What needs no lock is done before: decode, fold, pack. Then BEGIN IMMEDIATE.
2. A retired generation takes nothing: ROLLBACK, StoreRetired; the worker waits for the one that takes its place.
3. Compare and set: the partition's position moves from `start` to `end`. Where it does not stand at `start`, another
   worker has been here or a batch before this one was dropped: ROLLBACK, nothing is applied, and the caller seeks to
   the stored position.
4. The deltas, the rejects, the counters and the ids seen are added.
5. COMMIT. Only from here on is anything of the batch visible, and then all of it.

A crash before 5 leaves nothing, a crash after it leaves everything, and either way the next batch starts where the
position stands.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from schema.blocks import NO_DICTIONARY
from schema.clock import Clock
from schema.errors import StoreRetired
from schema.events import PlacedReject, Source
from schema.retention import Horizons, Kind
from schema.timestamps import MINUTE
from streams import duplicates
from streams.adding import add
from streams.dictionary import usable_dictionary
from streams.duplicates import IdChanges
from streams.packing import Rows

MARK_EVERY = 10 * MINUTE
_BUSY_SECONDS = 5.0
_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}

_MOVE = """
UPDATE positions SET next_offset = :end, end_offset = :end_offset, applied_at = :now,
    last_offset = coalesce(:offset, last_offset), last_timestamp = coalesce(:timestamp, last_timestamp),
    last_crc = coalesce(:crc, last_crc),
    largest_timestamp = max(coalesce(largest_timestamp, :largest), coalesce(:largest, largest_timestamp))
WHERE log = :log AND topic = :topic AND partition = :partition AND next_offset = :start
RETURNING largest_timestamp
"""


class LastRecord(NamedTuple):
    """What is remembered of a partition's last applied record: offset, Kafka timestamp in ms, CRC-32 of its value."""

    offset: int
    timestamp: int
    crc: int


class Position(NamedTuple):
    """How far a partition has been applied: its next offset, and the last record applied (None before the first)."""

    next_offset: int
    last: LastRecord | None


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """All that one batch writes: offsets [start, end) of a partition, and what they came to.

    `last` is None where the batch holds no records; `end_offset` is the log's end when the batch was fetched;
    `largest_timestamp` that of its events, in µs.
    """

    source: Source
    start: int
    end: int
    end_offset: int
    last: LastRecord | None = None
    largest_timestamp: int | None = None
    rows: Rows = field(default_factory=Rows)
    rejects: Sequence[PlacedReject] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    id_changes: IdChanges | None = None


def log_identity(cluster: str, recreations: int) -> str:
    """The identity of a topic's log: its cluster's, and how often the topic was accepted as created anew."""
    return f"{cluster}.{recreations}"


def is_transient(error: BaseException) -> bool:
    """Whether a write that failed may succeed later as it is: the database is locked, the disk is full, I/O failed."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.OperationalError) and code is not None and code & 0xFF in _TRANSIENT


class Store:
    """One generation's database, opened for writing. One thread at a time may use it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        for pragma in ("synchronous = normal", "cache_size = -8000", "journal_size_limit = 67108864"):
            self._db.execute(f"PRAGMA {pragma}")

    def close(self) -> None:
        """Close the database; an open transaction is rolled back."""
        self._db.close()

    def apply(self, batch: FoldedBatch) -> bool:
        """Add a batch by the protocol above. False where its partition does not stand at its start (step 3).

        Raises StoreRetired (step 2), and sqlite3.Error where the write fails: then nothing of the batch is there.
        """
        with self.transaction() as db:
            if not self._move(db, batch):
                return False
            self._add(db, batch)
        return True

    def open_positions(
        self, beginnings: Mapping[Source, int], ends: Mapping[Source, int] | None = None
    ) -> dict[Source, Position]:
        """The positions of partitions, given the offsets at which their logs begin; one not known yet starts there.

        `ends` are those at which they end: before its first batch a partition must not look as if all were applied.
        """
        positions: dict[Source, Position] = {}
        with self.transaction() as db:
            for source, beginning in beginnings.items():
                db.execute(
                    """INSERT INTO positions (log, topic, partition, next_offset, end_offset, applied_at)
                    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
                    (*source, beginning, (ends or beginnings)[source], self._clock()),
                )
                row = db.execute(
                    """SELECT next_offset, last_offset, last_timestamp, last_crc FROM positions
                    WHERE log = ? AND topic = ? AND partition = ?""",
                    source,
                ).fetchone()
                positions[source] = Position(row[0], None if row[1] is None else LastRecord(*row[1:]))
        return positions

    def note_gap(self, source: Source, start: int, end: int) -> None:
        """Step over offsets [start, end), which the log no longer has, and remember them."""
        gap = json.dumps([start, end, self._clock()])
        with self.transaction() as db:
            db.execute(
                """UPDATE positions SET next_offset = ?, gaps = json_insert(gaps, '$[#]', json(?)),
                    last_offset = NULL, last_timestamp = NULL, last_crc = NULL
                WHERE log = ? AND topic = ? AND partition = ? AND next_offset = ?""",
                (end, gap, *source, start),
            )

    @property
    def connection(self) -> sqlite3.Connection:
        """For reads outside of a transaction, each of the state at its moment."""
        return self._db

    def horizons(self) -> dict[Kind, int]:
        """What has expired for good."""
        return {(kind, grain): horizon for kind, grain, horizon in self._db.execute("SELECT * FROM horizons")}

    def advance_horizons(self, horizons: Horizons) -> dict[Kind, int]:
        """Let horizons grow to these; one that stands further on stays. Returns all as they stand then."""
        with self.transaction() as db:
            db.executemany(
                """INSERT INTO horizons (kind, grain, horizon) VALUES (?, ?, ?)
                ON CONFLICT DO UPDATE SET horizon = max(horizon, excluded.horizon)""",
                [(*kind, horizon) for kind, horizon in horizons.items()],
            )
        return self.horizons()

    def retired(self) -> bool:
        """Whether this generation takes nothing any more."""
        (retired,) = self._db.execute("SELECT retired FROM store").fetchone()
        return bool(retired)

    def replay_state(self) -> dict[str, Any]:
        """What the replay that makes this generation has noted; nothing where it is finished."""
        (noted,) = self._db.execute("SELECT replay FROM store").fetchone()
        state: dict[str, Any] = json.loads(noted) if noted is not None else {}
        return state

    def note_replay(self, db: sqlite3.Connection, state: Mapping[str, Any]) -> None:
        """Add to what the replay has noted, within a transaction."""
        noted = self.replay_state() | dict(state)
        db.execute("UPDATE store SET replay = ?", (json.dumps(noted),))

    def finish_replay(self) -> None:
        """This generation is complete."""
        with self.transaction() as db:
            db.execute("UPDATE store SET replay = NULL")
            db.execute("DELETE FROM copies")

    def recreations(self, cluster: str) -> dict[str, int]:
        """How often each topic of a cluster has been accepted as created anew."""
        return dict(self._db.execute("SELECT topic, count FROM recreations WHERE cluster = ?", (cluster,)).fetchall())

    def accept_recreation(self, cluster: str, topic: str) -> int:
        """Take a topic's present log as a new one, read from its start; returns how often that has happened."""
        with self.transaction() as db:
            (count,) = db.execute(
                """INSERT INTO recreations (cluster, topic, count) VALUES (?, ?, 1)
                ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count""",
                (cluster, topic),
            ).fetchone()
            db.execute("DELETE FROM recent_ids WHERE topic = ?", (topic,))
        return int(count)

    def dictionary(self, redacted: Collection[str] = ()) -> tuple[int, bytes | None]:
        """The dictionary for entry blocks and its id, with these kinds redacted; (0, None) before one is trained."""
        number = usable_dictionary(self._db, redacted)
        row = self._db.execute("SELECT id, content FROM dictionaries WHERE id = ?", (number,)).fetchone()
        return (row[0], row[1]) if row is not None else (NO_DICTIONARY, None)

    def add_dictionary(self, content: bytes, redacted: Collection[str] = ()) -> tuple[int, bytes | None]:
        """Keep the first dictionary; where another worker was faster, its own is returned instead."""
        with self.transaction() as db:
            if usable_dictionary(db, redacted) == NO_DICTIONARY:
                db.execute(
                    "INSERT INTO dictionaries (trained_at, content, redacted) VALUES (?, ?, ?)",
                    (self._clock(), content, ",".join(redacted)),
                )
            return self.dictionary(redacted)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction with this store's connection: committed at the end, rolled back on any exception.

        Raises StoreRetired where another generation has taken this one's place.
        """
        db = self._db
        db.execute("BEGIN IMMEDIATE")  # step 1
        try:
            if self.retired():  # step 2
                raise StoreRetired(
                    f"{self.path} was replaced by a newer generation: start the worker again to use that"
                )
            yield db
            db.execute("COMMIT")  # step 5
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    def note_largest(self, db: sqlite3.Connection, source: Source, offset: int, largest: int) -> None:
        """Within a transaction: an event of this time (µs) came out of an offset behind the position after all.

        What bounds how new the events before an offset are has to hold for it too: a replay cuts by it.
        """
        place = {**dict(zip(("log", "topic", "partition"), source, strict=True)), "offset": offset, "largest": largest}
        here = "log = :log AND topic = :topic AND partition = :partition"
        for update in (
            f'UPDATE marks SET largest_timestamp = :largest WHERE {here} AND "offset" > :offset',  # noqa: S608
            f"UPDATE positions SET largest_timestamp = :largest WHERE {here}",  # noqa: S608
        ):
            db.execute(f"{update} AND coalesce(largest_timestamp, 0) < :largest", place)

    def _move(self, db: sqlite3.Connection, batch: FoldedBatch) -> bool:
        """Step 3."""
        log, topic, partition = batch.source
        offset, timestamp, crc = batch.last if batch.last is not None else (None, None, None)
        row = db.execute(
            _MOVE,
            {
                "log": log, "topic": topic, "partition": partition, "start": batch.start, "end": batch.end,
                "end_offset": batch.end_offset, "now": self._clock(),
                "offset": offset, "timestamp": timestamp, "crc": crc, "largest": batch.largest_timestamp,
            },
        ).fetchone()  # fmt: skip
        if row is None:
            return False
        (largest,) = row
        if largest is not None:
            self._mark(db, batch, largest)
        return True

    def _mark(self, db: sqlite3.Connection, batch: FoldedBatch, largest: int) -> None:
        """Note about every ten minutes of the log how new the events before an offset are: a replay cuts by it."""
        told = batch.last.timestamp * 1000 if batch.last is not None else 0
        db.execute(
            """INSERT INTO marks (log, topic, partition, "offset", largest_timestamp, marked_at)
            SELECT :log, :topic, :partition, :end, :largest, :now WHERE NOT EXISTS (
                SELECT 1 FROM marks WHERE log = :log AND topic = :topic AND partition = :partition
                    AND marked_at > :now - :every) ON CONFLICT DO NOTHING""",
            {
                **dict(zip(("log", "topic", "partition"), batch.source, strict=True)),
                "end": batch.end, "largest": largest, "every": MARK_EVERY,
                "now": told if told > 0 else self._clock(),
            },
        )  # fmt: skip

    def _add(self, db: sqlite3.Connection, batch: FoldedBatch) -> None:
        """Step 4."""
        add(db, batch.source, batch.rows, batch.rejects, batch.counts, self._clock())
        if batch.id_changes is not None:
            duplicates.save(db, batch.source, batch.id_changes)
