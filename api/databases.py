"""The databases as the API opens them, for reading only; and what it reads of the control database."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw
from sqlite_utils.migrations import Migrations

from schema.errors import StoreMissing
from schema.tables import control_migrations, control_path, lacks, require_known

_BUSY_MILLISECONDS = 1000
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"
_KEY = """
SELECT name, hash, projects, endpoints, allow, expires_at, (SELECT current FROM generation) FROM keys WHERE id = ?
"""


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

    def expired(self, now: int) -> bool:
        """Whether it is in force no more at `now` (µs)."""
        return self.expires_at is not None and self.expires_at <= now


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
