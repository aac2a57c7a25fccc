"""Stores of many events made without Kafka: by the worker's own decoding, folding, packing and store, on both cores.

The same events go to Parquet files for the peers.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import EdgeRequest, FunctionCall, edge_requests, function_calls
from ops.bars import Bars
from schema.clock import system_clock
from schema.events import Source
from schema.retention import horizons_at
from schema.settings import Settings
from schema.tables import migrate
from streams.app import EDGE, FUNCTIONS
from streams.batch import FetchedBatch
from streams.dictionary import DictionaryTrainer
from streams.packing import Packer
from streams.sealing import Sealer, commit
from streams.store import Store

BATCH = 5000
_CHUNK = 20_000
_PROCESSES = 2
_LOG = "bench.0"
_TRAINING_SEED = 1 << 32  # no chunk's number; -1 would be the same as 1


class StoredRecord(NamedTuple):
    """What the decoder reads of a Kafka record."""

    offset: int
    timestamp: int
    value: bytes


class Plan(NamedTuple):
    """What to make: `edge` and `functions` events over `span` µs up to `now`, in batches of `batch` records.

    `columns`: the folder for the peers' Parquet files, None for none; `narrow` leaves out of them the part of the
    metadata that no query looks at.
    """

    data: Path
    now: int
    span: int
    edge: int
    functions: int = 0
    batch: int = BATCH
    columns: Path | None = None
    narrow: bool = False


class _Chunk(NamedTuple):
    """So many events of a topic from the `first` on; it stands in a partition of its own, `number`."""

    plan: Plan
    topic: str
    number: int
    first: int
    events: int


def build(plan: Plan) -> Path:
    """Make the store of a plan, and its Parquet files; returns the store's path."""
    path = migrate(plan.data)
    _train(path)
    if plan.columns is not None:
        plan.columns.mkdir(parents=True, exist_ok=True)
    chunks = [*_chunks(plan, "edge", plan.edge), *_chunks(plan, "functions", plan.functions)]
    with Bars() as bars, ProcessPoolExecutor(_PROCESSES, get_context("forkserver")) as pool:
        bars.watcher.step(f"making a store of {plan.edge:,} + {plan.functions:,} events", plan.edge + plan.functions)
        for count in pool.map(_make, chunks):
            bars.watcher.done(count)
    return path


def seal(path: Path) -> None:
    """Merge the small blocks of a store whose hours are over, until there is nothing more to merge."""
    with closing(Store(path, system_clock)) as store, closing(Sealer(path, system_clock, close_every=0)) as sealer:
        idle = 0
        while idle < 2:  # the rest of a round in hand, and one whole round
            merges = sealer.prepare()
            idle = 0 if merges else idle + 1
            commit(store, merges)


def _train(path: Path) -> None:
    store, trainer = Store(path, system_clock), DictionaryTrainer()
    trainer.offer([StoredRecord(0, 0, event.json()) for event in edge_requests(2000, 0, seed=_TRAINING_SEED)])
    content = trainer.train()
    assert content is not None
    store.add_dictionary(content)
    store.close()


def _chunks(plan: Plan, topic: str, count: int) -> Iterator[_Chunk]:
    for number, first in enumerate(range(0, count, _CHUNK)):
        yield _Chunk(plan, topic, number, first, min(_CHUNK, count - first))


def _make(chunk: _Chunk) -> int:
    plan = chunk.plan
    total = plan.edge if chunk.topic == "edge" else plan.functions
    spacing = max(1, plan.span // total)
    start = plan.now - (total - chunk.first) * spacing
    make = edge_requests if chunk.topic == "edge" else function_calls
    events: list[Any] = list(make(chunk.events, start, spacing, seed=chunk.number))
    _apply(chunk, [event.json() for event in events])
    if plan.columns is not None:
        _write_columns(plan.columns / f"{chunk.topic}-{chunk.number:06d}.parquet", events, plan.narrow)
    return chunk.events


def _apply(chunk: _Chunk, values: Sequence[bytes]) -> None:
    """Write events as the worker does."""
    plan = chunk.plan
    store = Store(migrate(plan.data), system_clock)
    try:
        packer = Packer(*store.dictionary())
        topic = EDGE if chunk.topic == "edge" else FUNCTIONS
        horizons = horizons_at(plan.now, Settings().kept)
        source = Source(_LOG, chunk.topic, chunk.number)
        store.open_positions({source: 0})
        for start in range(0, len(values), plan.batch):
            records = [StoredRecord(n, 0, value) for n, value in enumerate(values[start : start + plan.batch], start)]
            end = start + len(records)
            folded = topic.folded(FetchedBatch(source, start, end, end, 1, records), packer, horizons)
            assert store.apply(folded)
    finally:
        store.close()


def _write_columns(file: Path, events: Sequence[EdgeRequest] | Sequence[FunctionCall], narrow: bool) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [_edge_row(event, narrow) if isinstance(event, EdgeRequest) else _function_row(event) for event in events]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file, compression="zstd")


def _edge_row(event: EdgeRequest, narrow: bool) -> dict[str, Any]:
    return {
        "id": event.id,
        "timestamp": event.timestamp,
        "project": event.project,
        "event_message": event.event_message,
        "metadata": event.narrow_metadata() if narrow else event.metadata(),
        "url": event.url,
        "path": event.path,
    }


def _function_row(event: FunctionCall) -> dict[str, Any]:
    return {
        "id": event.id,
        "timestamp": event.timestamp,
        "project": event.project,
        "function_id": event.function,
        "status": event.status,
        "execution_time": event.execution_time,
    }
