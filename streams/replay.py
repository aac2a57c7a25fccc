"""Replay: the next generation is rebuilt from the log beside the live one, verified, and takes its place.

The steps, by the same numbers in docs/decisions/0006-replay.md:

1. Make the new generation: horizons and marks of the old; positions at the offsets to replay from.
2. Read the log up to where the live store stands, again and again until little is left.
3. Copy the blocks that the log no longer has, with the dictionaries that they name (`streams.kept`).
4. Verify: take a snapshot of the old one, read on to where that stands, copy the rest of what is kept; every table and
   day of the two is the same then. All this time the old one serves and ingests.
5. Follow: from there on both take the same, so all partitions are read, and nothing is copied any more. Once little
   is left the old one is retired: it takes nothing, the workers wait while the last is read.
6. Switch: readers and workers use the new one from now on.

Before 6 the live database is untouched; whatever is interrupted can be resumed or thrown away.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from schema.clock import Clock
from schema.errors import FreshetError, LogError
from schema.events import Source
from schema.settings import Settings
from schema.tables import current_generation, make_store, store_path
from streams.content import Difference, Range, differences, size, snapshot
from streams.generations import set_retired, switch
from streams.kept import EVERYTHING, Keeper, cut_of
from streams.kept_rejects import Replayed
from streams.rebuild import LogReader, Stretch
from streams.seeks import recreated
from streams.store import Store, log_identity

LITTLE = 5000  # offsets; with fewer left the old generation is retired
_MOST_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What to replay: topics (empty: both), and from which offset or time in ms (neither: from the log's start)."""

    topics: tuple[str, ...] = ()
    from_offset: int | None = None
    from_time: int | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told of the progress: of a new step and how much it is, and of how much of it has been done."""

    step: Callable[[str, int], None]
    done: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to: the new generation, or why it did not take over."""

    generation: int
    ranges: list[Range]
    differences: list[Difference]

    @property
    def same(self) -> bool:
        """Whether old and new hold the same."""
        return not self.ranges


@dataclass(frozen=True, slots=True)
class _Work:
    """A replay in hand."""

    store: Store
    keeper: Keeper
    copied: dict[str, int]
    cuts: Mapping[str, int]
    starts: Mapping[Source, int]
    """The offsets that it began at; a partition added meanwhile is read from its start."""
    verified: bool
    """Whether step 4 is done: from then on nothing is left out and nothing copied."""
    stretches: list[Stretch]

    def begin(self, starts: Mapping[Source, int]) -> list[Stretch]:
        """The stretches of partitions that start there, from wherever they were left."""
        positions = self.store.open_positions(starts).items()
        return [Stretch(source, place.next_offset, self.cuts[source.topic]) for source, place in positions]


class Replay:
    """One replay into the generation after the current one. Use it within `streams.generations.sole_replay`."""

    def __init__(self, settings: Settings, clock: Clock, cluster: str) -> None:
        self._settings = settings
        self._clock = clock
        self._cluster = cluster
        self.old_generation = current_generation(settings.data)
        self.generation = self.old_generation + 1
        self.old = store_path(settings.data, self.old_generation)
        self.new = store_path(settings.data, self.generation)

    @property
    def unfinished(self) -> bool:
        """Whether an earlier replay was interrupted."""
        return self.new.exists()

    @property
    def begun(self) -> bool:
        """Whether an unfinished replay got through step 1, so that it can be gone on with."""
        try:
            with closing(Store(self.new, self._clock)) as store:
                return bool(store.replay_state())
        except sqlite3.OperationalError:  # its tables are not there yet
            return False

    def discard(self) -> None:
        """Throw an unfinished replay away, and let the live database go on."""
        set_retired(self.old, False)
        remove_store(self.new)

    async def begin(self, wish: Wish, reader: LogReader) -> None:
        """Step 1. Raises LogError where what the log no longer has can't be told from what it has."""
        starts, cuts = await self._starts(wish, reader)
        make_store(self.new)
        with closing(Store(self.new, self._clock)) as store:
            with snapshot(self.old) as old:
                Keeper(store, 0, 0).copy_frame(old)
            store.open_positions(starts)
            with store.transaction() as db:
                noted = [[*source, start] for source, start in starts.items()]
                store.note_replay(db, {"starts": noted, "cuts": cuts, "copied": {}})

    async def run(self, reader: LogReader, watcher: Watcher, accept_differences: bool) -> Outcome:
        """Steps 2 to 6, from wherever they were left. The old one goes on unless step 6 is reached."""
        outcome = Outcome(self.generation, [], [])
        with closing(Store(self.new, self._clock)) as store:
            work = self._work(store)
            if not work.verified:
                await self._catch_up(reader, work, watcher)
                outcome = await self._verify(reader, work, watcher)
                if not outcome.same and not accept_differences:
                    return outcome
                with store.transaction() as db:
                    store.note_replay(db, {"verified": True})
                work = self._work(store)
            await self._read(reader, work, watcher)
            set_retired(self.old, True)
            try:
                with snapshot(self.old) as old:
                    await self._read_rest(old, reader, work, watcher)
                store.finish_replay()
            except BaseException:
                set_retired(self.old, False)
                raise
        switch(self._settings.data, self.generation)
        return outcome

    async def rebuild(self, reader: LogReader, watcher: Watcher) -> Outcome:
        """Steps 2 to 4 alone."""
        with closing(Store(self.new, self._clock)) as store:
            work = self._work(store)
            await self._catch_up(reader, work, watcher)
            return await self._verify(reader, work, watcher)

    def _work(self, store: Store) -> _Work:
        state = store.replay_state()
        if not state:
            raise FreshetError(f"{self.new} is no unfinished replay")
        starts = {Source(*place): start for *place, start in state["starts"]}
        cuts: dict[str, int] = state["cuts"]
        verified: bool = state.get("verified", False)
        if verified:
            starts, cuts = dict(positions_of(self.new)), dict.fromkeys(cuts, 0)
        work = _Work(
            store=store,
            keeper=Keeper(store, cuts[self._settings.topic_edge], cuts[self._settings.topic_functions]),
            copied=dict(state["copied"]),
            cuts=cuts,
            starts=starts,
            verified=verified,
            stretches=[],
        )
        work.stretches.extend(work.begin(starts))
        return work

    async def _starts(self, wish: Wish, reader: LogReader) -> tuple[dict[Source, int], dict[str, int]]:
        """The offsets to replay from by partition, and each topic's cut."""
        with closing(Store(self.old, self._clock)) as store:
            recreations = store.recreations(self._cluster)
        live = positions_of(self.old)
        starts: dict[Source, int] = {}
        cuts: dict[str, int] = {}
        for topic in (self._settings.topic_edge, self._settings.topic_functions):
            if wish.topics and topic not in wish.topics:
                cuts[topic] = EVERYTHING
                continue
            log = log_identity(self._cluster, recreations.get(topic, 0))
            partitions = await reader.partitions(topic)
            offsets = await reader.beginnings(partitions)
            for tp, end in (await reader.ends(partitions)).items():
                if (next_offset := live.get(Source(log, *tp), 0)) > end:
                    raise recreated(Source(log, *tp), f"offset {next_offset} is next, but the log ends at {end}")
            for tp, beginning in offsets.items():
                if live.get(Source(log, *tp), beginning) < beginning:
                    raise LogError(
                        f"{topic}[{tp.partition}]: the log begins beyond the position: let a worker note the gap"
                    )
            if wish.from_time is not None:
                wanted = await reader.at_time(partitions, wish.from_time)
                offsets = {tp: max(offset, wanted[tp]) for tp, offset in offsets.items()}
            if wish.from_offset is not None:
                offsets = {tp: max(offset, wish.from_offset) for tp, offset in offsets.items()}
            of_topic = {Source(log, topic, tp.partition): offset for tp, offset in offsets.items()}
            of_topic = {source: min(offset, live[source]) for source, offset in of_topic.items() if source in live}
            cuts[topic] = cut_of(self.old, topic, of_topic)
            starts |= of_topic
        return starts, cuts

    async def _catch_up(self, reader: LogReader, work: _Work, watcher: Watcher) -> None:
        """Steps 2 and 3, in this order: the log may soon no longer have what is to be read first."""
        await self._read(reader, work, watcher)
        watcher.step("copying what the log no longer has", 0)
        with snapshot(self.old) as old:
            for count in work.keeper.copy_blocks(old, work.copied):
                watcher.done(count)

    async def _verify(self, reader: LogReader, work: _Work, watcher: Watcher) -> Outcome:
        """Step 4."""
        with snapshot(self.old) as old:
            await self._read_rest(old, reader, work, watcher)
            for count in work.keeper.copy_blocks(old, work.copied):
                watcher.done(count)
            replayed = {
                stretch.source: Replayed(work.starts.get(stretch.source, 0), stretch.cut) for stretch in work.stretches
            }
            recounted = {source.topic for source in replayed if not work.cuts[source.topic]}
            work.keeper.copy_rest(old, replayed, recounted)
            with snapshot(self.new) as new:
                watcher.step("verifying", size(old) + size(new))
                spans, found = await asyncio.to_thread(differences, old, new, watcher.done)
        return Outcome(self.generation, spans, found)

    async def _read(self, reader: LogReader, work: _Work, watcher: Watcher) -> None:
        """Read the log until the old store is but little ahead."""
        for round_number in range(_MOST_ROUNDS):
            left = self._set_limits(work, positions_of(self.old))
            if left <= LITTLE and round_number:
                return
            watcher.step("reading the log", left)
            await reader.read(work.stretches, work.store, watcher.done)

    async def _read_rest(self, old: sqlite3.Connection, reader: LogReader, work: _Work, watcher: Watcher) -> None:
        """Read the log up to where one state of the old store stands."""
        work.keeper.require_same_logs(old)
        watcher.step("reading the rest", self._set_limits(work, positions_in(old)))
        await reader.read(work.stretches, work.store, watcher.done)

    def _set_limits(self, work: _Work, live: Mapping[Source, int]) -> int:
        """Have the stretches end at the live store's positions; returns how many offsets are left.

        Partitions that were added to a replayed topic since the replay began are read from their start.
        """
        known = {stretch.source for stretch in work.stretches}
        logs = {source[:2] for source in known}
        added = {source: 0 for source in live if source not in known and source[:2] in logs}
        if added:
            work.stretches.extend(work.begin(added))
        for stretch in work.stretches:
            stretch.limit = live.get(stretch.source, stretch.next_offset)
        return sum(max(0, stretch.limit - stretch.next_offset) for stretch in work.stretches)


def positions_of(store: Path) -> Mapping[Source, int]:
    """The next offsets of a store."""
    with snapshot(store) as db:
        return positions_in(db)


def positions_in(db: sqlite3.Connection) -> Mapping[Source, int]:
    """The next offsets of one state of a store."""
    rows = db.execute("SELECT log, topic, partition, next_offset FROM positions").fetchall()
    return {Source(log, topic, partition): offset for log, topic, partition, offset in rows}


def remove_store(path: Path) -> None:
    """Delete a database that nobody uses."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
