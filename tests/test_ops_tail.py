"""`freshet tail` as operators run it: from the store and from an API, with nothing on the terminal but text."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service import free_port
from test_api_arrivals import Log
from test_api_http import Api
from test_ops_cli import complaint

from ops.keys import add_key
from ops.tail import plain_json
from schema.shown import plain_text

SENT = "\x1b[31mred\x1b[0m \u202egnp\0 \\ two\nlines é \U000e0041"
READ = r"\x1b[31mred\x1b[0m \u202egnp\x00 \ two\nlines é \U000e0041"
BIG = "9007199254740993.10e400"


@contextmanager
def tailing(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, following. Killed when left."""
    program = ["env", "--default-signal=INT", sys.executable]  # a shell's background jobs ignore it
    command = [*program, "-u", "-m", "ops", "tail", "--project", "p", *arguments]
    environment = {**os.environ, "FRESHET_DATA": str(folder / "data")}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(log: Log, process: subprocess.Popen[str], **fields: Any) -> str:
    """The line of an entry that is sent again and again until the command has begun to follow."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    for _ in range(100):
        log.send(1, **fields)
        try:
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            pass
        else:
            raise AssertionError(process.communicate())
        if line := process.stdout.readline():
            os.set_blocking(process.stdout.fileno(), True)
            return line
    raise AssertionError("nothing was printed")


@pytest.mark.parametrize("source", ["store", "api"])
def test_entries_are_printed_as_they_come_as_text_alone_until_ctrl_c(tmp_path: Path, source: str) -> None:
    log = Log(tmp_path / "data")
    (tmp_path / "key").write_text(add_key(log.data, "follower") + "\n")
    with Api(tmp_path) as api:
        arguments = ["--url", f"http://127.0.0.1:{api.port}", "--key-file", "key"] if source == "api" else []
        with tailing(tmp_path, *arguments) as process:
            line = first_line(log, process, event_message=SENT)
            time, _, message = line.rstrip("\n").partition(" ")
            assert re.fullmatch(r"2025-06-15T13:\d\d:\d\d\.\d{6}Z", time)
            assert message == READ
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""


@pytest.mark.parametrize("source", ["store", "api"])
def test_json_is_a_line_of_ascii_an_entry_with_its_numbers_as_sent(tmp_path: Path, source: str) -> None:
    log = Log(tmp_path / "data")
    (tmp_path / "key").write_text(add_key(log.data, "follower"))
    with Api(tmp_path) as api:
        arguments = ["--url", f"http://127.0.0.1:{api.port}", "--key-file", "key"] if source == "api" else []
        with tailing(tmp_path, "--json", "--text", "RED", *arguments) as process:
            line = first_line(log, process, event_message=SENT, metadata={"é": "\u202e", "n": 2**70})
    assert line.isascii()
    entry = json.loads(line)
    assert entry["event_message"] == SENT
    assert entry["metadata"] == {"é": "\u202e", "n": 2**70}


def test_what_can_not_be_followed_is_one_line_that_says_why(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    (tmp_path / "key").write_text(add_key(log.data, "scoped", projects=("q",)))
    (tmp_path / "bad").write_text("fr_0_0")
    with Api(tmp_path) as api:
        url = f"http://127.0.0.1:{api.port}"
        follow = ("tail", "--project", "p", "--url", url)
        assert "--key-file" in complaint(tmp_path, *follow)
        assert "not known here" in complaint(tmp_path, *follow, "--key-file", "bad")
        assert "scope" in complaint(tmp_path, *follow, "--key-file", "key")
        assert "http://host:port" in complaint(tmp_path, *follow[:-1], "localhost", "--key-file", "key")
    away = f"http://127.0.0.1:{free_port()}"
    assert "does not answer" in complaint(tmp_path, *follow[:-1], away, "--key-file", "key")
    assert "start a worker" in complaint(tmp_path, "tail", "--project", "p", DATA="elsewhere")


@given(st.text())
def test_plain_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    plain = plain_text(text)
    assert plain.isprintable()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", plain)


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)
    )
)
def test_plain_json_is_the_same_json_in_ascii_on_one_line(value: object) -> None:
    for indent in (None, 1):
        plain = plain_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert plain.isascii()
        assert plain.isprintable()
        assert json.loads(plain) == value
    assert plain_json(f'{{"big":{BIG}}}') == f'{{"big":{BIG}}}'
