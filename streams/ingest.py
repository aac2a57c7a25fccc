"""What one worker process does: it decides where to seek, and applies batches through the store's one thread."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from faust.types import TP

from schema.clock import Clock
from schema.errors import StoreRetired
from schema.events import Event, Source
from schema.retention import Horizons
from schema.settings import Settings
from schema.tables import current_generation, store_path
from schema.timestamps import SECOND
from streams.batch import FetchedBatch, Topic
from streams.dictionary import DictionaryTrainer
from streams.duplicates import RecentIds, recent_ids
from streams.generations import revive
from streams.meters import BATCH_RECORDS, COMMIT_SECONDS, LOOKED, PROGRESS_AT, REFUSED, RETRIES
from streams.packing import Packer
from streams.retention import Pruner
from streams.sealing import Sealer, commit
from streams.seeks import Seek, recreated
from streams.store import FoldedBatch, Position, Store, is_transient, log_identity

log = logging.getLogger("freshet.ingest")
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0  # seconds between attempts at a write that failed in passing
_REOPEN_EVERY = 0.1  # seconds
T = TypeVar("T")


@dataclass(slots=True)
class _Opened:
    """A generation's store as opened by this process, and what goes with it."""

    generation: int
    store: Store
    packer: Packer
    trainer: DictionaryTrainer | None
    pruner: Pruner
    sealer: Sealer
    horizons: Horizons


class Ingest:
    """Applies batches to the current generation's store. `logs` gives each topic's log identity (design section 3)."""

    def __init__(self, settings: Settings, clock: Clock, cluster: str) -> None:
        self._settings = settings
        self._clock = clock
        self._opened = self._open()
        recreations = self._opened.store.recreations(cluster)
        topics = (settings.topic_edge, settings.topic_functions)
        self._logs = {topic: log_identity(cluster, recreations.get(topic, 0)) for topic in topics}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._merger = ThreadPoolExecutor(1, thread_name_prefix="sealer")
        self._reopening = asyncio.Lock()
        self._seek_numbers: dict[TP, int] = {}
        self._window = settings.deduplication_window
        self._recent: dict[TP, RecentIds] = {}
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
        LOOKED.put(value=self._clock() / SECOND)
        for tp, (batch,) in batches.items():
            self.ends[tp] = batch.end_offset

    def lag(self, tps: Iterable[TP]) -> int:
        """How many messages of these partitions wait, as this process last knew it."""
        return sum(max(0, self.ends.get(tp, 0) - self.applied.get(tp, 0)) for tp in tps)

    async def seeks(self, beginnings: Mapping[TP, int], ends: Mapping[TP, int]) -> dict[TP, Seek]:
        """Where each partition goes on, given where its log begins and ends; a cut log's gap is noted.

        Raises LogError where the store has read past a log's end: the topic was created anew.
        """
        sources = {tp: self.source(tp) for tp in beginnings}
        known = {sources[tp]: beginning for tp, beginning in beginnings.items()}
        known_ends = {sources[tp]: ends[tp] for tp in beginnings}
        positions = await self._write(lambda store: store.open_positions(known, known_ends))
        seeks: dict[TP, Seek] = {}
        recent: dict[TP, RecentIds] = {}
        for tp, source in sources.items():
            place = await self._place(source, positions[source], beginnings[tp], ends[tp])
            self._seek_numbers[tp] = self._seek_numbers.get(tp, 0) + 1
            self.applied[tp], self.ends[tp] = place.next_offset, ends[tp]
            if self._window:
                recent[tp] = await self._write(partial(self._recent_ids, source, place.next_offset))
            seeks[tp] = Seek(self._seek_numbers[tp], source, *place)
        self._recent = recent
        return seeks

    def _recent_ids(self, source: Source, position: int, store: Store) -> RecentIds:
        return recent_ids(store.connection, source, self._window, position)

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
            await self._write(lambda store: store.note_gap(source, next_offset, beginning))
            return Position(beginning, None)
        return position if last is None or last.offset >= beginning else Position(next_offset, None)

    def prepare(self, topic: Topic[Event], batch: FetchedBatch) -> Callable[[], Coroutine[Any, Any, bool]]:
        """Decode, fold and pack a batch; returns what writes it, exactly once.

        That is to be called after the one of the batch before, and tells False where the store stands elsewhere: the
        caller has to seek. It raises what is not transient: the worker ends, and nothing of the batch is applied.
        """
        opened, tp = self._opened, TP(batch.source.topic, batch.source.partition)
        recent, folded = self._recent.get(tp), None
        # Where a batch was dropped on the way, or another store opened, the ids known are loaded at the seek.
        is_known = not self._window or (recent is not None and recent.position == batch.start)
        if is_known and batch.seek == self._seek_numbers.get(tp):
            folded = topic.folded(batch, opened.packer, opened.horizons, recent=recent)
        return partial(self._apply, opened, topic, batch, folded)

    async def _apply(self, opened: _Opened, topic: Topic[Any], batch: FetchedBatch, folded: FoldedBatch | None) -> bool:
        tp = TP(batch.source.topic, batch.source.partition)
        if batch.seek != self._seek_numbers.get(tp):
            return True  # fetched before the last seek, which has it read again
        if folded is None:
            return False
        began = time.perf_counter()
        if not await self._write(lambda store: store is opened.store and store.apply(folded)):
            REFUSED.add()
            self._recent.pop(tp, None)
            log.warning(
                "%s: the store does not stand at offset %d; seeking to where it does", batch.source, batch.start
            )
            return False
        COMMIT_SECONDS.observe(time.perf_counter() - began)
        BATCH_RECORDS.observe(len(batch.records))
        PROGRESS_AT.put(value=self._clock() / SECOND)
        self.applied[tp] = batch.end
        self.last_progress = time.monotonic()
        if opened.trainer is not None and folded.rows.entry_blocks and opened.trainer.offer(topic.samples(batch)):
            await self._train(opened, opened.trainer)
        return True

    async def prune(self) -> None:
        """Delete a little of what has expired."""
        horizons = await self._write(lambda _: self._opened.pruner.step())
        self._opened.horizons = horizons

    async def seal(self) -> float:
        """Merge some small blocks: prepared in a thread of its own, so that only the exchange is between two batches.

        Returns the CPU seconds that took; 0 where there was nothing to merge.
        """
        opened = self._opened
        loop = asyncio.get_running_loop()
        merges, prepared = await loop.run_in_executor(self._merger, _timed, opened.sealer.prepare)
        if not merges:
            return 0.0

        def exchange(store: Store) -> tuple[int, float]:
            return _timed(lambda: commit(store, merges)) if store is opened.store else (0, 0.0)

        replaced, exchanged = await self._write(exchange)
        return prepared + exchanged if replaced else 0.0

    def close(self) -> None:
        """Wait for the write in hand, then close the store."""
        self._merger.shutdown(wait=True)
        self._writer.shutdown(wait=True)
        self._opened.sealer.close()
        self._opened.store.close()

    def _open(self) -> _Opened:
        generation = current_generation(self._settings.data)
        store = Store(store_path(self._settings.data, generation), self._clock)
        redacted = self._settings.redacted
        dictionary_id, dictionary = store.dictionary(redacted)
        return _Opened(
            generation=generation,
            store=store,
            packer=Packer(dictionary_id, dictionary),
            trainer=DictionaryTrainer() if dictionary is None else None,
            pruner=Pruner(store, self._clock, self._settings.kept, redacted),
            sealer=Sealer(store.path, self._clock, redacted=redacted),
            horizons=store.horizons(),
        )

    async def _reopen(self) -> None:
        """Wait until a newer generation has taken the retired one's place, and open it."""
        data = self._settings.data
        while current_generation(data) == self._opened.generation and self._opened.store.retired():
            if revive(data, self._opened.generation):
                log.warning("%s was retired by a replay that has died; going on with it", self._opened.store.path)
                return
            await asyncio.sleep(_REOPEN_EVERY)
        if current_generation(data) == self._opened.generation:
            return  # the replay gave up and revived it
        old, self._opened = self._opened, self._open()
        self._recent.clear()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, old.store.close)  # behind writes that hold it
        await loop.run_in_executor(self._merger, old.sealer.close)
        log.info("generation %d has taken the place of %d", self._opened.generation, old.generation)

    async def _train(self, opened: _Opened, trainer: DictionaryTrainer) -> None:
        content = await asyncio.to_thread(trainer.train)
        if content is None:
            return
        redacted = self._settings.redacted
        added = await self._write(
            lambda store: store.add_dictionary(content, redacted) if store is opened.store else None
        )
        if added is not None:
            opened.packer, opened.trainer = Packer(*added), None
            log.info("entry blocks are compressed with dictionary %d from now on", opened.packer.dictionary_id)

    async def _write(self, write: Callable[[Store], T]) -> T:
        """Run a write in the store's thread, again and again while it fails in passing (design section 5).

        Where the store has been retired meanwhile, the write goes to the one that took its place.
        """
        delay = _FIRST_DELAY
        while True:
            store = self._opened.store
            try:
                return await asyncio.get_running_loop().run_in_executor(self._writer, write, store)
            except StoreRetired:
                async with self._reopening:
                    if store is self._opened.store:
                        await self._reopen()
                continue
            except sqlite3.Error as error:
                if not is_transient(error):
                    raise
                RETRIES.add()
                log.warning("%s: trying again in %.1f s", error, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    """What a function returns, and the CPU seconds that its thread took: others' work does not count."""
    began = time.thread_time()
    return function(), time.thread_time() - began
