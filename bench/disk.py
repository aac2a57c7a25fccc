"""`python -m bench disk`: bytes an event takes, by table, at 10, 1,000 and 10,000 events/s, sealed and not.

The batches are those that a worker fetches at these rates: what has come in a tenth of a second, by partition.
"""

import os
import tempfile
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw

from bench.load import edge_events
from schema.clock import Clock
from schema.events import Source
from schema.retention import ENTRIES, INVOCATIONS, ORIGIN_HITS, URLS
from schema.tables import migrate
from schema.timestamps import DAY, HOUR, SECOND
from streams.app import EDGE
from streams.batch import FetchedBatch
from streams.dictionary import DictionaryTrainer
from streams.packing import Packer
from streams.sealing import Sealer, commit
from streams.store import Store

PARTITIONS = 4
START = 1_750_000_000_000_000 // DAY * DAY
EVENTS = int(os.environ.get("EVENTS", "36000"))
TABLES = (ENTRIES, URLS, ORIGIN_HITS, INVOCATIONS)


class Received(NamedTuple):
    """A record as a worker fetches it."""

    offset: int
    timestamp: int
    value: bytes


def main() -> None:
    """For each rate the share of the raw JSON, by table: without sealing, with it, and once the hour is over."""
    print(f"{'events/s':>8} {'':12} {'file MB':>8} {'% of raw':>9} " + " ".join(f"{name:>13}" for name in TABLES))
    for rate in (10, 1_000, 10_000):
        for sealing in (False, True):
            with tempfile.TemporaryDirectory() as name:
                run(Path(name), rate, sealing)


class _Sealing:
    """A sealer at work, and what it has cost."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._sealer = Sealer(store.path, clock, close_every=0)
        self.spent = 0.0
        self.written = 0

    def until_nothing_is_left(self) -> None:
        """Rounds until one has nothing to merge."""
        began = time.process_time()
        idle = 0
        while idle < 2:
            merges = self._sealer.prepare()
            idle = 0 if merges else idle + 1
            self.written += sum(row[3] for merge in merges if merge.table == ENTRIES for row in merge.rows)
            commit(self._store, merges)
        self.spent += time.process_time() - began

    def close(self) -> None:
        """Close its connection."""
        self._sealer.close()


def run(folder: Path, rate: int, sealing: bool) -> None:
    """One rate: so many events in its batches; with sealing a round a second of theirs."""
    now = START

    def clock() -> int:
        return now

    with closing(Store(migrate(folder), clock)) as store, closing(_Sealing(store, clock)) as sealer:
        raw = 0
        size = max(1, rate // 10 // PARTITIONS)
        batches: dict[Source, list[Received]] = {Source("log", "edge", number): [] for number in range(PARTITIONS)}
        offsets = dict.fromkeys(batches, 0)
        store.open_positions(offsets)
        packer, trainer = Packer(), DictionaryTrainer()
        for number, (key, value) in enumerate(edge_events(EVENTS, START, SECOND // rate)):
            raw += len(value)
            now = START + number * (SECOND // rate)
            source = Source("log", "edge", zlib.crc32(key) % PARTITIONS)
            batch = batches[source]
            batch.append(Received(offsets[source] + len(batch), now // 1000, value))
            if len(batch) == size:
                end = offsets[source] + size
                store.apply(EDGE.folded(FetchedBatch(source, offsets[source], end, end, 1, batch), packer))
                offsets[source], batches[source] = end, []
                if packer.dictionary_id == 0 and trainer.offer(batch):
                    content = trainer.train()
                    packer = Packer(*store.add_dictionary(content)) if content else packer
            if sealing and number % rate == 0:
                sealer.until_nothing_is_left()
        report(store.path, f"{rate:,}", "as it runs" if sealing else "not sealed", raw)
        if sealing:
            now += 2 * HOUR
            sealer.until_nothing_is_left()
            report(store.path, "", "hour over", raw)
            cost, times = sealer.spent / EVENTS * 1e6, sealer.written / EVENTS
            print(f"{'':8} sealing took {cost:.1f} µs of CPU an event and wrote each entry {times:.2f} times")


def report(path: Path, rate: str, state: str, raw: int) -> None:
    """One row: pages in use, by table with its indexes."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        used = dict.fromkeys(TABLES, 0)
        total = 0
        for name, pages in db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
            total += pages
            for table in TABLES:
                if name.startswith(table) or name == f"sqlite_autoindex_{table}_1":
                    used[table] += pages
        free = db.pragma("freelist_count") * db.pragma("page_size")
    shares = " ".join(f"{100 * used[table] / raw:12.2f}%" for table in TABLES)
    print(f"{rate:>8} {state:12} {(total + free) / 1e6:8.1f} {100 * total / raw:8.2f}% {shares}", flush=True)
