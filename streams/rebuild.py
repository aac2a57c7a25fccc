"""Reads partitions of the log into a store, up to given offsets, by the same decoder, fold and commit as a worker."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from schema.connection import connection
from schema.errors import LogError
from schema.events import Source
from schema.settings import Settings
from streams.app import BATCH_RECORDS, EDGE, FUNCTIONS
from streams.batch import FetchedBatch, Topic
from streams.dictionary import DictionaryTrainer
from streams.duplicates import recent_ids
from streams.packing import Packer
from streams.store import Store

_WAIT_MILLISECONDS = 500
_NEAR = 100  # offsets: so many are read over rather than sought
_ANSWER_SECONDS = 30.0
_LAST_RECORDS = 3  # a transaction's marker is none
_FETCH_BYTES = 4 << 20  # of one partition
Report = Callable[[int], None]
"""Told how many offsets have been read since it was last told."""


@dataclass(slots=True)
class Stretch:
    """A partition's part in a rebuild: offsets from `next_offset` to `limit`; events before `cut` (µs) are left out."""

    source: Source
    next_offset: int
    cut: int = 0
    limit: int = field(default=0)


class LogReader:
    """A consumer outside every group, that reads only what is asked for."""

    def __init__(self, settings: Settings, fetch_bytes: int = _FETCH_BYTES) -> None:
        self._settings = settings
        self._consumer = AIOKafkaConsumer(
            **connection(settings),
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=fetch_bytes,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
        except BaseException:
            await self._consumer.stop()
            raise
        await asyncio.sleep(0)  # its tasks begin: stopped before, they would raise CancelledError in place of any error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """A topic's partitions. Raises LogError where there is no such topic."""
        metadata = await self._consumer._client.fetch_all_metadata()
        numbers = metadata.partitions_for_topic(topic)
        if not numbers:
            raise LogError(f"there is no topic {topic}: start a worker, which creates it")
        return [TopicPartition(topic, number) for number in sorted(numbers)]

    async def beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition's log still has."""
        offsets: dict[TopicPartition, int] = await self._consumer.beginning_offsets(partitions)
        return offsets

    async def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition's log; before the first open transaction, where there is one."""
        offsets: dict[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        return offsets

    async def at_time(self, partitions: list[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is not older than a time; its end where none is."""
        found = await self._consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
        ends = await self.ends(partitions)
        return {tp: found[tp].offset if found.get(tp) is not None else ends[tp] for tp in partitions}

    async def record(self, tp: TopicPartition, offset: int) -> ConsumerRecord | None:
        """The record at an offset before the partition's end; None where the log no longer has it.

        Read in ascending order, near ones are not fetched anew. Raises LogError where the broker does not answer.
        """
        if tp not in self._consumer.assignment():
            self._consumer.assign([tp])
            self._consumer.seek(tp, offset)
        elif not 0 <= offset - await self._consumer.position(tp) <= _NEAR:
            self._consumer.seek(tp, offset)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                while await self._consumer.position(tp) <= offset:
                    fetched = await self._consumer.getmany(tp, timeout_ms=_WAIT_MILLISECONDS, max_records=1)
                    for record in fetched.get(tp, ()):
                        if record.offset == offset:
                            return record
        except OffsetOutOfRangeError:
            self._consumer.unsubscribe()  # the next one seeks anew
        except TimeoutError as error:
            raise LogError(f"{tp.topic}[{tp.partition}]: offset {offset} was not answered in time") from error
        return None

    async def newest(self, partitions: list[TopicPartition], seconds: float = 3.0) -> dict[TopicPartition, int]:
        """The timestamp (ms) of each partition's last record; without those that have none, or give none in time."""
        beginnings, ends = await self.beginnings(partitions), await self.ends(partitions)
        waiting = {tp for tp in partitions if ends[tp] > beginnings[tp]}
        self._consumer.assign(list(waiting))
        for tp in waiting:
            self._consumer.seek(tp, max(beginnings[tp], ends[tp] - _LAST_RECORDS))
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + seconds
        while waiting and time.monotonic() < deadline:
            fetched = await self._consumer.getmany(*waiting, timeout_ms=_WAIT_MILLISECONDS)
            found |= {tp: records[-1].timestamp for tp, records in fetched.items() if records}
            waiting = {tp for tp in waiting if await self._consumer.position(tp) < ends[tp]}
        return found

    async def read(self, stretches: list[Stretch], store: Store, report: Report) -> None:
        """Apply every stretch from its next offset to its limit, which must not be beyond its log's committed end.

        Raises LogError where the store does not stand where a stretch does, or the log was cut past that.
        """
        open_ones = {TopicPartition(*s.source[1:]): s for s in stretches if s.next_offset < s.limit}
        if not open_ones:
            return
        self._consumer.assign(list(open_ones))
        for tp, stretch in open_ones.items():
            self._consumer.seek(tp, stretch.next_offset)
        window = self._settings.deduplication_window
        recent = (
            {s.source: recent_ids(store.connection, s.source, window, s.next_offset) for s in stretches}
            if window
            else {}
        )
        redacted = self._settings.redacted
        dictionary_id, dictionary = store.dictionary(redacted)
        packer, horizons = Packer(dictionary_id, dictionary), store.horizons()
        trainer = DictionaryTrainer() if dictionary is None else None
        topics: Mapping[str, Topic[Any]] = {
            self._settings.topic_edge: EDGE.redacting(redacted),
            self._settings.topic_functions: FUNCTIONS.redacting(redacted),
        }
        while open_ones:
            try:
                fetched = await self._consumer.getmany(
                    *open_ones, timeout_ms=_WAIT_MILLISECONDS, max_records=BATCH_RECORDS
                )
            except OffsetOutOfRangeError as error:
                raise LogError(f"the log no longer has what was to be read ({error}): start anew") from error
            for tp, stretch in list(open_ones.items()):
                end = min(await self._consumer.position(tp), stretch.limit)
                if end > stretch.next_offset:
                    records = [record for record in fetched.get(tp, ()) if record.offset < stretch.limit]
                    batch = FetchedBatch(stretch.source, stretch.next_offset, end, stretch.limit, 0, records)
                    ids = recent.get(stretch.source)
                    topic = topics[tp.topic]
                    folded = topic.folded(batch, packer, horizons, stretch.cut, ids)
                    if not store.apply(folded):
                        raise LogError(f"{stretch.source}: {store.path} does not stand at offset {batch.start}")
                    if trainer is not None and folded.rows.entry_blocks and trainer.offer(topic.samples(batch)):
                        content = await asyncio.to_thread(trainer.train)
                        if content is not None:
                            packer, trainer = Packer(*store.add_dictionary(content, redacted)), None
                    report(end - stretch.next_offset)
                    stretch.next_offset = end
                if stretch.next_offset >= stretch.limit:
                    del open_ones[tp]
                    self._consumer.pause(tp)
