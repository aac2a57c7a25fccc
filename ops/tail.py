"""`freshet tail`: a project's entries as they come, straight from the store or from an API over HTTP."""

import http.client
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import click
import msgspec

from api.arrivals import Follower
from api.bodies import body
from api.matching_entries import Filters
from api.parameters import typed_parameters
from api.reader import Answer
from api.tail import COLUMNS
from schema.errors import FreshetError, QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.settings import Settings
from schema.shown import plain_text
from schema.timestamps import SECOND

_LOOK_SECONDS = 0.5
_SILENCE_SECONDS = 30.0  # the API says something every ten
_MOST_WAIT = 15.0
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


class Wish(NamedTuple):
    """What to follow, in the parameters of logs.search."""

    project: str
    text: str | None
    min_status: int | None

    @property
    def parameters(self) -> dict[str, str]:
        """Those that are given."""
        return {name: str(value) for name, value in self._asdict().items() if value is not None}


class _Row(msgspec.Struct):
    timestamp: int
    event_message: str


class _Rows(msgspec.Struct):
    result: list[msgspec.Raw]


class _Said(msgspec.Struct):
    message: str


class _Refused(msgspec.Struct):
    error: _Said


def run_tail(settings: Settings, wish: Wish, url: str | None, key_file: Path | None, as_json: bool) -> None:
    """Print entries until Ctrl-C. Raises FreshetError where there is nothing to follow."""
    if url is not None and key_file is None:
        raise FreshetError("--url needs --key-file: a file with an API key in it that may query")
    source = from_store(settings, wish) if url is None else from_api(url, _key(key_file), wish)
    try:
        for data in source:
            for row in msgspec.json.decode(data, type=_Rows).result:
                click.echo(plain_json(bytes(row).decode()) if as_json else line(row))
    except (KeyboardInterrupt, BrokenPipeError):
        return


def from_store(settings: Settings, wish: Wish, sleep: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """Answers of new entries as JSON, read from the store of this machine. Raises StoreMissing, StoreTooNew."""
    queries = load_saved_queries()
    shown = replace(queries["logs.all"], as_array=False)  # rows come one by one here
    typed_parameters(queries["logs.search"], {name: [value] for name, value in wish.parameters.items()})
    filters = Filters(wish.min_status, None, None, None, wish.text)
    follower = Follower(settings.data)
    place = follower.end()
    while True:
        try:
            lots, place, missed = follower.step(place, wish.project, filters)
        except QueryTimeout as error:
            click.echo(f"freshet: {error}", err=True)
            continue
        if missed:
            click.echo("freshet: more came than could be shown, or the tables were rebuilt", err=True)
        for _, rows in lots:
            yield body(shown, Answer(COLUMNS, [row[: len(COLUMNS)] for row in rows]))
        sleep(_LOOK_SECONDS)


def from_api(url: str, key: str, wish: Wish, sleep: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """Answers of new entries as JSON, from an API; where the stream is cut it goes on behind the last one that came.

    Raises FreshetError where the API refuses, or does not answer at the start.
    """
    place, wait = "", 1.0
    while True:
        try:
            for name, identity, data in _events(url, key, wish, place):
                place, wait = identity or place, 1.0
                if name == "entries":
                    yield data
                elif name in ("missed", "end"):
                    click.echo(f"freshet: {msgspec.json.decode(data, type=_Said).message}", err=True)
        except (OSError, http.client.HTTPException) as error:
            if not place:
                raise FreshetError(f"{url} does not answer ({error}): see that “freshet api” runs there") from error
        sleep(wait)
        wait = min(2 * wait, _MOST_WAIT)


def _events(url: str, key: str, wish: Wish, place: str) -> Iterator[tuple[str, str, bytes]]:
    address = urlsplit(url)
    kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}.get(address.scheme)
    if kind is None or not address.hostname:
        raise FreshetError(f"--url is {url!r}: it must be http://host:port or https://host")
    connection = kind(address.hostname, address.port, timeout=_SILENCE_SECONDS)
    try:
        headers = {"X-API-KEY": key, **({"Last-Event-ID": place} if place else {})}
        connection.request("GET", f"{address.path.rstrip('/')}/api/tail?{urlencode(wish.parameters)}", headers=headers)
        answer = connection.getresponse()
        if answer.status in (429, 503) and place:
            return
        if answer.status != 200:
            raise FreshetError(f"{url} refuses ({answer.status}): {_reason(answer.read())}")
        fields: dict[bytes, bytes] = {}
        for text in answer:
            if text.strip():
                field, _, value = text.rstrip(b"\r\n").partition(b": ")
                fields[field] = value
            elif fields:
                yield fields.get(b"event", b"").decode(), fields.get(b"id", b"").decode(), fields.get(b"data", b"")
                fields = {}
    finally:
        connection.close()


def line(row: msgspec.Raw) -> str:
    """An entry on one line: its time in UTC, and its message without anything that a terminal would obey."""
    entry = msgspec.json.decode(row, type=_Row)
    seconds, micros = divmod(entry.timestamp, SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{micros:06}Z {plain_text(entry.event_message)}"


def plain_json(text: str) -> str:
    """JSON on one line in ASCII alone. Numbers and the order of members stay as they were written."""
    return _NOT_PLAIN.sub(_plain, text)


def _plain(match: re.Match[str]) -> str:
    if match[0] in "\t\r\n\x7f":
        return " " if match[0] != "\x7f" else "\\u007f"
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _key(file: Path | None) -> str:
    assert file is not None
    return file.read_text().strip()


def _reason(answer: bytes) -> str:
    try:
        return plain_text(msgspec.json.decode(answer, type=_Refused).error.message)
    except msgspec.DecodeError:
        return "no reason given"
