"""The way into Kafka that all requests of a process share: one idempotent producer, started when it is first needed.

A request's messages go, by key, into their partitions' lanes. A lane has one batch under way; what comes meanwhile
gathers in the next, so the more requests there are, the less each costs.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from aiokafka.partitioner import murmur2

from api.ingest_elements import Message
from schema.connection import connection
from schema.errors import NotTaken, Unacknowledged
from schema.settings import EMBEDDED, Settings

log = logging.getLogger("freshet.ingest")
SLOW_SECONDS = 2.0
"""A partition that has not acknowledged a batch for so long takes no more."""
ACKNOWLEDGED_SECONDS = 10.0
"""How long a request waits for Kafka's acknowledgement before it is told that the outcome is unknown."""
_FRESH_SECONDS = 0.1  # for so long Kafka's last answer counts; after that it is asked before anything is sent
_START_SECONDS, _ASK_SECONDS = 10.0, 1.0
_STOP_SECONDS = 3.0
_USUAL_LIMIT = 1_048_588  # Kafka's own default of max.message.bytes
_LARGEST_BATCH = 1 << 20


@dataclass(slots=True)
class _Batch:
    builder: Any
    done: "asyncio.Future[None]"


@dataclass(slots=True)
class _Lane:
    """One partition: the batches that wait, and since when one has been under way."""

    waiting: deque[_Batch] = field(default_factory=deque)
    since: float | None = None
    task: "asyncio.Task[None] | None" = None


class Session:
    """A producer from its start to its end. `limits` gives the largest batch that a topic takes, in bytes."""

    def __init__(self, producer: AIOKafkaProducer, limits: dict[str, int]) -> None:
        self._producer = producer
        self.limits = limits
        self.failure: Exception | None = None
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._answered = time.monotonic()

    async def require_answer(self) -> None:
        """Raises NotTaken where Kafka has not answered a moment ago, and does not when it is asked."""
        if time.monotonic() - self._answered < _FRESH_SECONDS:
            return
        try:
            answered = await asyncio.wait_for(self._producer.client.force_metadata_update(), _ASK_SECONDS)
        except TimeoutError:
            answered = False
        if not answered:
            raise NotTaken("Kafka does not answer")
        self._answered = time.monotonic()

    def send(self, topic: str, messages: Sequence[Message], now: int) -> set["asyncio.Future[None]"]:
        """Have messages sent, with the time `now` in ms; what comes back is done when they are durable.

        Raises NotTaken, and sends nothing, where a partition that they go to is slow.
        """
        partitions = sorted(self._producer.client.cluster.partitions_for_topic(topic) or ())
        if not partitions:
            raise NotTaken(f"Kafka has no topic {topic}")
        lanes: dict[int, list[Message]] = {}
        for number, message in enumerate(messages):
            place = number if message.key is None else _place(message.key)
            lanes.setdefault(partitions[place % len(partitions)], []).append(message)
        slowest = time.monotonic() - SLOW_SECONDS
        for partition in lanes:
            lane = self._lanes.setdefault((topic, partition), _Lane())
            if lane.since is not None and lane.since < slowest:
                raise NotTaken(f"Kafka is slow: {topic}[{partition}] has not acknowledged for {SLOW_SECONDS:g} s")
        return {done for partition in lanes for done in self._add(topic, partition, lanes[partition], now)}

    async def close(self) -> None:
        """Let what is under way arrive, for a moment."""
        try:
            await asyncio.wait_for(self._producer.stop(), _STOP_SECONDS)
        except (TimeoutError, KafkaError) as error:
            log.warning("left Kafka without its last word: %r", error)

    def _add(
        self, topic: str, partition: int, messages: Iterable[Message], now: int
    ) -> Iterable["asyncio.Future[None]"]:
        lane = self._lanes[topic, partition]
        used: set[asyncio.Future[None]] = set()
        for key, value in messages:
            last = lane.waiting[-1] if lane.waiting else None
            if last is None or last.builder.append(timestamp=now, key=key, value=value) is None:
                last = _Batch(self._producer.create_batch(), asyncio.get_running_loop().create_future())
                last.builder.append(timestamp=now, key=key, value=value)  # the first fits, however large
                lane.waiting.append(last)
            used.add(last.done)
        if lane.task is None or lane.task.done():
            lane.since = time.monotonic()
            lane.task = asyncio.create_task(self._run(topic, partition, lane))
        return used

    async def _run(self, topic: str, partition: int, lane: _Lane) -> None:
        while lane.waiting:
            batch = lane.waiting.popleft()
            lane.since = time.monotonic()
            try:
                await (await self._producer.send_batch(batch.builder, topic, partition=partition))
            except Exception as error:
                self.failure = self.failure or error
                for failed in (batch, *lane.waiting):
                    failed.done.set_exception(Unacknowledged(f"Kafka refused a batch: {error!r}"))
                    failed.done.exception()  # has been seen, even where nobody waits any more
                lane.waiting.clear()
            else:
                self._answered = time.monotonic()
                batch.done.set_result(None)
        lane.since = None


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
        if self._session is None:
            self._session = await self._started()
        await self._session.require_answer()
        return self._session

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
        """One start for all who wait for it, who wait a second at most."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(_start(self._settings))
            self._starting.add_done_callback(_seen)
        done, _ = await asyncio.wait({self._starting}, timeout=_ASK_SECONDS)
        if not done:
            raise NotTaken("Kafka does not answer yet")
        return self._starting.result()


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


@lru_cache(10_000)
def _place(key: bytes) -> int:
    """Where Kafka's own clients put a key, before it is taken modulo the partitions."""
    place: int = murmur2(key) & 0x7FFFFFFF
    return place
