"""The way into Kafka that all requests of a process share: one idempotent producer, started when it is first needed."""

import asyncio
import logging
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from api.ingest_elements import Message
from api.ingest_lanes import ASK_SECONDS, Session
from schema.connection import connection
from schema.errors import NotTaken, Unacknowledged
from schema.settings import EMBEDDED, Settings

log = logging.getLogger("freshet.ingest")
ACKNOWLEDGED_SECONDS = 10.0
"""How long a request waits for Kafka's acknowledgement before it is told that the outcome is unknown."""
_START_SECONDS = 10.0
_USUAL_LIMIT = 1_048_588  # Kafka's own default of max.message.bytes
_LARGEST_BATCH = 1 << 20


class IngestProducer:
    """The producer of this process. It belongs to one event loop; nothing goes to Kafka before the first `send`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._starting: asyncio.Task[Session] | None = None
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it writes lines for as long as a broker is away

    async def session(self) -> Session:
        """A session with a Kafka that answers. Raises NotTaken where there is none."""
        if self._session is not None and self._session.failure is not None:
            log.error("starting anew with Kafka after %r", self._session.failure)
            broken, self._session = self._session, None
            await broken.close()
        session = self._session or await self._started()
        await session.require_answer()
        return session

    async def send(self, session: Session, topic: str, messages: Sequence[Message], now: int) -> None:
        """Return once messages are durable in Kafka.

        Raises NotTaken where nothing was sent, Unacknowledged where that is not known.
        """
        sent = session.send(topic, messages, now)
        _, late = await asyncio.wait(sent, timeout=ACKNOWLEDGED_SECONDS) if sent else (None, None)
        if late:
            raise Unacknowledged(f"Kafka has not acknowledged the events within {ACKNOWLEDGED_SECONDS:g} s")
        for done in sent:
            done.result()

    async def close(self) -> None:
        """Leave Kafka."""
        if self._session is not None:
            await self._session.close()

    async def _started(self) -> Session:
        """One start for all who wait for it, who wait a second at most; it goes on, for those who come later."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._open())
            self._starting.add_done_callback(_seen)
        starting = self._starting  # there may be another one when this is done
        done, _ = await asyncio.wait({starting}, timeout=ASK_SECONDS)
        if not done:
            raise NotTaken("Kafka does not answer yet")
        return starting.result()

    async def _open(self) -> Session:
        self._session = session = await _start(self._settings)
        return session


def _seen(task: "asyncio.Task[Session]") -> None:
    if not task.cancelled():
        task.exception()


async def _start(settings: Settings) -> Session:
    if settings.broker == EMBEDDED:
        raise NotTaken("the embedded broker lives inside `freshet up`: set FRESHET_BROKER to kafka://host:port")
    producer = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            limits = await _limits(settings)
            producer = AIOKafkaProducer(
                **connection(settings),
                acks="all",
                enable_idempotence=True,
                max_batch_size=min(_LARGEST_BATCH, *limits.values()),
                request_timeout_ms=int(ACKNOWLEDGED_SECONDS * 1000),
            )
            await producer.start()
            for topic in limits:
                await producer.partitions_for(topic)
    except (KafkaError, OSError, TimeoutError) as error:
        if producer is not None:
            await Session(producer, {}).close()
        raise NotTaken(f"Kafka does not answer at {settings.broker}: {error!r}") from error
    log.info("sending to %s, batches of up to %s bytes", settings.broker, limits)
    return Session(producer, limits)


async def _limits(settings: Settings) -> dict[str, int]:
    """The largest batch, in bytes, that each of the two topics takes. Raises NotTaken where one is missing."""
    topics = (settings.topic_edge, settings.topic_functions)
    admin = AIOKafkaAdminClient(**connection(settings), request_timeout_ms=int(_START_SECONDS * 1000))
    try:
        await admin.start()
        missing = set(topics) - set(await admin.list_topics())
        if missing:
            raise NotTaken(f"Kafka has no topic {', '.join(sorted(missing))}: start a worker, which makes it")
        found = dict.fromkeys(topics, _USUAL_LIMIT)
        try:
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": None}) for topic in topics]
            for answer in await admin.describe_configs(asked):
                for _, _, _, topic, entries, *_ in answer.resources:
                    for _, value, *_ in entries:
                        found[topic] = int(value)
        except KafkaError as error:  # it may not be asked, or does not know the question
            log.warning("the topics' max.message.bytes is not told (%r); taking %d", error, _USUAL_LIMIT)
        return found
    finally:
        await admin.close()
