"""The Faust application: two topics, two agents, one store."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import faust
from faust import StreamT

from schema.clock import Clock, system_clock
from schema.connection import connection
from schema.decoding import decode_edge, decode_functions
from schema.settings import Settings
from streams import transport
from streams.batch import Topic
from streams.fold import fold_edge, fold_invocations
from streams.ingest import Ingest

EDGE = Topic(decode_edge, fold_edge)
FUNCTIONS = Topic(decode_functions, fold_invocations)

log = logging.getLogger("freshet.worker")
BATCH_RECORDS = 4000  # of one fetch, all partitions together; with these sizes see docs/decisions/0013-memory.md
BATCH_BYTES = 4 << 20  # of one partition in one fetch
BUFFERED_BATCHES = 1  # beside the one being fetched and the one being applied
PRUNE_EVERY = 1.0  # seconds
SEAL_EVERY = 1.0  # seconds, where there was nothing to merge
SEAL_RESTS = 4  # times as long as it has worked: a fifth of one core at most
SEAL_RESTS_BEHIND = 19  # while there is a backlog: what the log holds is to be seen first
BACKLOG = 4 * BATCH_RECORDS  # messages that wait


class FreshetApp(faust.App):
    """A Faust application that carries the worker's `Ingest`."""

    ingest: Ingest


def create_app(settings: Settings, cluster: str, clock: Clock = system_clock) -> FreshetApp:
    """The worker's application, on a data folder whose databases have been migrated.

    `cluster` is the log's identity as `prepare_topics` tells it.
    """
    app = FreshetApp(
        settings.group,
        broker=[f"{transport.SCHEME}://{host}" for host in settings.bootstrap],
        broker_credentials=_credentials(settings),
        datadir=str(settings.data / "faust"),
        version=1,
        agent_supervisor="mode.CrashingSupervisor",
        broker_session_timeout=settings.session_seconds,
        broker_heartbeat_interval=max(0.5, settings.session_seconds / 10),
        broker_rebalance_timeout=60,
        broker_request_timeout=60,
        broker_max_poll_interval=365 * 86400.0,  # the watchdog's business: see docs/decisions/0003
        broker_max_poll_records=BATCH_RECORDS,
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="none",
        consumer_max_fetch_size=BATCH_BYTES,
        consumer_metadata_max_age_ms=5000,
        stream_buffer_maxsize=BUFFERED_BATCHES,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    app.ingest = Ingest(settings, clock, cluster)
    _agent(app, settings.topic_edge, EDGE.redacting(settings.redacted), "edge")
    _agent(app, settings.topic_functions, FUNCTIONS.redacting(settings.redacted), "functions")
    app.task(lambda: _prune(app))
    app.task(lambda: _seal(app))
    app.on_partitions_assigned.connect(_tell_of_spare)
    return app


def _credentials(settings: Settings) -> faust.SASLCredentials | faust.SSLCredentials | None:
    """The connection's way to speak and to log in, as Faust takes them."""
    arguments = connection(settings)
    context = arguments.get("ssl_context")
    if "sasl_mechanism" in arguments:
        return faust.SASLCredentials(
            mechanism=arguments["sasl_mechanism"],
            username=arguments["sasl_plain_username"],
            password=arguments["sasl_plain_password"],
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context is not None else None


async def _prune(app: FreshetApp) -> None:
    while not app.should_stop:
        await app.sleep(PRUNE_EVERY)
        await app.ingest.prune()


async def _tell_of_spare(_: Any, /, *assigned: Any, **__: Any) -> None:
    if not any(assigned):
        log.info("no partition is assigned to this worker: it stands by as a spare")


async def _seal(app: FreshetApp) -> None:
    """Seal while there is anything to merge, but never for more than a small part of the time.

    Its CPU time counts: on a busy machine it would fall behind if it rested for the time that it waited.
    """
    while not app.should_stop:
        busy = await app.ingest.seal()
        rests = SEAL_RESTS_BEHIND if app.ingest.lag(app.consumer.assignment()) > BACKLOG else SEAL_RESTS
        await app.sleep(rests * busy if busy else SEAL_EVERY)


def _agent(app: FreshetApp, topic_name: str, topic: Topic[Any], label: str) -> None:
    channel = app.topic(topic_name, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")

    async def agent(stream: StreamT[bytes]) -> None:
        """A batch is folded while the one before is being written: most of that needs no lock of Python's."""
        writing: asyncio.Future[None] | None = None
        async for event in stream.events():
            write = app.ingest.prepare(topic, event.message.value)
            if writing is not None:
                await writing
            writing = asyncio.ensure_future(_written(app, write))

    app.agent(channel, name=label)(agent)


async def _written(app: FreshetApp, write: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Write a batch. Nobody may be waiting for it, so that a failure ends the worker from here."""
    try:
        if not await write():
            await app.consumer.perform_seek()
    except Exception as error:
        await app.crash(error)
