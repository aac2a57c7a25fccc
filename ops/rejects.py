"""`freshet rejects list`, `show` and `export`: what was not taken, for people."""

import base64
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from schema.clock import system_clock
from schema.errors import FreshetError, StoreMissing
from schema.settings import Settings, parse_duration
from schema.shown import shown
from schema.tables import control_path, current_generation, store_path
from schema.timestamps import datetime_text, parse_iso
from streams.rejects import KeptReject, Wanted, counted, newest, retried_counts, with_ids

_SAMPLE = 60  # characters
_STDOUT = Path("-")


def read_wanted(
    reasons: tuple[str, ...],
    topics: tuple[str, ...],
    since: str | None,
    until: str | None,
    partition: int | None,
    offset: int | None,
) -> Wanted:
    """Which rejects a command line means. Raises FreshetError for a time that is none."""
    return Wanted(reasons, topics, _time("--since", since), _time("--until", until), partition, offset)


def list_rejects(settings: Settings, wanted: Wanted, limit: int, as_json: bool) -> None:
    """Print how many are kept by topic and reason, and the newest."""
    with _store(settings) as db:
        counts = counted(db, wanted)
        rejects = list(newest(db, wanted, limit))
        retried = retried_counts(db)
    total = sum(count for *_, count in counts)
    if as_json:
        by_reason = [{"topic": topic, "reason": reason, "kept": count} for topic, reason, count in counts]
        click.echo(json.dumps({"kept": total, "counts": by_reason, "rejects": [described(one) for one in rejects]}))
        return
    for topic, reason, count in counts:
        again = retried.get((topic, reason), 0)
        click.echo(f"{topic}: {reason} {count:,} kept" + (f", {again:,} retried" if again else ""))
    if not rejects:
        click.echo("no rejects" if total == 0 else f"{total:,} rejects")
        return
    click.echo(f"\n{'id':>8}  {'rejected at':19}  {'reason':13}  {'where':40}  {'bytes':>9}  data")
    for one in rejects:
        when, size = datetime_text(one.rejected_at)[:19], f"{one.size:,}"
        click.echo(f"{one.id:8}  {when:19}  {one.reason:13}  {_place(one):40}  {size:>9}  {shown(one.data, _SAMPLE)}")
    if len(rejects) < total:
        click.echo(f"the newest {len(rejects):,} of {total:,}: --limit shows more")


def show_reject(settings: Settings, number: int, as_json: bool) -> None:
    """Print all about one. Raises FreshetError where there is none of that id."""
    with _store(settings) as db:
        found = with_ids(db, [number])
    if not found:
        raise FreshetError(f"there is no reject {number}: it was retried, has gone, or a replay has numbered them anew")
    (one,) = found
    if as_json:
        click.echo(json.dumps(described(one)))
        return
    element = "the message as a whole" if one.element < 0 else f"element {one.element}"
    click.echo(f"reject {one.id}: {one.reason}, {element}")
    click.echo(f"from {one.source}, offset {one.offset}, log {one.source.log}")
    if one.timestamp > 0:
        click.echo(f"message of {datetime_text(one.timestamp * 1000)}")
    click.echo(f"rejected at {datetime_text(one.rejected_at)}")
    cut = "" if len(one.data) == one.size else f", of which the first {len(one.data):,} are kept"
    click.echo(f"{one.size:,} bytes{cut}:\n{shown(one.data)}")


def export_rejects(settings: Settings, wanted: Wanted, file: Path) -> int:
    """Write them to a new file, or for `-` to standard output, a line of JSON each; returns how many.

    Raises FreshetError where the file is there already.
    """
    with _store(settings) as db, _new(file) as out:
        count = 0
        for one in newest(db, wanted):
            out.write(json.dumps(described(one)) + "\n")
            count += 1
        return count


def described(one: KeptReject) -> dict[str, Any]:
    """A reject as JSON, times in µs; its data as text where it is UTF-8, else as base64."""
    try:
        data = {"data": one.data.decode(), "encoding": "text"}
    except UnicodeDecodeError:
        data = {"data": base64.b64encode(one.data).decode(), "encoding": "base64"}
    return {
        "id": one.id,
        "topic": one.source.topic,
        "partition": one.source.partition,
        "offset": one.offset,
        "element": one.element,
        "reason": one.reason,
        "time": one.rejected_at,
        "size": one.size,
        **data,
    }


def _place(one: KeptReject) -> str:
    return f"{one.source} {one.offset}" + ("" if one.element < 0 else f":{one.element}")


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    micros = parse_iso(text)
    if micros is None:
        try:
            return system_clock() - parse_duration(text)
        except ValueError as error:
            raise FreshetError(
                f"{option} is {text!r}: it must be an ISO 8601 time such as 2026-01-31T12:00:00Z, "
                "or how long ago, such as 90min, 3h or 2d"
            ) from error
    return micros


@contextmanager
def _store(settings: Settings) -> Iterator[sqlite3.Connection]:
    """One state of the live store, for reading."""
    if not control_path(settings.data).exists():
        raise StoreMissing(f"there is no database in {settings.data} yet: start a worker")
    path = store_path(settings.data, current_generation(settings.data))
    if not path.exists():
        raise StoreMissing(f"{path} is not there yet: start a worker")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
        db.execute("BEGIN")
        yield db


@contextmanager
def _new(file: Path) -> Iterator[TextIO]:
    if file == _STDOUT:
        yield sys.stdout
        return
    try:
        with open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:  # for a mode
            yield out
    except FileExistsError as error:
        raise FreshetError(f"{file} is there already: name another file") from error
