"""Faust's transport, changed so that one event is one fetched batch of one partition and the store owns the positions.

Faust hands on record by record, tells offsets by what was acknowledged, and seeks to Kafka's committed offsets. Here
a fetch gives one `FetchedBatch` a partition, seeks go to the positions of the store, and the group's committed offset
only mirrors them for tools that show lag. docs/decisions/0003-batched-transport.md has the figures and the reasons.

How nothing is lost: a batch's `start` is always the end of the one fetched before it, or the position sought. If any
batch goes missing on the way (a rebalance empties Faust's buffers), the next one doesn't start where the store
stands, the store refuses it, and the worker seeks again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from faust.transport.drivers import TRANSPORTS, aiokafka
from faust.types import TP, Message
from faust.types.tuples import ConsumerMessage

from schema.errors import FreshetError
from streams.batch import FetchedBatch, last_record
from streams.ingest import Ingest
from streams.seeks import Seek, recreated
from streams.store import LastRecord

log = logging.getLogger("freshet.transport")
FETCH_LEAST, FETCH_WAIT_MILLISECONDS = 1 << 20, 50
"""The broker holds a fetch back for so many bytes, but no longer than so: batches of 50 ms cost a third of the CPU of
those of single events (docs/decisions/0003). Faust's own 1,500 ms cost freshness."""
FETCH_BYTES = 8 << 20  # of one fetch, all partitions together


def ingest_of(app: Any) -> Ingest:
    """What the application carries besides what Faust knows of (`streams.app.FreshetApp`)."""
    ingest: Ingest = app.ingest
    return ingest


class _Cursor:
    """What the consumer's thread knows of a partition since its seek."""

    def __init__(self, seek: Seek) -> None:
        self.seek = seek
        self.delivered = seek.next_offset
        self.unverified = seek.last

    def batch(self, records: list[ConsumerRecord], position: int, end_offset: int) -> FetchedBatch | None:
        """The records from where the last batch ended to the consumer's position; None if that has not moved on."""
        if records and self.unverified is not None:
            self._verify(records[0], self.unverified)
            self.unverified = None
        if position <= self.delivered:
            return None
        start, self.delivered = self.delivered, position
        fresh = records if not records or records[0].offset >= start else [r for r in records if r.offset >= start]
        return FetchedBatch(self.seek.source, start, position, end_offset, self.seek.number, fresh)

    def _verify(self, found: ConsumerRecord, applied: LastRecord) -> None:
        if last_record(found) != applied:
            raise recreated(self.seek.source, f"the record at offset {applied.offset} is not the one that was applied")


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):
    """The thread in which aiokafka's consumer lives."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cursors: dict[TP, _Cursor] = {}

    def _create_worker_consumer(self, transport: aiokafka.Transport) -> AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_bytes = FETCH_BYTES
        consumer._fetch_max_wait_ms = FETCH_WAIT_MILLISECONDS
        consumer._fetch_min_bytes = FETCH_LEAST
        return consumer

    async def seek_to(self, seeks: Mapping[TP, Seek]) -> None:
        """Go on from these places; partitions that have been taken away meanwhile are left out."""
        await self.call_thread(self._seek_to, seeks)

    async def _seek_to(self, seeks: Mapping[TP, Seek]) -> None:
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        self._cursors = {tp: cursor for tp, cursor in self._cursors.items() if tp in assigned}
        for tp, seek in seeks.items():
            if tp in assigned:
                consumer.seek(tp, seek.read_from)
                self._cursors[tp] = _Cursor(seek)

    async def _fetch_records(
        self,
        consumer: AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> dict[TP, list[FetchedBatch]]:
        fetched = await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        # No await between here and the end: position and records belong together.
        batches: dict[TP, list[FetchedBatch]] = {}
        for tp in active_partitions:
            cursor = self._cursors.get(tp)
            place = self.place(consumer, tp)
            if cursor is not None and place is not None:
                batch = cursor.batch(fetched.get(tp, []), *place)
                if batch is not None:
                    batches[tp] = [batch]
        ingest_of(self.app).fetched(batches)
        return batches

    @staticmethod
    def place(consumer: AIOKafkaConsumer, tp: TP) -> tuple[int, int] | None:
        """The consumer's position in a partition and the log's end as last told; None while there is none.

        The end before the first open transaction, where there is one: nobody can read on behind that.
        """
        subscription = consumer._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        state = assignment.state_value(tp) if assignment is not None and tp in assignment.tps else None
        if state is None or not state.has_valid_position:
            return None
        return state.position, state.lso if state.lso is not None else state.position


class Consumer(aiokafka.Consumer):
    """Faust's consumer; its messages carry a `FetchedBatch` each."""

    def on_init(self) -> None:
        """Called by Faust once the consumer is made."""
        super().on_init()
        self._seeking = asyncio.Lock()

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:
        """Fetch, and go back to the stored positions where the log has been cut past the one sought."""
        try:
            async for tp, message in super().getmany(timeout):
                yield tp, message
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            self.log.warning("%r: seeking to the stored positions", error)
            await self.perform_seek()

    async def perform_seek(self) -> None:
        """Seek every assigned partition to the position that the store holds."""
        thread = cast(ConsumerThread, self._thread)
        async with self._seeking:
            tps = self.assignment()
            if not tps:
                return
            try:
                beginnings = await self.earliest_offsets(*tps)
                ends = await self.highwaters(*tps)
                seeks = await ingest_of(self.app).seeks(beginnings, ends)
                await thread.seek_to(seeks)
            except FreshetError as error:
                await self.app.crash(error)  # or Faust would log it as a passing failure, and stall
                raise
            log.info("reading on from %s", ", ".join(sorted(f"{s.source} at {s.next_offset}" for s in seeks.values())))
            for tp, seek in seeks.items():
                self._read_offset[tp] = None  # what is delivered again is not to be dropped as read
                self._committed_offset[tp] = seek.next_offset or None

    def on_buffer_full(self, tp: TP) -> None:
        """Nothing: a full buffer holds the fetcher back by itself, and marking it costs a second of sleep."""

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: to Faust, which sees only each batch's last offset, every batch would be a gap."""

    def _new_offset(self, tp: TP) -> int | None:
        self._acked[tp].clear()
        self._acked_index[tp].clear()
        offset: int | None = ingest_of(self.app).applied.get(tp)
        return offset

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        batch: FetchedBatch = record
        no_headers: list[tuple[str, bytes]] = []
        return ConsumerMessage(
            topic=tp.topic,
            partition=tp.partition,
            offset=batch.end - 1,
            timestamp=0.0,
            timestamp_type=0,
            headers=no_headers,
            key=None,
            value=cast(Any, batch),
            checksum=None,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )


class Transport(aiokafka.Transport):
    """The transport for broker addresses of the form `freshet://host:port`."""

    Consumer = Consumer


SCHEME = "freshet"
TRANSPORTS.aliases[SCHEME] = f"{__name__}:Transport"
