"""PostgreSQL 15, in two forms: as the original's Postgres back end keeps its logs, and tuned.

The original's form is a table a source with id, event_message, timestamp and the whole event as jsonb `body`, and a
BRIN index on the timestamp; what is asked for is taken out of `body`. The tuned form has typed columns and b-trees on
(project, timestamp). Both are vacuumed and analyzed. The server runs on a folder and socket of its own, with 2 GB of
shared buffers, as an unprivileged user where the bench is root's.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from bench.cases import COUNTS, LOGS, STATS, Case, Rows

_EPOCH = datetime(1970, 1, 1)
_BINARIES = "/usr/lib/postgresql/15/bin"
_OPTIONS = {
    "listen_addresses": "",
    "shared_buffers": "2GB",
    "effective_cache_size": "8GB",
    "work_mem": "64MB",
    "maintenance_work_mem": "512MB",
    "max_wal_size": "2GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "fsync": "off",  # it is filled once and only read
    "random_page_cost": "1.1",
    "autovacuum": "off",
    "jit": "off",
}
_TABLES = """
CREATE TABLE edge_original (id text PRIMARY KEY, event_message text, timestamp timestamp, body jsonb);
CREATE TABLE functions_original (id text PRIMARY KEY, event_message text, timestamp timestamp, body jsonb);
CREATE TABLE edge_tuned (
    id uuid, timestamp timestamp, project text, event_message text, metadata jsonb, url text, path text);
CREATE TABLE functions_tuned (
    id uuid, timestamp timestamp, project text, function_id text, status int, execution_time int);
"""
_INDEXES = """
CREATE INDEX ON edge_original USING brin (timestamp);
CREATE INDEX ON functions_original USING brin (timestamp);
CREATE INDEX ON edge_tuned (project, timestamp);
CREATE INDEX ON edge_tuned USING brin (timestamp);
CREATE INDEX ON functions_tuned (project, timestamp) INCLUDE (status, execution_time);
"""
_EXPORTS = {  # from the Parquet files, in DuckDB's SQL
    "edge_original": """SELECT id, event_message, make_timestamp(timestamp),
        '{"id":"' || id || '","timestamp":' || timestamp || ',"project":"' || project || '","event_message":"'
        || event_message || '","metadata":' || metadata || '}' FROM edge""",
    "functions_original": """SELECT id, 'POST', make_timestamp(timestamp),
        '{"id":"' || id || '","metadata":{"project_ref":"' || project || '","function_id":"' || function_id
        || '","execution_time_ms":' || execution_time || ',"response":{"status_code":' || status || '}}}'
        FROM functions""",
    "edge_tuned": "SELECT id, make_timestamp(timestamp), project, event_message, metadata, url, path FROM edge",
    "functions_tuned": """SELECT id, make_timestamp(timestamp), project, function_id, status, execution_time
        FROM functions""",
}
_BUCKET = "date_bin(%(grain)s * interval '1 microsecond', timestamp, timestamp '2000-01-01') AS bucket"
_COUNTS = ", ".join(
    f"count(*) FILTER (WHERE {{path}} LIKE '%%/{name}%%')" for name in ("rest", "storage", "auth", "realtime")
)
_STATS = f"""
SELECT {_BUCKET}, count(*), count(*) FILTER (WHERE {{status}} >= 400), min({{time}}), max({{time}}), avg({{time}}),
    percentile_disc(0.95) WITHIN GROUP (ORDER BY {{time}}), percentile_disc(0.99) WITHIN GROUP (ORDER BY {{time}})
FROM functions_{{form}} WHERE {{project}} = %(project)s AND timestamp >= %(since)s GROUP BY bucket ORDER BY bucket
"""
_QUERIES = {
    "original": {
        STATS: _STATS.format(
            form="original",
            status="(body->'metadata'->'response'->>'status_code')::int",
            time="(body->'metadata'->>'execution_time_ms')::int",
            project="body->'metadata'->>'project_ref'",
        ),
        LOGS: """SELECT id, timestamp, event_message, (body->'metadata')::text FROM edge_original
            WHERE body->>'project' = %(project)s AND timestamp > %(since)s ORDER BY timestamp DESC LIMIT 100""",
        COUNTS: f"""SELECT {_BUCKET}, {_COUNTS.format(path="body->'metadata'->'request'->>'path'")}
            FROM edge_original WHERE timestamp >= %(since)s
            AND body->'metadata'->'request'->>'url' ~ %(project)s GROUP BY bucket ORDER BY bucket""",
    },
    "tuned": {
        STATS: _STATS.format(form="tuned", status="status", time="execution_time", project="project"),
        LOGS: """SELECT id, timestamp, event_message, metadata::text FROM edge_tuned
            WHERE project = %(project)s AND timestamp > %(since)s ORDER BY timestamp DESC LIMIT 100""",
        COUNTS: f"""SELECT {_BUCKET}, {_COUNTS.format(path="path")} FROM edge_tuned
            WHERE timestamp >= %(since)s AND url ~ %(project)s GROUP BY bucket ORDER BY bucket""",
    },
}


@contextmanager
def server() -> Iterator[str]:
    """A PostgreSQL of its own; gives what a client needs to reach it. Raises FileNotFoundError where there is none."""
    binaries = Path(_BINARIES)
    if not (binaries / "postgres").exists():
        found = shutil.which("postgres")
        if found is None:
            raise FileNotFoundError("PostgreSQL 15 is not installed (Debian: apt-get install postgresql-15)")
        binaries = Path(found).resolve().parent
    with tempfile.TemporaryDirectory(prefix="bench-postgres-") as name:
        folder, user = Path(name), None
        if os.getuid() == 0:  # PostgreSQL refuses to be root's
            user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
            shutil.chown(folder, user)
        quiet: dict[str, Any] = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "check": True}
        data = str(folder / "data")
        subprocess.run([str(binaries / "initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8"], **quiet)
        options = " ".join(f"-c {key}={value or chr(39) * 2}" for key, value in _OPTIONS.items())
        control = [str(binaries / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log")]
        subprocess.run([*control, "-o", f"-k {folder} {options}", "start"], **quiet)
        try:
            yield f"host={folder} user=bench dbname=postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)


class Postgres:
    """An `Engine`: one of the two forms."""

    def __init__(self, dsn: str, form: str) -> None:
        self._form = form
        self.name = f"PostgreSQL, {form}"
        self._db = psycopg.connect(dsn, autocommit=True)

    def ask(self, case: Case, now: int) -> Rows:
        """As `Engine` says."""
        values: dict[str, Any] = {"project": case.project, "since": _time(case.since(now))}
        if case.endpoint != LOGS:
            values["grain"] = case.grain
        query: Any = _QUERIES[self._form][case.endpoint]
        rows: Rows = self._db.execute(query, values).fetchall()
        if case.endpoint == LOGS:
            return [(identity, _micros(time), *texts) for identity, time, *texts in rows]
        return [(_micros(bucket), *values) for bucket, *values in rows]

    def size(self) -> int:
        """As `Engine` says, indexes included."""
        row = self._db.execute("SELECT pg_total_relation_size(%s)", (f"edge_{self._form}",)).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """As `Engine` says."""
        self._db.close()


def fill(dsn: str, columns: Path, forms: tuple[str, ...] = ("original", "tuned")) -> None:
    """Fill the tables of both forms from the Parquet files, in the order of time."""
    source = duckdb.connect()
    with psycopg.connect(dsn) as db:  # in the transaction that makes a table its rows need no write-ahead log
        db.execute(_TABLES)
        for form in forms:
            for file in sorted(columns.iterdir()):
                table = file.name.partition("-")[0]
                source.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM read_parquet('{file}')")
                _copy(db, source, f"{table}_{form}")
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(_INDEXES)
        db.execute("VACUUM ANALYZE")


def _copy(db: Any, source: Any, table: str) -> None:
    """Through a CSV file that DuckDB writes."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "csv"
        source.execute(f"COPY ({_EXPORTS[table]}) TO '{file}' (FORMAT csv, HEADER false)")
        with file.open("rb") as rows, db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            while part := rows.read(1 << 20):
                copy.write(part)


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
