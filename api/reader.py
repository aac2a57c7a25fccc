"""Read-only access to the databases, and the functions that saved queries may call.

A `Reader` belongs to one thread. It opens the current generation's database with apsw alone (design section 5) and
follows the generation when it changes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw
from sqlite_utils.migrations import Migrations

from api.background import Background
from api.deadline import Deadline, read_transaction
from api.entry_arrays import WrittenBlocks, recent_entries_array
from api.freshness import Progress
from api.functions import let_only_read, register_functions
from api.matching_entries import Filters, matching_entries
from api.recent_entries import EntryRow, recent_entries
from api.remembered import Remembered, Subject
from api.request_counts import DecidedOrigins, Row, go_on, request_counts
from api.table_functions import register_table
from schema.blocks import NO_DICTIONARY, Decompressor
from schema.errors import QueryTimeout, StoreMissing
from schema.saved_queries import SavedQuery
from schema.tables import (
    LIVE_POSITIONS,
    control_migrations,
    control_path,
    lacks,
    require_known,
    store_migrations,
    store_path,
)

_BUSY_MILLISECONDS = 1000
_REMEMBERED_BYTES = 16 << 20
_WRITTEN_BYTES = 8 << 20
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"
_KEY = """
SELECT name, hash, projects, endpoints, allow, expires_at, (SELECT current FROM generation) FROM keys WHERE id = ?
"""
_POSITIONS = f"SELECT next_offset, end_offset, last_timestamp, applied_at FROM ({LIVE_POSITIONS})"  # noqa: S608  # a query of our own
_ANYTHING = "SELECT 1 FROM horizons LIMIT 1"
Value = str | int | float | bytes | None


class Answer(NamedTuple):
    """What a saved query gave: column names and rows, and how far the logs were applied.

    There are no more rows than its max_rows, and one that says how the answer goes on.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    positions: Sequence[Progress] = ()


class Key(NamedTuple):
    """A stored API key: name, SHA-256 of its secret, scopes as JSON arrays (None: all), when it expires in µs.

    Beside it the generation that answers now: reading both at once saves each request 3 µs.
    """

    name: str
    hash: bytes
    projects: str | None
    endpoints: str | None
    allow: str
    expires_at: int | None
    generation: int


class ControlReader:
    """Reads the control database: the current generation and the keys."""

    def __init__(self, data: Path) -> None:
        self._path = control_path(data)
        self._db: apsw.Connection | None = None

    def generation(self) -> int:
        """The generation that answers now. Raises StoreMissing before there is one."""
        generation: int = self._connection().execute("SELECT current FROM generation").get
        return generation

    def key(self, identifier: str) -> Key | None:
        """The key of an id, or None. Raises StoreMissing before any was made."""
        row = self._connection().execute(_KEY, (identifier,)).fetchone()
        return Key(*row) if row is not None else None

    def has(self, identifier: str, key: Key) -> bool:
        """Whether a key is stored as it was, and its generation answers. Raises StoreMissing before any was made."""
        return bool(self._connection().execute(_KEY, (identifier,)).fetchone() == key)

    def close(self) -> None:
        """Let go of the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connection(self) -> apsw.Connection:
        if self._db is None:
            self._db = open_database(self._path, control_migrations)
        return self._db


class Searches:
    """What the readers of a process share: what patterns have been found to count, and searches that go on."""

    def __init__(self, remembered_bytes: int = _REMEMBERED_BYTES) -> None:
        self.remembered = Remembered(remembered_bytes)
        self.written = WrittenBlocks(_WRITTEN_BYTES)
        self.background = Background()


class Reader:
    """Runs saved queries for one thread.

    A hurried one never sleeps where the database is busy (apsw.BusyError), and no search of its goes on past the time
    limit: whoever has it asks another one then.
    """

    def __init__(self, data: Path, searches: Searches | None = None, hurried: bool = False) -> None:
        self._data = data
        self._hurried = hurried
        self._searches = searches or Searches()
        self._control = ControlReader(data)
        self._generation = 0
        self._db: apsw.Connection | None = None
        self._deadline = Deadline(0)
        self._projects: frozenset[str] | None = None
        self._plain = Decompressor()
        self._decided = DecidedOrigins()
        self._version, self._progress = -1, list[Progress]()
        self._trained: dict[int, Decompressor] = {}

    def run(
        self,
        query: SavedQuery,
        parameters: Mapping[str, Value],
        projects: frozenset[str] | None,
        now: int,
        seconds: float,
        generation: int | None = None,
    ) -> Answer:
        """Answer a query as of `now` (µs) within so many seconds; all its reads see one state of the database.

        A pattern counts requests of these projects' events alone (None: all). Its search goes on in the background
        past the time limit, for the next call. Whoever knows the generation that answers now may give it.
        Raises ParameterError, QueryTimeout, StoreMissing, StoreTooNew.
        """
        with self._searches.background.query():
            db = self._current(generation)
            self._deadline = deadline = Deadline(seconds)
            self._projects = projects
            with read_transaction(db, deadline):
                positions = self._positions(db)
                cursor = db.cursor()
                cursor.execute(query.sql, {**parameters, "now": now})
                try:
                    columns = tuple([name for name, _ in cursor.get_description()])
                except apsw.ExecutionCompleteError:  # without a row
                    columns = ()
                rows: list[tuple[Value, ...]] = list(islice(cursor, query.max_rows + (query.next_column is not None)))
                cursor.close(True)
                if len(rows) > query.max_rows and rows[-1][columns.index(str(query.next_column))] is None:
                    rows.pop()
                return Answer(columns, rows, positions)

    def close(self) -> None:
        """Let go of the files. No run may be under way."""
        self._control.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._db is not None:
            self._db.close(True)  # its table functions hold it, and it the file
            self._db = None

    def _positions(self, db: apsw.Connection) -> Sequence[Progress]:
        """How far the logs are applied. The first read of a transaction: from here on `data_version` tells its state.

        As long as that is the one of the last query, so are the positions.
        """
        db.execute(_ANYTHING).fetchall()
        version = db.data_version()
        if version != self._version:
            self._version, self._progress = version, [Progress(*row) for row in db.execute(_POSITIONS)]
        return self._progress

    def _current(self, generation: int | None = None) -> apsw.Connection:
        if generation is None:
            generation = self._control.generation()
        if self._db is None or generation != self._generation:
            self._close_store()
            path = store_path(self._data, generation)
            self._db, self._generation = open_database(path, store_migrations), generation
            if self._hurried:
                self._db.set_busy_timeout(0)
            self._trained.clear()
            self._decided = DecidedOrigins()
            self._version = -1
            self.register(self._db)
        return self._db

    def register(self, db: apsw.Connection) -> None:
        """Give a connection all that saved queries may call, and let it do nothing but read."""
        register_functions(db)

        def entries(project: str, after: int, until: int | None, limit: int) -> list[tuple[Value, ...]]:
            place = (project, after, until, limit)
            return list(recent_entries(db, self._decompress_entries, self._deadline, *place))

        def entries_array(project: str, after: int, until: int | None, limit: int) -> list[tuple[Value, ...]]:
            place = (self._searches.written, self._generation, project, after, until, limit)
            return [recent_entries_array(db, self._decompress_entries, self._deadline, *place)]

        def requests(pattern: str, since: int, grain: int) -> list[Row]:
            return self._request_counts(db, pattern, since, grain)

        def matching(
            project: str,
            after: int,
            until: int | None,
            cursor: str | None,
            limit: int,
            min_status: int | None,
            max_status: int | None,
            method: str | None,
            path: str | None,
            text: str | None,
        ) -> list[tuple[Value, ...]]:
            filters = Filters(min_status, max_status, method, path, text)
            place = (project, after, until, cursor, limit)
            return list(matching_entries(db, self._decompress_entries, self._deadline, *place, filters))

        register_table(db, "recent_entries", entries, ("place", *EntryRow._fields))
        register_table(db, "recent_entries_array", entries_array, ("entries", "count"))
        register_table(db, "request_counts", requests, Row._fields)
        register_table(db, "matching_entries", matching, ("id", "timestamp", "event_message", "metadata", "next"))
        let_only_read(db, "recent_entries", "recent_entries_array", "request_counts", "matching_entries")

    def _request_counts(self, db: apsw.Connection, pattern: str, since: int, grain: int) -> list[Row]:
        subject = Subject(self._generation, pattern, self._projects)
        look, searches = self._deadline.check, self._searches
        try:
            return request_counts(
                db, self._plain.decompress, look, searches.remembered, subject, since, grain, self._decided
            )
        except QueryTimeout:
            if not self._hurried:
                searches.background.go_on(subject, partial(_go_on, self._data, searches, subject, since))
            raise

    def _decompress_entries(self, dictionary: int, payload: bytes) -> bytes:
        if dictionary == NO_DICTIONARY:
            return self._plain.decompress(payload)
        if dictionary not in self._trained:
            assert self._db is not None
            content: bytes = self._db.execute("SELECT content FROM dictionaries WHERE id = ?", (dictionary,)).get
            self._trained[dictionary] = Decompressor(content)
        return self._trained[dictionary].decompress(payload)


def _go_on(data: Path, searches: Searches, subject: Subject, since: int) -> None:
    """Finish a search with a connection of its own."""
    db = open_database(store_path(data, subject.generation), store_migrations)
    try:
        go_on(db, Decompressor().decompress, searches.background.make_way, searches.remembered, subject, since)
    finally:
        db.close()


def open_database(path: Path, migrations: Migrations) -> apsw.Connection:
    """Open a database for reading only.

    Raises StoreMissing before a worker has made it or brought it up to date, StoreTooNew where a newer version has.
    """
    try:
        db = apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        db.set_busy_timeout(_BUSY_MILLISECONDS)
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        applied = [name for (name,) in db.execute(_APPLIED, (migrations.name,))]
    except (apsw.CantOpenError, apsw.SQLError) as error:
        raise StoreMissing(f"{path} is not there yet: start a worker on this data folder") from error
    if not applied:
        raise StoreMissing(f"{path} is being made: try again in a moment")
    require_known(path, migrations, applied)
    if lacks(migrations, applied):
        raise StoreMissing(f"{path} was made by an older Freshet: start a worker, which brings it up to date")
    return db
