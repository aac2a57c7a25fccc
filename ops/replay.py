"""`freshet replay` and `freshet verify`: the tables built anew from the log."""

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import click

from ops.bars import Bars
from schema.clock import system_clock
from schema.errors import FreshetError
from schema.settings import EMBEDDED, Settings
from schema.tables import migrate, store_path
from schema.timestamps import parse_iso
from streams.content import Difference, Range
from streams.generations import sole_replay
from streams.rebuild import LogReader
from streams.replay import Outcome, Replay, Wish, remove_store
from streams.topics import prepare_topics

DIFFERENT = 3
"""The exit code where the rebuilt tables are not what the live ones are."""
_GRACE_SECONDS = 5.0  # for answers begun before a switch, beside their own time limit


def run_replay(settings: Settings, wish: Wish, resume: bool, discard: bool, accept_differences: bool) -> int:
    """Replay, or throw an unfinished replay away; returns the exit code. Raises FreshetError where it can't be done."""
    require_log(settings)
    migrate(settings.data)
    with sole_replay(settings.data):
        cluster = asyncio.run(prepare_topics(settings))
        replay = Replay(settings, system_clock, cluster)
        for generation in range(1, replay.old_generation):  # left by a replay that died after its switch
            remove_store(store_path(settings.data, generation))
        if discard:
            replay.discard()
            click.echo("the unfinished replay is thrown away; the live database goes on")
            return 0
        if replay.unfinished != resume:
            raise FreshetError(
                f"{replay.new} is an unfinished replay: --resume it or --discard it"
                if replay.unfinished
                else "there is no unfinished replay to resume"
            )
        if resume and not replay.begun:
            replay.discard()
            resume = False
        outcome = asyncio.run(_replay(settings, replay, wish, resume, accept_differences))
        if not outcome.same:
            show(outcome.ranges, outcome.differences, "the live database", "the rebuilt one")
            if not accept_differences:
                click.echo(
                    "The live database goes on. To use the rebuilt one all the same: --resume --accept-differences"
                )
                return DIFFERENT
        click.echo(f"generation {outcome.generation} answers and ingests now")
        time.sleep(settings.query_seconds + _GRACE_SECONDS)  # answers begun on the old one may still read it
        remove_store(replay.old)
        return 0


def read_wish(settings: Settings, topics: tuple[str, ...], from_offset: int | None, from_time: str | None) -> Wish:
    """What a command line asks to have replayed. Raises FreshetError for a topic or a time that is none."""
    for topic in topics:
        if topic not in (settings.topic_edge, settings.topic_functions):
            raise FreshetError(f"{topic} is not read; the topics are {settings.topic_edge}, {settings.topic_functions}")
    micros = parse_iso(from_time) if from_time is not None else None
    if from_time is not None and micros is None:
        raise FreshetError(f"{from_time!r} is no ISO 8601 time such as 2026-01-31T12:00:00Z")
    return Wish(topics, from_offset, None if micros is None else micros // 1000)


async def _replay(settings: Settings, replay: Replay, wish: Wish, resume: bool, accept_differences: bool) -> Outcome:
    async with LogReader(settings) as reader:
        if not resume:
            await replay.begin(wish, reader)
        with Bars() as bars:
            return await replay.run(reader, bars.watcher, accept_differences)


def require_log(settings: Settings) -> None:
    """Raises FreshetError for the embedded broker, whose log is gone when it stops."""
    if settings.broker == EMBEDDED:
        raise FreshetError("the embedded broker's log is in another process's memory: replay and verify need a Kafka")


def show(ranges: list[Range], found: list[Difference], first: str, second: str) -> None:
    """Print in which days of which tables two stores differ, and the first rows that only one of them holds."""
    names = {"first": first, "second": second}
    click.echo(f"{len(ranges)} days of tables differ: " + "; ".join(map(str, ranges[:10])))
    for difference in found:
        click.echo(f"  only in {names[difference.only_in]}: {difference.row}")


def temporary(stack: ExitStack, path: Path) -> Path:
    """A database that is deleted when the stack closes, and of which no earlier run has left anything."""
    remove_store(path)
    stack.callback(remove_store, path)
    return path
