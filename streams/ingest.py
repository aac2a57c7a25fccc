"""What one worker process does: it decides where to seek, and applies batches through the store's one thread."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from faust.types import TP

from schema.events import Event, Source
from streams.batch import FetchedBatch, Topic
from streams.dictionary import DictionaryTrainer
from streams.packing import Packer
from streams.seeks import Seek, recreated
from streams.store import Position, Store, is_transient

log = logging.getLogger("freshet.ingest")
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0  # seconds between attempts at a write that failed in passing
P = ParamSpec("P")
T = TypeVar("T")


class Ingest:
    """Applies batches to a store. `logs` gives each topic's log identity (design section 3)."""

    def __init__(self, store: Store, logs: Mapping[str, str]) -> None:
        self._store = store
        self._logs = logs
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._seek_numbers: dict[TP, int] = {}
        dictionary_id, dictionary = store.dictionary()
        self._packer = Packer(dictionary_id, dictionary)
        self._trainer = DictionaryTrainer() if dictionary is None else None
        self.applied: dict[TP, int] = {}
        """The next offset of each partition as this process last knew it in the store."""
        self.ends: dict[TP, int] = {}
        """The end of each partition's log as the broker last told it."""
        self.last_fetch = self.last_progress = time.monotonic()

    def source(self, tp: TP) -> Source:
        """The partition with its log's identity."""
        return Source(self._logs[tp.topic], tp.topic, tp.partition)

    def fetched(self, batches: Mapping[TP, list[FetchedBatch]]) -> None:
        """Told by the consumer's thread after each fetch, empty ones too: the sign of life that the watchdog reads."""
        self.last_fetch = time.monotonic()
        for tp, (batch,) in batches.items():
            self.ends[tp] = batch.end_offset

    async def seeks(self, beginnings: Mapping[TP, int], ends: Mapping[TP, int]) -> dict[TP, Seek]:
        """Where each partition goes on, given where its log begins and ends; a cut log's gap is noted.

        Raises LogError where the store has read past a log's end: the topic was created anew.
        """
        sources = {tp: self.source(tp) for tp in beginnings}
        known = {sources[tp]: beginning for tp, beginning in beginnings.items()}
        positions = await self._write(self._store.open_positions, known)
        seeks: dict[TP, Seek] = {}
        for tp, source in sources.items():
            place = await self._place(source, positions[source], beginnings[tp], ends[tp])
            self._seek_numbers[tp] = self._seek_numbers.get(tp, 0) + 1
            self.applied[tp], self.ends[tp] = place.next_offset, ends[tp]
            seeks[tp] = Seek(self._seek_numbers[tp], source, *place)
        return seeks

    async def _place(self, source: Source, position: Position, beginning: int, end: int) -> Position:
        next_offset, last = position
        if next_offset > end:
            raise recreated(source, f"offset {next_offset} is next, but the log ends at {end}")
        if next_offset < beginning:
            log.error(
                "%s: offsets %d to %d are gone from the log; going on at %d",
                source,
                next_offset,
                beginning - 1,
                beginning,
            )
            await self._write(self._store.note_gap, source, next_offset, beginning)
            return Position(beginning, None)
        return position if last is None or last.offset >= beginning else Position(next_offset, None)

    async def apply(self, topic: Topic[Event], batch: FetchedBatch) -> bool:
        """Apply a batch exactly once. False where the store stands elsewhere: the caller has to seek.

        Raises what is not transient: the worker ends, and nothing of the batch is applied.
        """
        tp = TP(batch.source.topic, batch.source.partition)
        if batch.seek != self._seek_numbers.get(tp):
            return True  # fetched before the last seek, which has it read again
        folded = topic.folded(batch, self._packer)
        if not await self._write(self._store.apply, folded):
            log.warning(
                "%s: the store does not stand at offset %d; seeking to where it does", batch.source, batch.start
            )
            return False
        self.applied[tp] = batch.end
        self.last_progress = time.monotonic()
        if self._trainer is not None and folded.rows.entry_blocks and self._trainer.offer(batch.records):
            await self._train(self._trainer)
        return True

    def close(self) -> None:
        """Wait for the write in hand, then close the store."""
        self._writer.shutdown(wait=True)
        self._store.close()

    async def _train(self, trainer: DictionaryTrainer) -> None:
        content = await asyncio.to_thread(trainer.train)
        if content is not None:
            self._packer = Packer(*await self._write(self._store.add_dictionary, content))
            self._trainer = None
            log.info("entry blocks are compressed with dictionary %d from now on", self._packer.dictionary_id)

    async def _write(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a write in the store's thread, again and again while it fails in passing (design section 5)."""
        delay = _FIRST_DELAY
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._writer, lambda: write(*args, **kwargs))
            except sqlite3.Error as error:
                if not is_transient(error):
                    raise
                log.warning("%s: trying again in %.1f s", error, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
