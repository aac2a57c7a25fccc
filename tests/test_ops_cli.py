"""The `freshet` command as operators type it: help, settings, keys, and errors in one line before anything starts."""

import hashlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from service import free_port

from ops.cli import main
from schema.settings import Settings
from schema.tables import control_path, migrate_control


def freshet(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with these settings alone, its data in `data`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FRESHET_")}
    return subprocess.run(
        [sys.executable, "-m", "ops", *arguments],
        cwd=folder,
        env=environment | {f"FRESHET_{name}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=60,
    )


def complaint(folder: Path, *arguments: str, **settings: str) -> str:
    """The one line with which the command refuses; it exits with 1 and prints nothing else."""
    done = freshet(folder, *arguments, **settings)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("freshet: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("freshet: ").strip()


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, with the words that call them."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [words for words, _ in commands(main)], ids=" ".join)
def test_every_command_has_help_and_so_has_each_of_its_options(words: tuple[str, ...]) -> None:
    command = dict(commands(main))[words]
    assert command.help
    assert command.help.split("\n")[0].endswith((".", ":"))
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_help_is_shown_without_any_setting_and_touches_nothing(tmp_path: Path) -> None:
    for arguments in (["--help"], ["-h"], ["keys", "-h"], ["up", "--help"], ["keys", "add", "--help"]):
        done = freshet(tmp_path, *arguments)
        assert done.returncode == 0
        assert done.stdout.startswith("Usage: ")
    shown = freshet(tmp_path, "--help").stdout
    assert all(name in shown for name, command in main.commands.items() if not command.hidden)
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_told(tmp_path: Path) -> None:
    assert "0.1.0" in freshet(tmp_path, "--version").stdout


@pytest.mark.parametrize(
    "command", [["worker"], ["api"], ["up"], ["demo"], ["keys", "add", "a"], ["accept-recreated", "t"]]
)
def test_an_unknown_setting_stops_every_command_with_the_names_of_those_that_there_are(
    tmp_path: Path, command: list[str]
) -> None:
    said = complaint(tmp_path, *command, LISTN="127.0.0.1:1")
    assert said.startswith("FRESHET_LISTN is no setting of Freshet. There are: ")
    assert all(f"FRESHET_{name.upper()}" in said for name in Settings.__dataclass_fields__)
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_can_not_be_read_is_named_with_its_value(tmp_path: Path) -> None:
    assert complaint(tmp_path, "api", LISTEN="4000").startswith("FRESHET_LISTEN is '4000': it must be host:port, ")
    (tmp_path / "freshet.toml").write_text("api_processes = 0\n")
    assert complaint(tmp_path, "api") == "api_processes in freshet.toml is '0': it must be a whole number of 1 or more"


def test_a_new_key_is_shown_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    done = freshet(tmp_path, "keys", "add", "studio", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    key = json.loads(done.stdout)["key"]
    assert json.loads(done.stdout) == {"key": key}
    _, identifier, secret = key.split("_", 2)
    with closing(sqlite3.connect(control_path(tmp_path / "data"))) as db:
        assert db.execute("SELECT id, name, hash FROM keys").fetchall() == [
            (identifier, "studio", hashlib.sha256(secret.encode()).digest())
        ]
    for file in (tmp_path / "data").iterdir():
        assert secret.encode() not in file.read_bytes()


def test_keys_are_plain_text_without_json_and_all_different(tmp_path: Path) -> None:
    keys = [freshet(tmp_path, "keys", "add", name).stdout.strip() for name in ("a", "b", "ü b")]
    assert len(set(keys)) == 3
    assert all(key.startswith("fr_") and key.isascii() and " " not in key for key in keys)


def test_a_name_is_given_to_one_key_only(tmp_path: Path) -> None:
    first = freshet(tmp_path, "keys", "add", "studio")
    assert complaint(tmp_path, "keys", "add", "studio") == "there is a key called studio already: choose another name"
    with closing(sqlite3.connect(control_path(tmp_path / "data"))) as db:
        ((identifier,),) = db.execute("SELECT id FROM keys")
    assert identifier in first.stdout


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(migrate_control(tmp_path / "data"))) as db, db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, '9999_hence', '')",
            ("freshet-control",),
        )
    for command in (["keys", "add", "a"], ["up"], ["worker"]):
        assert "was made by a newer Freshet (it has had 9999_hence)" in complaint(
            tmp_path, *command, LISTEN=f"127.0.0.1:{free_port()}"
        )


def test_up_says_who_is_in_its_way_before_it_makes_anything(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert complaint(tmp_path, "up", LISTEN=address) == (
            f"{address} can't be listened on (Address already in use): set FRESHET_LISTEN to another address"
        )
    assert "can't be listened on" in complaint(tmp_path, "up", LISTEN="192.0.2.1:4000")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["worker", "demo"])
def test_without_a_broker_a_command_says_which_and_what_to_do(tmp_path: Path, command: str) -> None:
    done = freshet(tmp_path, command, BROKER="kafka://127.0.0.1:1")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("freshet: no broker answers at kafka://127.0.0.1:1 (")
    assert last.endswith("start it, or set FRESHET_BROKER")
    assert "Traceback" not in done.stderr


def test_accept_recreated_takes_only_a_topic_that_is_read_from_a_real_broker(tmp_path: Path) -> None:
    assert complaint(tmp_path, "accept-recreated", "other", BROKER="kafka://127.0.0.1:1") == (
        "other is not read; the topics are cloudflare.logs.prod and deno-relay-logs"
    )
    assert complaint(tmp_path, "accept-recreated", "mine", TOPIC_EDGE="mine") == (
        "the embedded broker's topics are new at each start, and known to be"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_can_not_be_made_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["keys", "add", "a"], ["worker"], ["up"]):
        assert "file" in complaint(tmp_path, *command, DATA=str(tmp_path / "file"), LISTEN=f"127.0.0.1:{free_port()}")
