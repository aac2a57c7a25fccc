"""Migrations make the tables once, whoever runs them, and leave a newer version's database alone."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from schema.errors import StoreTooNew
from schema.tables import (
    INVOCATION_GRAINS,
    ORIGIN_GRAINS,
    control_path,
    current_generation,
    migrate,
    migrate_control,
    store_path,
)

MIGRATE = "import sys, pathlib, schema.tables as t; print('ready', flush=True); sys.stdin.readline();"
MIGRATE += "print(t.migrate(pathlib.Path(sys.argv[1])))"


def schema_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()


def run(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last of some statements; all are committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return [db.execute(statement).fetchall() for statement in statements][-1]


def test_migrating_makes_both_databases_and_names_the_store(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    assert migrate(data) == store_path(data, 1) == data / "freshet-1.db"
    assert control_path(data).exists()
    assert current_generation(data) == 1
    assert {name for name, _ in schema_of(data / "freshet-1.db")} >= {
        *("store", "invocations", "entry_blocks", "dictionaries", "url_blocks", "origin_hits", "recreations"),
        *("positions", "rejects", "counters", "entry_blocks_newest", "url_blocks_newest"),
    }
    assert {name for name, _ in schema_of(control_path(data))} >= {"generation", "keys"}


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    store = migrate(tmp_path)
    run(store, "INSERT INTO counters VALUES ('t', 'n', 5)")
    run(control_path(tmp_path), "INSERT INTO keys (id, name, hash, created_at) VALUES ('i', 'n', x'00', 1)")
    before = schema_of(store), schema_of(control_path(tmp_path))
    assert (migrate(tmp_path), migrate_control(tmp_path)) == (store, control_path(tmp_path))
    assert (schema_of(store), schema_of(control_path(tmp_path))) == before
    assert run(store, "SELECT * FROM counters") == [("t", "n", 5)]
    assert run(store, "SELECT one, retired FROM store") == [(1, 0)]
    assert run(control_path(tmp_path), "SELECT count(*) FROM keys") == [(1,)]


def test_several_processes_migrate_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MIGRATE, str(tmp_path / "data")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outcomes = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    store = tmp_path / "data" / "freshet-1.db"
    assert outcomes == [(f"{store}\n", "", 0)] * 4
    migrate(tmp_path / "alone")
    assert schema_of(store) == schema_of(tmp_path / "alone" / "freshet-1.db")
    assert run(store, "PRAGMA integrity_check") == [("ok",)]


def test_the_current_generations_database_is_the_one_that_is_made(tmp_path: Path) -> None:
    migrate_control(tmp_path)
    run(control_path(tmp_path), "UPDATE generation SET current = 7")
    assert migrate(tmp_path) == tmp_path / "freshet-7.db"
    assert not store_path(tmp_path, 1).exists()


@pytest.mark.parametrize(
    ("migrated_set", "file", "migrations"),
    [
        ("freshet-store", "freshet-1.db", [migrate]),
        ("freshet-control", "control.db", [migrate, migrate_control]),
    ],
)
def test_a_newer_versions_database_is_refused_by_name_and_left_alone(
    tmp_path: Path, migrated_set: str, file: str, migrations: list[Callable[[Path], Path]]
) -> None:
    migrate(tmp_path)
    path = tmp_path / file
    later = f"'{migrated_set}', '0999_later', '2031-01-01'"
    into = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
    run(path, "CREATE TABLE later (x)", f"{into} VALUES ({later})")
    before = path.read_bytes()
    for refused in migrations:
        with pytest.raises(StoreTooNew) as error:
            refused(tmp_path)
        for said in (str(path), "newer Freshet", "0999_later", "FRESHET_DATA"):
            assert said in str(error.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("table", "insert"),
    [
        (
            "entry_blocks",
            "(project, min_timestamp, max_timestamp, count, dictionary, payload) VALUES ('p', 1, 2, 1, 0, x'00')",
        ),
        ("url_blocks", "(min_timestamp, max_timestamp, count, payload) VALUES (1, 2, 1, x'00')"),
        ("dictionaries", "(trained_at, content) VALUES (1, x'00')"),
        (
            "rejects",
            '(log, topic, partition, "offset", element, reason, rejected_at, data) '
            "VALUES ('l', 't', 0, 1, -1, 'not_json', 1, x'00')",
        ),
    ],
)
def test_an_id_is_never_used_again(tmp_path: Path, table: str, insert: str) -> None:
    store = migrate(tmp_path)
    add = f"INSERT INTO {table} {insert}"
    (last,) = run(store, add, add, add, f"SELECT max(id) FROM {table}")  # noqa: S608
    run(store, f"DELETE FROM {table}")  # noqa: S608
    (new,) = run(store, add, f"SELECT max(id) FROM {table}")  # noqa: S608
    assert (last, new) == ((3,), (4,))


def test_tables_take_no_value_of_another_type(tmp_path: Path) -> None:
    store = migrate(tmp_path)
    for statement in (
        "INSERT INTO counters VALUES ('t', 'n', 'many')",
        "INSERT INTO counters VALUES ('t', 'n', 1.5)",
        "INSERT INTO dictionaries (trained_at, content) VALUES (1, 'text')",
        "INSERT INTO store (one) VALUES (2)",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            run(store, statement)


def test_databases_are_in_write_ahead_mode_with_pages_of_8_kib(tmp_path: Path) -> None:
    for path in (migrate(tmp_path), control_path(tmp_path)):
        assert run(path, "PRAGMA journal_mode") == [("wal",)]
        assert run(path, "PRAGMA page_size") == [(4096,)]


def test_the_grains_are_those_of_the_design() -> None:
    assert INVOCATION_GRAINS == (1, 60, 3600, 86_400)
    assert ORIGIN_GRAINS == (60, 3600, 86_400)
