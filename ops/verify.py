"""`freshet verify`: the live tables held against a rebuild from the log, or one database against another."""

import asyncio
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import click

from ops.bars import Bars
from ops.replay import DIFFERENT, require_log, show, temporary
from schema.clock import system_clock
from schema.errors import FreshetError
from schema.settings import Settings
from schema.tables import current_generation, store_path
from streams.content import Difference, Range, differences, size, snapshot
from streams.generations import sole_replay
from streams.rebuild import LogReader
from streams.replay import Outcome, Replay, Wish
from streams.topics import prepare_topics


def verify_databases(first: Path, second: Path) -> int:
    """Compare two databases that nothing writes to; returns the exit code. Raises FreshetError where one is missing."""
    for path in (first, second):
        if not path.exists():
            raise FreshetError(f"{path} is not there")
    with Bars() as bars, snapshot(first) as one, snapshot(second) as other:
        bars.watcher.step("comparing", size(one) + size(other))
        found = differences(one, other, bars.watcher.done)
    return _judge(*found, str(first), str(second))


def verify_live(settings: Settings) -> int:
    """Compare a copy of the live database with a rebuild up to the same positions; the live one goes on meanwhile."""
    require_log(settings)
    with sole_replay(settings.data), ExitStack() as stack:
        cluster = asyncio.run(prepare_topics(settings))
        replay = Replay(settings, system_clock, cluster)
        live = store_path(settings.data, current_generation(settings.data))
        replay.old = temporary(stack, settings.data / "verify-live.db")
        replay.new = temporary(stack, settings.data / "verify-rebuilt.db")
        copy_database(live, replay.old)
        outcome = asyncio.run(_rebuild(settings, replay))
        return _judge(outcome.ranges, outcome.differences, "the live database", "the rebuilt one")


async def _rebuild(settings: Settings, replay: Replay) -> Outcome:
    async with LogReader(settings) as reader:
        await replay.begin(Wish(), reader)
        with Bars() as bars:
            return await replay.rebuild(reader, bars.watcher)


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy of a live database, made in one go: writers don't wait for it."""
    with (
        closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, timeout=60)) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = wal")


def _judge(ranges: list[Range], found: list[Difference], first_name: str, second_name: str) -> int:
    if not ranges:
        click.echo(f"{first_name} and {second_name} hold the same")
        return 0
    show(ranges, found, first_name, second_name)
    return DIFFERENT
