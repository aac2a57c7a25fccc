"""Sending to Kafka in lanes: a partition has one batch under way, what comes meanwhile gathers in the next.

So the more requests there are, the less each costs; and a partition that does not acknowledge takes no more.
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
from aiokafka.errors import KafkaError
from aiokafka.partitioner import murmur2

from api.ingest_elements import Message
from schema.errors import NotTaken, Unacknowledged

log = logging.getLogger("freshet.ingest")
SLOW_SECONDS = 2.0
"""A partition that has not acknowledged a batch for so long takes no more."""
_FRESH_SECONDS = 0.1  # for so long Kafka's last answer counts; after that it is asked before anything is sent
ASK_SECONDS = 1.0
"""How long a request waits for Kafka to say that it is there."""
_STOP_SECONDS = 3.0


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
            answered = await asyncio.wait_for(self._producer.client.force_metadata_update(), ASK_SECONDS)
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


@lru_cache(10_000)
def _place(key: bytes) -> int:
    """Where Kafka's own clients put a key, before it is taken modulo the partitions."""
    place: int = murmur2(key) & 0x7FFFFFFF
    return place
