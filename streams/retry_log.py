"""Where a retry reads messages again: the log that they came from, as far as that is still there."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, Self

from aiokafka import TopicPartition

from schema.events import Source
from schema.settings import EMBEDDED, Settings
from streams.rebuild import LogReader
from streams.store import Store, log_identity
from streams.topics import prepare_topics

_FETCH_BYTES = 64 << 10  # messages far apart: most of a larger fetch would be for nothing


class Message(NamedTuple):
    """A message for the decoder: its offset, its time in ms, and its bytes."""

    offset: int
    timestamp: int
    value: bytes | None


class Log(AbstractAsyncContextManager["Log"], Protocol):
    """A context in which messages are read again."""

    async def message(self, source: Source, offset: int, timestamp: int) -> Message | None:
        """The message of a partition's offset and time in ms (0: any); None where the log no longer has it."""
        ...


class NoLog(Log):
    """The embedded broker's log, which is gone when that stops."""

    async def __aexit__(self, *_: object) -> None:
        pass

    async def message(self, source: Source, offset: int, timestamp: int) -> Message | None:
        """None."""
        return None


class KafkaLog(Log):
    """The topics' present logs. A topic's former ones, before it was created anew, are gone."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._logs: Mapping[str, str] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> Self:
        topics = (self._settings.topic_edge, self._settings.topic_functions)
        cluster = await prepare_topics(self._settings)
        recreations = self._store.recreations(cluster)
        self._logs = {topic: log_identity(cluster, recreations.get(topic, 0)) for topic in topics}
        self._reader = LogReader(self._settings, _FETCH_BYTES)
        await self._reader.__aenter__()
        for topic in topics:
            self._ends |= await self._reader.ends(await self._reader.partitions(topic))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.__aexit__()

    async def message(self, source: Source, offset: int, timestamp: int) -> Message | None:
        """Read it. One with another time is another's: the topic was created anew, which nobody has accepted yet."""
        tp = TopicPartition(source.topic, source.partition)
        if self._logs.get(source.topic) != source.log or offset >= self._ends.get(tp, 0):
            return None
        record = await self._reader.record(tp, offset)
        if record is None or timestamp not in (0, record.timestamp):
            return None
        return Message(offset, record.timestamp, record.value)


def log_of(settings: Settings, store: Store) -> Log:
    """The log of a store. Raises LogError, when it is entered, where no broker answers."""
    return NoLog() if settings.broker == EMBEDDED else KafkaLog(settings, store)
