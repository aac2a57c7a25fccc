"""Pruning: what has expired is deleted in small steps, between batches, so that it never holds ingest up.

Each step advances the horizons by the clock and looks at a few keys of each table, going round them for ever. Pages
that become free are used again, so a file in a steady state keeps its size.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping

from schema.clock import Clock
from schema.retention import ENTRIES, INVOCATIONS, NO_GRAIN, ORIGIN_HITS, URLS, Kind, horizons_at
from schema.tables import INVOCATION_GRAINS, ORIGIN_GRAINS
from schema.timestamps import SECOND
from streams.dictionary import UnusedDictionaries
from streams.store import Store

KEYS_A_STEP = 50
BLOCKS_A_STEP = 200
Key = tuple[str, ...]


class _Keys:
    """Goes round a table's distinct keys for ever, by one step in its index each."""

    def __init__(self, table: str, *columns: str) -> None:
        names = ", ".join(columns)
        places = ", ".join("?" * len(columns))
        self._first = f"SELECT {names} FROM {table} ORDER BY {names} LIMIT 1"  # noqa: S608  # names of our own
        self._next = f"SELECT {names} FROM {table} WHERE ({names}) > ({places}) ORDER BY {names} LIMIT 1"  # noqa: S608
        self._last: Key | None = None

    def some(self, db: sqlite3.Connection) -> Iterator[Key]:
        """The next few keys; they count as done once the one behind them is asked for. Ends where the round ends."""
        for _ in range(KEYS_A_STEP):
            key = db.execute(self._first).fetchone() if self._last is None else self._after(db, self._last)
            if key is None:
                self._last = None
                return
            yield key
            self._last = key

    def _after(self, db: sqlite3.Connection, key: Key) -> Key | None:
        following: Key | None = db.execute(self._next, key).fetchone()
        return following


class Pruner:
    """Deletes what has expired from one store. `kept` says how long each kind is kept, in µs.

    Dictionaries of a time when less than `redacted` was redacted expire with the last block that names them.
    """

    def __init__(self, store: Store, clock: Clock, kept: Mapping[Kind, int], redacted: Collection[str] = ()) -> None:
        self._store = store
        self._clock = clock
        self._kept = kept
        self._functions = _Keys(INVOCATIONS, "project", "function")
        self._origins = _Keys(ORIGIN_HITS, "project", "origin")
        self._projects = _Keys(ENTRIES, "project")
        self._dictionaries = UnusedDictionaries(redacted)

    def step(self) -> dict[Kind, int]:
        """Delete a little; returns the horizons in force. Raises what a write to the store raises."""
        horizons = self._store.advance_horizons(horizons_at(self._clock(), self._kept))
        with self._store.transaction() as db:
            self._dictionaries.step(db)  # first: what it sees must not be rolled back
            for project, function in self._functions.some(db):
                for grain in INVOCATION_GRAINS:
                    db.execute(
                        "DELETE FROM invocations WHERE project = ? AND function = ? AND grain = ? AND bucket <= ?",
                        (project, function, grain, horizons[INVOCATIONS, grain] - grain * SECOND),
                    )
            for project, origin in self._origins.some(db):
                for grain in ORIGIN_GRAINS:
                    db.execute(
                        "DELETE FROM origin_hits WHERE project = ? AND origin = ? AND grain = ? AND bucket <= ?",
                        (project, origin, grain, horizons[ORIGIN_HITS, grain] - grain * SECOND),
                    )
            self._prune_entries(db, horizons[ENTRIES, NO_GRAIN])
            db.execute(
                """DELETE FROM url_blocks WHERE id IN (
                    SELECT id FROM url_blocks WHERE max_timestamp <= ? ORDER BY max_timestamp LIMIT ?)""",
                (horizons[URLS, NO_GRAIN], BLOCKS_A_STEP),
            )
        return horizons

    def _prune_entries(self, db: sqlite3.Connection, horizon: int) -> None:
        left = BLOCKS_A_STEP
        for (project,) in self._projects.some(db):
            left -= db.execute(
                """DELETE FROM entry_blocks WHERE id IN (SELECT id FROM entry_blocks
                    WHERE project = ? AND max_timestamp <= ? ORDER BY max_timestamp LIMIT ?)""",
                (project, horizon, left),
            ).rowcount
            if left == 0:
                return  # this project goes on with the next step
