"""`python -m bench profile`: where each microsecond of an event goes, with the worker's own code, in this process.

Batches as the worker gets them under load go through each stage by itself: fetch (aiokafka's `getmany`, decompression
and CRC checks included), decode, fold, pack (rows and payloads put together), compress, the SQL of a transaction, and
its commit. What a running worker needs beside these (Faust, threads, the event loop) is its CPU time in
`bench ingest` less the sum here.
"""

import tempfile
import time
from collections import defaultdict
from operator import sub
from pathlib import Path
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from kafka_broker import KafkaBroker

from bench import backlog
from bench.figures import Cell, Chart, Options, Result, Table, median
from bench.load import edge_events, function_events
from schema.blocks import Compressor, Decompressor
from schema.clock import system_clock
from schema.events import Source
from schema.retention import NOTHING_EXPIRED
from schema.tables import migrate
from streams.adding import add
from streams.app import BATCH_BYTES, BATCH_RECORDS, EDGE, FUNCTIONS
from streams.batch import Topic
from streams.dictionary import DictionaryTrainer
from streams.packing import Packer, Rows
from streams.store import Store
from streams.transport import FETCH_BYTES

EVENTS, SHORT_EVENTS = 100_000, 30_000
ROUNDS = 3
STAGES = ("fetch", "decode", "fold", "pack", "compress", "SQL", "commit")
Batches = list[list[ConsumerRecord]]


def run(options: Options) -> Result:
    """Each stage's time an event, of both topics: the median of some rounds."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        to, start = backlog.producer(kafka), time.time_ns() // 1000 - events * 100
        backlog.fill(to, backlog.make_topic(kafka, "edge"), edge_events(events, start), events)
        backlog.fill(to, backlog.make_topic(kafka, "functions"), function_events(events, start), events)
        for number in range(options.rounds or ROUNDS):
            for topic_name, topic in (("edge", EDGE), ("functions", FUNCTIONS)):
                folder = Path(name) / f"{topic_name}-{number}"
                found[topic_name].append(_stages(kafka.bootstrap, topic_name, topic, events, folder))
    micros = {
        topic: {stage: median(r[stage] for r in rounds) / events * 1e6 for stage in STAGES}
        for topic, rounds in found.items()
    }
    rows: list[list[Cell]] = [[stage, *(micros[topic][stage] for topic in found)] for stage in STAGES]
    rows.append(["all of these", *(sum(micros[topic].values()) for topic in found)])
    return Result(
        subject="profile",
        tables=[
            Table(
                f"Where the time of an event goes, CPU µs ({events:,} of each)",
                ["stage", "an edge event of 2.5 KB", "a function invocation"],
                rows,
            )
        ],
        charts=[
            Chart(
                "profile",
                "Where the time of an edge event goes",
                "µs",
                {"µs": [micros["edge"][stage] for stage in STAGES]},
                list(STAGES),
            )
        ],
    )


def _stages(bootstrap: str, name: str, topic: Topic[Any], events: int, folder: Path) -> dict[str, float]:
    """CPU seconds of each stage for all events of a topic, on a store of its own."""
    batches, fetch = uvloop.run(_fetched(bootstrap, name, events))
    store = Store(migrate(folder), system_clock)
    try:
        trainer = DictionaryTrainer()
        content = trainer.train() if trainer.offer(batches[0]) and name == "edge" else None
        dictionary = store.add_dictionary(content) if content is not None else store.dictionary()
        seconds = _written(store, topic, Source("bench.0", name, 0), batches, *dictionary)
    finally:
        store.close()
    return {"fetch": fetch, **seconds}


async def _fetched(bootstrap: str, topic: str, events: int) -> tuple[Batches, float]:
    """All records, by batch and partition as a fetch gives them, and the CPU seconds that took."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=BATCH_BYTES,
        fetch_max_bytes=FETCH_BYTES,
        isolation_level="read_committed",
    )
    await consumer.start()
    batches: Batches = []
    began = time.process_time()
    while sum(map(len, batches)) < events:
        batches += (await consumer.getmany(timeout_ms=1000, max_records=BATCH_RECORDS)).values()
    seconds = time.process_time() - began
    await consumer.stop()
    return batches, seconds


def _written(
    store: Store, topic: Topic[Any], source: Source, batches: Batches, dictionary_id: int, dictionary: bytes | None
) -> dict[str, float]:
    """CPU seconds from decoding to commit."""
    packer = Packer(dictionary_id, dictionary)
    seconds = dict.fromkeys(STAGES[1:], 0.0)
    for batch in batches:
        marks = [time.process_time()]
        decoded = topic.decode(source, batch)
        marks.append(time.process_time())
        deltas = topic.fold(decoded.events, NOTHING_EXPIRED)
        marks.append(time.process_time())
        rows = packer.pack(deltas)
        marks.append(time.process_time())
        with store.transaction() as db:
            add(db, source, rows, decoded.rejects, decoded.counts, system_clock())
            marks.append(time.process_time())
        marks.append(time.process_time())
        for stage, took in zip(("decode", "fold", "pack", "SQL", "commit"), map(sub, marks[1:], marks), strict=True):
            seconds[stage] += took
        seconds["compress"] += _compressed(rows, dictionary)
    seconds["pack"] -= seconds["compress"]
    return seconds


def _compressed(rows: Rows, dictionary: bytes | None) -> float:
    """CPU seconds of compressing a batch's payloads, once more and by itself."""
    payloads: list[tuple[bytes, Compressor]] = []
    for block, used in ((rows.entry_blocks, dictionary), (rows.url_blocks, None)):
        decompressor, compressor = Decompressor(used), Compressor(used)
        payloads += [(decompressor.decompress(row[-1]), compressor) for row in block]
    began = time.process_time()
    for payload, compressor in payloads:
        compressor.compress(payload)
    return time.process_time() - began
