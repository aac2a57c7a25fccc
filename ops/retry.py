"""`freshet rejects retry`: rejects decoded again after a fix, and folded exactly once."""

import asyncio
from collections import Counter
from contextlib import closing
from typing import Any

import click
import msgspec

from schema.clock import system_clock
from schema.errors import StoreMissing
from schema.settings import Settings
from schema.tables import control_path, migrate
from streams.app import EDGE, FUNCTIONS
from streams.batch import Topic
from streams.generations import no_replay
from streams.rejects import Wanted, messages
from streams.retry import Retried, Retry
from streams.retry_log import log_of
from streams.store import Store


def run_retry(settings: Settings, wanted: Wanted, as_json: bool) -> None:
    """Retry the rejects meant, and print what came of it. Raises FreshetError where it can't be done."""
    if not control_path(settings.data).exists():
        raise StoreMissing(f"there is no database in {settings.data} yet: start a worker")
    with no_replay(settings.data), closing(Store(migrate(settings.data), system_clock)) as store:
        retried = asyncio.run(_retry(settings, store, wanted))
    click.echo(msgspec.json.encode(retried).decode() if as_json else _told(retried))


async def _retry(settings: Settings, store: Store, wanted: Wanted) -> Retried:
    async with log_of(settings, store) as log:
        topics: dict[str, Topic[Any]] = {
            settings.topic_edge: EDGE.redacting(settings.redacted),
            settings.topic_functions: FUNCTIONS.redacting(settings.redacted),
        }
        retry = Retry(store, log, topics, system_clock)
        todo = messages(store.connection, wanted)
        with click.progressbar(todo, label="retrying", file=click.get_text_stream("stderr")) as bar:
            for source, ids in bar:
                await retry.message(source, ids)
        return retry.retried


def _told(retried: Retried) -> str:
    lines = [f"folded {_sum(retried.folded)}, which gave {retried.events:,} events"]
    if retried.new:
        lines.append(f"new: {_sum(retried.new)}, elements of messages that had been rejected whole")
    if retried.still:
        lines.append(f"still rejected: {_sum(retried.still)}")
    lines += [f"can't be retried: {count:,}: {why}" for why, count in retried.impossible.items()]
    if retried.gone:
        lines.append(f"{retried.gone:,} were gone: retried by another, or too old to be kept")
    return "\n".join(lines)


def _sum(counts: Counter[str]) -> str:
    by_reason = ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))
    return f"{counts.total():,}" + (f" ({by_reason})" if by_reason else "")
