"""`freshet keys` as operators type it."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from test_ops_cli import complaint, freshet

from schema.clock import system_clock
from schema.keys import hash_secret, split_key
from schema.tables import control_path
from schema.timestamps import DAY, SECOND

SCOPED = ("--project", "two", "--project", "one", "--endpoint", "logs.all", "--allow", "query", "--allow", "ingest")


def listed(folder: Path) -> list[dict[str, object]]:
    done = freshet(folder, "keys", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    keys: list[dict[str, object]] = json.loads(done.stdout)["keys"]
    return keys


def test_a_key_is_made_with_scopes_and_expiry_and_listed_without_its_secret(tmp_path: Path) -> None:
    before = system_clock()
    key = json.loads(freshet(tmp_path, "keys", "add", "narrow", *SCOPED, "--expires", "90d", "--json").stdout)["key"]
    wide = freshet(tmp_path, "keys", "add", "wide").stdout.strip()
    narrow, other = listed(tmp_path)
    parts = split_key(key)
    assert parts is not None
    assert (narrow["name"], narrow["id"]) == ("narrow", parts[0])
    assert (narrow["projects"], narrow["endpoints"], narrow["allow"]) == (
        ["one", "two"],
        ["logs.all"],
        ["ingest", "query"],
    )
    assert (other["projects"], other["endpoints"], other["allow"]) == (None, None, ["query"])
    assert (other["expires_at"], other["last_used_at"], narrow["last_used_at"]) == (None, None, None)
    assert isinstance(narrow["expires_at"], int)
    assert 0 <= narrow["expires_at"] - before - 90 * DAY < 60 * SECOND
    for shown in (freshet(tmp_path, "keys", "list").stdout, json.dumps(listed(tmp_path))):
        for secret in (parts[1], hash_secret(parts[1]).hex(), wide.split("_", 2)[2]):
            assert secret not in shown


def test_the_list_for_people_tells_scope_and_what_has_expired(tmp_path: Path) -> None:
    freshet(tmp_path, "keys", "add", "narrow", *SCOPED)
    freshet(tmp_path, "keys", "add", "old", "--expires", "0d")
    head, narrow, old = freshet(tmp_path, "keys", "list").stdout.splitlines()
    assert head.split() == ["name", "id", "made", "expires", "last", "used", "scope"]
    assert narrow.endswith("ingest and query, projects one two, endpoints logs.all")
    assert old.endswith("query, all projects, all endpoints, EXPIRED")
    assert re.fullmatch(r"old +[0-9a-f]{12} \d{4}-\S+ \d{4}-\S+ - .*", old)


def test_a_revoked_key_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    freshet(tmp_path, "keys", "add", "a")
    assert freshet(tmp_path, "keys", "revoke", "a").stdout == "a is revoked\n"
    assert listed(tmp_path) == []
    assert "there is no key called a" in complaint(tmp_path, "keys", "revoke", "a")
    assert freshet(tmp_path, "keys", "add", "a").returncode == 0


@pytest.mark.parametrize("text", ["", "90", "90days", "-1d", "1.5h", "d"])
def test_an_expiry_that_can_not_be_read_is_told(tmp_path: Path, text: str) -> None:
    said = complaint(tmp_path, "keys", "add", "a", "--expires", text)
    assert said == f"--expires is {text!r}: it must be a number with s, min, h or d, such as 8d"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--project", "--endpoint"])
def test_an_empty_scope_is_not_taken_for_all(tmp_path: Path, option: str) -> None:
    assert "is empty" in complaint(tmp_path, "keys", "add", "a", option, "")


def test_what_a_key_is_for_is_one_of_two(tmp_path: Path) -> None:
    done = freshet(tmp_path, "keys", "add", "a", "--allow", "admin")
    assert done.returncode == 2
    assert "'query', 'ingest'" in done.stderr


def test_keys_of_an_older_freshet_see_what_they_saw(tmp_path: Path) -> None:
    freshet(tmp_path, "keys", "add", "a")
    with closing(sqlite3.connect(control_path(tmp_path / "data"))) as db, db:
        for column in ("projects", "endpoints", "allow", "expires_at", "last_used_at"):
            db.execute(f"ALTER TABLE keys DROP COLUMN {column}")
        db.execute("DELETE FROM _sqlite_migrations WHERE name = '0002_key_scopes'")
    (key,) = listed(tmp_path)
    assert (key["projects"], key["endpoints"], key["allow"], key["expires_at"]) == (None, None, ["query"], None)
