"""Read-only access to the databases, and the functions that saved queries may call.

A `Reader` belongs to one thread. It opens the current generation's database with apsw alone (design section 5) and
follows the generation when it changes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from api.background import Background
from api.databases import ControlReader, open_database
from api.deadline import Deadline, ReadTransaction
from api.entry_arrays import WrittenBlocks, recent_entries_array
from api.freshness import Progress, complete_until
from api.functions import let_only_read, register_functions
from api.matching_entries import Filters, matching_entries
from api.origins import DecidedOrigins
from api.recent_entries import EntryRow, recent_entries
from api.remembered import Remembered, Subject
from api.request_counts import RequestCounts, Row, go_on
from api.table_functions import Function, register_table
from schema.blocks import NO_DICTIONARY, Decompressor
from schema.errors import QueryTimeout
from schema.saved_queries import SavedQuery
from schema.tables import LIVE_POSITIONS, store_migrations, store_path

_REMEMBERED_BYTES = 16 << 20
_WRITTEN_BYTES = 4 << 20
_POSITIONS = f"SELECT next_offset, end_offset, last_timestamp, applied_at FROM ({LIVE_POSITIONS})"  # noqa: S608  # a query of our own
_ANYTHING = "SELECT 1 FROM horizons LIMIT 1"
Value = str | int | float | bytes | None
Counted = TypeVar("Counted")


class Answer(NamedTuple):
    """What a saved query gave: column names and rows, and up to when everything had been applied (µs, or None).

    There are no more rows than its max_rows, and one that says how the answer goes on.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    complete_until: int | None = None


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
        self._version = -1
        self._complete: int | None = None
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
            with ReadTransaction(db, deadline) as transaction:
                if transaction.is_own:
                    self._look(db)
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
                return Answer(columns, rows, self._complete)

    def hold(self, generation: int | None = None) -> None:
        """Have all runs see the state of now until `release`: that saves each 4 µs.

        Raises StoreMissing, StoreTooNew.
        """
        db = self._current(generation)
        db.execute("BEGIN")
        try:
            self._look(db)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Have each run see the state of its own moment again."""
        if self._db is not None and self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the files. No run may be under way."""
        self._control.close()
        self._close_store()

    def _close_store(self) -> None:
        if self._db is not None:
            self._db.close(True)  # its table functions hold it, and it the file
            self._db = None

    def _look(self, db: apsw.Connection) -> None:
        """The first read of a transaction: now `data_version` tells of its state.

        As long as that is the one of the last query, so are the positions and the origins.
        """
        db.execute(_ANYTHING).fetchall()
        version = db.data_version()
        if version != self._version:
            self._decided.see_another_state()
            self._complete = complete_until(Progress(*row) for row in db.execute(_POSITIONS))
            self._version = version  # last: what fails on the way is done again

    def _current(self, generation: int | None = None) -> apsw.Connection:
        if generation is None:
            generation = self._control.generation()
        if self._db is None or generation != self._generation:
            self._close_store()
            db = open_database(store_path(self._data, generation), store_migrations)
            self.register(db)  # before it is anybody's: this reads, and may fail
            if self._hurried:
                db.set_busy_timeout(0)
            self._trained.clear()
            self._version = -1
            self._db, self._generation = db, generation
        return self._db

    def register(self, db: apsw.Connection) -> None:
        """Give a connection all that saved queries may call, and let it do nothing but read."""
        register_functions(db)

        def entries(project: str, after: int, until: int | None, limit: int) -> list[tuple[Value, ...]]:
            place = (project, after, until, limit)
            return list(recent_entries(db, self._decompress_entries, self._deadline, *place))

        def entries_array(project: str, after: int, until: int | None, limit: int) -> list[tuple[bytes, int]]:
            place = (self._searches.written, self._generation, project, after, until, limit)
            return recent_entries_array(db, self._decompress_entries, self._deadline, *place)

        def requests(pattern: str, since: int, grain: int) -> list[Row]:
            return self._counted(db, RequestCounts.rows, pattern, since, grain)

        def requests_array(pattern: str, since: int, grain: int) -> list[tuple[bytes, int]]:
            return [self._counted(db, RequestCounts.array, pattern, since, grain)]

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

        tables: dict[str, tuple[Function, tuple[str, ...]]] = {
            "recent_entries": (entries, ("place", *EntryRow._fields)),
            "recent_entries_array": (entries_array, ("entries", "count")),
            "request_counts": (requests, Row._fields),
            "request_counts_array": (requests_array, ("counts", "count")),
            "matching_entries": (matching, ("id", "timestamp", "event_message", "metadata", "next")),
        }
        for name, (function, columns) in tables.items():
            register_table(db, name, function, columns)
        let_only_read(db, *tables)

    def _counted(
        self, db: apsw.Connection, wanted: Callable[[RequestCounts], Counted], pattern: str, since: int, grain: int
    ) -> Counted:
        subject = Subject(self._generation, pattern, self._projects)
        look, searches = self._deadline.check, self._searches
        try:
            return wanted(
                RequestCounts(
                    *(db, self._plain.decompress, look, searches.remembered),
                    *(subject, since, grain, self._decided),
                )
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
