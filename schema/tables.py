"""The tables of a generation's database and of the control database, made by migrations (design section 3).

What each table holds, and why it has this form, is told in docs/decisions/0002-storage-layout.md.
"""

import fcntl
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from schema.errors import StoreTooNew

SECOND_GRAIN, MINUTE_GRAIN, HOUR_GRAIN, DAY_GRAIN = 1, 60, 3600, 86400
INVOCATION_GRAINS = (SECOND_GRAIN, MINUTE_GRAIN, HOUR_GRAIN, DAY_GRAIN)
"""Bucket sizes of `invocations`, in seconds."""
ORIGIN_GRAINS = (MINUTE_GRAIN, HOUR_GRAIN, DAY_GRAIN)
"""Bucket sizes of `origin_hits`, in seconds."""

LIVE_POSITIONS = """
SELECT * FROM positions JOIN (SELECT topic, log, max(applied_at) FROM positions GROUP BY topic) USING (topic, log)
ORDER BY topic, partition
"""
"""The positions in the newest log of each topic: those before a topic was created anew are left out."""

store_migrations = Migrations("freshet-store")
control_migrations = Migrations("freshet-control")


def control_path(data: Path) -> Path:
    """The database of keys and of the current generation."""
    return data / "control.db"


def store_path(data: Path, generation: int) -> Path:
    """The database of one generation."""
    return data / f"freshet-{generation}.db"


@store_migrations(name="0001_tables")
def _tables(db: Database) -> None:
    for statement in (
        """
        CREATE TABLE store (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            retired INTEGER NOT NULL DEFAULT 0,
            replay TEXT
        ) STRICT
        """,
        "INSERT INTO store (one) VALUES (1)",
        """
        CREATE TABLE invocations (
            project TEXT NOT NULL, function TEXT NOT NULL, grain INTEGER NOT NULL, bucket INTEGER NOT NULL,
            count INTEGER NOT NULL, error_count INTEGER NOT NULL,
            count_1xx INTEGER NOT NULL, count_2xx INTEGER NOT NULL, count_3xx INTEGER NOT NULL,
            count_4xx INTEGER NOT NULL, count_5xx INTEGER NOT NULL,
            timed_count INTEGER NOT NULL, sum_time INTEGER NOT NULL, min_time INTEGER, max_time INTEGER,
            histogram BLOB NOT NULL,
            PRIMARY KEY (project, function, grain, bucket)
        ) STRICT
        """,
        """
        CREATE TABLE entry_blocks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            project TEXT NOT NULL, min_timestamp INTEGER NOT NULL, max_timestamp INTEGER NOT NULL,
            count INTEGER NOT NULL, sealed INTEGER NOT NULL DEFAULT 0,
            dictionary INTEGER NOT NULL, payload BLOB NOT NULL
        ) STRICT
        """,
        "CREATE INDEX entry_blocks_newest ON entry_blocks (project, max_timestamp)",
        """
        CREATE TABLE dictionaries (
            id INTEGER PRIMARY KEY AUTOINCREMENT, trained_at INTEGER NOT NULL, content BLOB NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE url_blocks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            min_timestamp INTEGER NOT NULL, max_timestamp INTEGER NOT NULL,
            count INTEGER NOT NULL, sealed INTEGER NOT NULL DEFAULT 0, payload BLOB NOT NULL
        ) STRICT
        """,
        "CREATE INDEX url_blocks_newest ON url_blocks (max_timestamp)",
        """
        CREATE TABLE origin_hits (
            project TEXT NOT NULL, origin TEXT NOT NULL, grain INTEGER NOT NULL, bucket INTEGER NOT NULL,
            families INTEGER NOT NULL, hits INTEGER NOT NULL,
            PRIMARY KEY (project, origin, grain, bucket, families)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE recreations (
            cluster TEXT NOT NULL, topic TEXT NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (cluster, topic)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE positions (
            log TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
            next_offset INTEGER NOT NULL,
            last_offset INTEGER, last_timestamp INTEGER, last_crc INTEGER,
            largest_timestamp INTEGER,
            end_offset INTEGER NOT NULL, applied_at INTEGER NOT NULL, gaps TEXT NOT NULL DEFAULT '[]',
            PRIMARY KEY (log, topic, partition)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE marks (
            log TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
            largest_timestamp INTEGER NOT NULL, marked_at INTEGER NOT NULL,
            PRIMARY KEY (log, topic, partition, "offset")
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE horizons (
            kind TEXT NOT NULL, grain INTEGER NOT NULL, horizon INTEGER NOT NULL,
            PRIMARY KEY (kind, grain)
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE rejects (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            log TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
            element INTEGER NOT NULL, reason TEXT NOT NULL, rejected_at INTEGER NOT NULL, data BLOB NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE counters (
            topic TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (topic, name)
        ) STRICT, WITHOUT ROWID
        """,
    ):
        db.execute(statement)


@store_migrations(name="0002_sealing")
def _sealing(db: Database) -> None:
    """Indexes that tell what is sealed without reading a payload's page; and which block a replay copied from which."""
    for statement in (
        "CREATE INDEX entry_blocks_unsealed ON entry_blocks (project, max_timestamp, count) WHERE sealed = 0",
        "CREATE INDEX url_blocks_unsealed ON url_blocks (max_timestamp, count) WHERE sealed = 0",
        "DROP INDEX url_blocks_newest",
        "CREATE INDEX url_blocks_newest ON url_blocks (max_timestamp, min_timestamp, sealed, count)",
        """
        CREATE TABLE copies (
            kind TEXT NOT NULL, original INTEGER NOT NULL, copy INTEGER NOT NULL, PRIMARY KEY (kind, original)
        ) STRICT, WITHOUT ROWID
        """,
    ):
        db.execute(statement)


@store_migrations(name="0003_retry")
def _retry(db: Database) -> None:
    """What decoding a reject again needs (docs/decisions/0010-retry.md).

    `timestamp` is its message's in ms, 0 where it is not known; `size` that of all its bytes, of which `data` may hold
    the first alone; events of it from `folded_from` (µs) on are in the tables.
    """
    for column in ("timestamp INTEGER NOT NULL DEFAULT 0", "size INTEGER NOT NULL DEFAULT 0", "folded_from INTEGER"):
        db.execute(f"ALTER TABLE rejects ADD COLUMN {column}")
    db.execute("UPDATE rejects SET size = length(data) + (length(data) = 4096)")  # which may have been cut


@store_migrations(name="0004_arrivals")
def _arrivals(db: Database) -> None:
    """Of a block that was merged of others: by entry the id of the block in which it came, 8 bytes each."""
    db.execute("CREATE TABLE arrivals (block INTEGER PRIMARY KEY, came_in BLOB NOT NULL) STRICT")


@store_migrations(name="0005_recent_ids")
def _recent_ids(db: Database) -> None:
    """The ids taken lately, for deduplication: hashes in a row, by slot of record time (ms) and batch."""
    db.execute("""
        CREATE TABLE recent_ids (
            log TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
            time INTEGER NOT NULL, "offset" INTEGER NOT NULL, marks BLOB NOT NULL,
            PRIMARY KEY (log, topic, partition, time, "offset")
        ) STRICT, WITHOUT ROWID
        """)


@store_migrations(name="0006_dictionaries")
def _dictionaries(db: Database) -> None:
    """Which kinds were redacted in a dictionary's samples, with commas between; no block names one that is gone."""
    db.execute("ALTER TABLE dictionaries ADD COLUMN redacted TEXT NOT NULL DEFAULT ''")
    db.execute("""
        CREATE TRIGGER entry_blocks_dictionary BEFORE INSERT ON entry_blocks
        WHEN NEW.dictionary <> 0 AND NOT EXISTS (SELECT 1 FROM dictionaries WHERE id = NEW.dictionary)
        BEGIN SELECT RAISE(ABORT, 'the dictionary of a block is gone: start the worker again'); END
        """)


@control_migrations(name="0001_tables")
def _control(db: Database) -> None:
    for statement in (
        "CREATE TABLE generation (one INTEGER PRIMARY KEY CHECK (one = 1), current INTEGER NOT NULL) STRICT",
        "INSERT INTO generation (one, current) VALUES (1, 1)",
        """
        CREATE TABLE keys (
            id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, hash BLOB NOT NULL, created_at INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID
        """,
    ):
        db.execute(statement)


@control_migrations(name="0002_key_scopes")
def _key_scopes(db: Database) -> None:
    """`projects` and `endpoints` are JSON arrays, NULL for all; `allow` is one; times are in µs."""
    for column in (
        *("projects TEXT", "endpoints TEXT", """allow TEXT NOT NULL DEFAULT '["query"]'"""),
        *("expires_at INTEGER", "last_used_at INTEGER"),
    ):
        db.execute(f"ALTER TABLE keys ADD COLUMN {column}")


def migrate(data: Path) -> Path:
    """Make or bring up to date the control database and the current generation's; returns the path of the latter.

    Several processes may do so at once. Raises StoreTooNew where a newer version has been here.
    """
    data.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(data):
        _apply(control_path(data), control_migrations)
        store = store_path(data, current_generation(data))
        _apply(store, store_migrations)
    return store


def make_store(path: Path) -> None:
    """Make or bring up to date one generation's database."""
    with _one_at_a_time(path.parent):
        _apply(path, store_migrations)


def migrate_control(data: Path) -> Path:
    """Make or bring up to date the control database alone; returns its path."""
    data.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(data):
        _apply(control_path(data), control_migrations)
    return control_path(data)


def current_generation(data: Path) -> int:
    """The number of the generation that answers and ingests."""
    with closing(sqlite3.connect(control_path(data))) as db:
        (generation,) = db.execute("SELECT current FROM generation").fetchone()
        return int(generation)


def require_known(path: Path, migrations: Migrations, applied: Collection[str]) -> None:
    """Raises StoreTooNew where a database has had a migration of this set that this version does not know."""
    unknown = sorted(set(applied) - _known(migrations))
    if unknown:
        raise StoreTooNew(
            f"{path} was made by a newer Freshet (it has had {', '.join(unknown)}): start that version, "
            "or give this one another folder with FRESHET_DATA"
        )


def store_statements() -> list[str]:
    """The SQL that makes the tables and indexes of a generation's database."""
    with closing(Database(memory=True)) as db:
        store_migrations.apply(db)
        made = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid"
        return [sql for (sql,) in db.execute(made)]


def lacks(migrations: Migrations, applied: Collection[str]) -> bool:
    """Whether a database that has had these migrations of a set is still to have others."""
    return not _known(migrations) <= set(applied)


def _known(migrations: Migrations) -> set[str]:
    with closing(Database(memory=True)) as db:
        return {migration.name for migration in migrations.pending(db)}


def _apply(path: Path, migrations: Migrations) -> None:
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA journal_mode = wal")
        db = Database(connection)
        require_known(path, migrations, [migration.name for migration in migrations.applied(db)])
        migrations.apply(db)


@contextmanager
def _one_at_a_time(data: Path) -> Iterator[None]:
    with (data / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
