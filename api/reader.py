"""Read-only access to the databases, and the functions that saved queries may call.

A `Reader` belongs to one thread. It opens the current generation's database with apsw alone (design section 5) and
follows the generation when it changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw
from sqlite_utils.migrations import Migrations

from api.background import Background
from api.deadline import Deadline, read_transaction
from api.freshness import Progress
from api.functions import let_only_read, register_functions, register_table
from api.matching_entries import Filters, matching_entries
from api.recent_entries import EntryRow, recent_entries
from api.remembered import Remembered, Subject
from api.request_counts import go_on, request_counts
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
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"
_KEY = """
SELECT name, hash, projects, endpoints, allow, expires_at, (SELECT current FROM generation) FROM keys WHERE id = ?
"""
_POSITIONS = f"SELECT next_offset, end_offset, last_timestamp, applied_at FROM ({LIVE_POSITIONS})"  # noqa: S608  # a query of our own
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
        self.background = Background()


class Reader:
    """Runs saved queries for one thread."""

    def __init__(self, data: Path, searches: Searches | None = None) -> None:
        self._data = data
        self._searches = searches or Searches()
        self._control = ControlReader(data)
        self._generation = 0
        self._db: apsw.Connection | None = None
        self._deadline = Deadline(0)
        self._projects: frozenset[str] | None = None
        self._plain = Decompressor()
        self._trained: dict[int, Decompressor] = {}

    def run(
        self,
        query: SavedQuery,
        parameters: Mapping[str, Value],
        projects: frozenset[str] | None,
        now: int,
        seconds: float,
    ) -> Answer:
        """Answer a query as of `now` (µs) within so many seconds; all its reads see one state of the database.

        A pattern counts requests of these projects' events alone (None: all). Its search goes on in the background
        past the time limit, for the next call. Raises ParameterError, QueryTimeout, StoreMissing, StoreTooNew.
        """
        with self._searches.background.query():
            db = self._current()
            self._deadline = deadline = Deadline(seconds)
            self._projects = projects
            with read_transaction(db, deadline):
                cursor = db.cursor()
                rows: list[tuple[Value, ...]] = []
                columns: tuple[str, ...] = ()
                for row in cursor.execute(query.sql, {**parameters, "now": now}):
                    columns = columns or tuple(name for name, _ in cursor.get_description())
                    rows.append(row)
                    if len(rows) == query.max_rows + (query.next_column is not None):
                        break
                cursor.close(True)
                if len(rows) > query.max_rows and rows[-1][columns.index(str(query.next_column))] is None:
                    rows.pop()
                return Answer(columns, rows, [Progress(*row) for row in db.execute(_POSITIONS)])

    def close(self) -> None:
        """Let go of the files. No run may be under way."""
        self._control.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._db is not None:
            self._db.close(True)  # its table functions hold it, and it the file
            self._db = None

    def _current(self) -> apsw.Connection:
        generation = self._control.generation()
        if self._db is None or generation != self._generation:
            self._close_store()
            path = store_path(self._data, generation)
            self._db, self._generation = open_database(path, store_migrations), generation
            self._trained.clear()
            self.register(self._db)
        return self._db

    def register(self, db: apsw.Connection) -> None:
        """Give a connection all that saved queries may call, and let it do nothing but read."""
        register_functions(db)

        def entries(project: str, after: int, until: int | None, limit: int) -> Iterator[tuple[Value, ...]]:
            return recent_entries(db, self._decompress_entries, self._deadline, project, after, until, limit)

        def requests(pattern: str, since: int, grain: int) -> Iterator[tuple[Value, ...]]:
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
        ) -> Iterator[tuple[Value, ...]]:
            filters = Filters(min_status, max_status, method, path, text)
            place = (project, after, until, cursor, limit)
            return matching_entries(db, self._decompress_entries, self._deadline, *place, filters)

        register_table(db, "recent_entries", entries, ("place", *EntryRow._fields))
        register_table(db, "request_counts", requests, ("bucket", "families", "hits"))
        register_table(db, "matching_entries", matching, ("id", "timestamp", "event_message", "metadata", "next"))
        let_only_read(db, "recent_entries", "request_counts", "matching_entries")

    def _request_counts(
        self, db: apsw.Connection, pattern: str, since: int, grain: int
    ) -> Iterator[tuple[int, int, int]]:
        subject = Subject(self._generation, pattern, self._projects)
        look, remembered = self._deadline.check, self._searches.remembered
        try:
            yield from request_counts(db, self._plain.decompress, look, remembered, subject, since, grain)
        except QueryTimeout:
            self._searches.background.go_on(subject, partial(_go_on, self._data, self._searches, subject, since))
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
