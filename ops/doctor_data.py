"""What `freshet doctor` looks at in the data folder: permissions, free disk, the store and its integrity, the keys."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ops.findings import BAD, DOUBTFUL, GOOD, Finding
from schema.clock import system_clock
from schema.errors import StoreTooNew
from schema.settings import Settings
from schema.tables import control_migrations, control_path, lacks, require_known, store_migrations, store_path
from schema.timestamps import HOUR

_SECONDS = 10.0  # that a look into a database may take
_STEPS = 10_000  # of SQLite's virtual machine, between two looks at the clock
_LITTLE = 1 << 30  # bytes of free disk
_DAYS = 7  # that the free disk should last
_RATE = """
SELECT (SELECT coalesce(sum(length(payload)), 0) FROM entry_blocks WHERE max_timestamp > :since)
     + (SELECT coalesce(sum(length(payload)), 0) FROM url_blocks WHERE max_timestamp > :since)
"""


def check_data(settings: Settings) -> Iterator[Finding]:
    """Folder and disk; store and keys where there are any."""
    folder = _folder(settings.data)
    yield folder
    if not settings.data.is_dir():
        return
    control = control_path(settings.data)
    if not control.exists():
        yield _disk(settings.data, None)
        yield Finding(BAD, "store", f"there is none in {settings.data} yet", "start a worker: freshet worker")
        return
    try:
        with _opened(control) as db:
            _require_current(db, control)
            (generation,) = db.execute("SELECT current FROM generation").fetchone()
            keys = db.execute("SELECT count(*), sum(coalesce(expires_at > ?, 1)) FROM keys", (system_clock(),))
            key_counts = keys.fetchone()
        path = store_path(settings.data, generation)
        with _opened(path) as db:
            _require_current(db, path)
            yield _disk(settings.data, _hourly(db))
            yield _integrity(db, path, generation)
        yield _keys(*key_counts)
    except StoreTooNew as error:
        text, _, remedy = str(error).partition(": ")
        yield Finding(BAD, "store", text, remedy)
    except _Old as error:
        yield Finding(BAD, "store", str(error), "start a worker, which brings it up to date")
    except sqlite3.Error as error:
        yield _unreadable(settings.data, error)


class _Old(Exception):
    """A database that a worker has still to bring up to date."""


def _opened(path: Path) -> "closing[sqlite3.Connection]":
    """A database opened for reading, that gives up after some seconds with sqlite3.OperationalError."""
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_SECONDS)
    deadline = time.monotonic() + _SECONDS
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    return closing(db)


def _require_current(db: sqlite3.Connection, path: Path) -> None:
    migrations = control_migrations if path.name == "control.db" else store_migrations
    query = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"
    applied = [name for (name,) in db.execute(query, (migrations.name,))]
    require_known(path, migrations, applied)
    if lacks(migrations, applied):
        raise _Old(f"{path} was made by an older Freshet")


def _folder(data: Path) -> Finding:
    if not data.is_dir():
        return Finding(BAD, "folder", f"{data} is not there", "start a worker, which makes it, or set FRESHET_DATA")
    try:
        with tempfile.TemporaryFile(dir=data):
            pass
    except OSError as error:
        who = f"user {os.geteuid()}"
        remedy = f"let {who} write there, or set FRESHET_DATA to another folder"
        return Finding(BAD, "folder", f"{data} can't be written ({error.strerror})", remedy)
    locked = [path.name for path in sorted(data.glob("*.db*")) if not os.access(path, os.R_OK | os.W_OK)]
    if locked:
        remedy = f"give them to user {os.geteuid()}, who runs this: chown -R"
        return Finding(BAD, "folder", f"{', '.join(locked)} in {data} can't be written", remedy)
    return Finding(GOOD, "folder", f"{data} can be written")


def _hourly(db: sqlite3.Connection) -> float | None:
    """The bytes of blocks of the last hour's events, None where that takes too long to tell."""
    try:
        (size,) = db.execute(_RATE, {"since": system_clock() - HOUR}).fetchone()
    except sqlite3.OperationalError:
        return None
    return float(size)


def _disk(data: Path, hourly: float | None) -> Finding:
    free = shutil.disk_usage(data).free
    text = f"{free / 2**30:,.1f} GiB are free"
    remedy = "free some space, or give the data folder a larger disk (docs/operations/sizing.md)"
    days = free / hourly / 24 if hourly else float("inf")
    if hourly:
        text += f", {days:,.0f} days at the last hour's rate of {hourly / 2**20:,.1f} MiB"
    if free < _LITTLE or days < _DAYS:
        return Finding(BAD if free < _LITTLE // 10 else DOUBTFUL, "disk", text, remedy)
    return Finding(GOOD, "disk", text)


def _integrity(db: sqlite3.Connection, path: Path, generation: int) -> Finding:
    text = f"generation {generation}, {path.stat().st_size / 2**20:,.1f} MiB"
    try:
        problems = [problem for (problem,) in db.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return Finding(GOOD, "store", f"{text}; looked through for {_SECONDS:.0f} s, nothing wrong until there")
    if problems != ["ok"]:
        return Finding(BAD, "store", f"{path} is damaged: {'; '.join(problems)}", _DAMAGED)
    return Finding(GOOD, "store", f"{text}, sound")


_DAMAGED = "stop the workers, put a backup in its place or take it away, start them, and run freshet replay"


def _unreadable(data: Path, error: sqlite3.Error) -> Finding:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    remedy = _DAMAGED if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) else "start a worker, and look again"
    return Finding(BAD, "store", f"the databases in {data} can't be read: {error}", remedy)


def _keys(count: int, valid: int | None) -> Finding:
    if valid:
        expired = f", {count - valid} of them expired" if count > valid else ""
        return Finding(GOOD, "keys", f"{count}{expired}")
    text = "all have expired" if count else "there is none, so every query is a 401"
    return Finding(BAD, "keys", text, "make one: freshet keys add NAME")
