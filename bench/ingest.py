"""`python -m bench ingest`: how fast a worker applies a backlog, beside a bare consumer that throws it away."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from kafka_broker import KafkaBroker

from bench.load import edge_events
from ops.progress import read_progress
from schema.settings import Settings, to_environment

EVENTS = int(os.environ.get("EVENTS", "200000"))
ROUNDS = 3
PARTITIONS = 4


async def drain(bootstrap: str, topic: str) -> float:
    """Seconds that a bare aiokafka consumer takes for the topic, doing nothing with it."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 << 20,
        fetch_max_bytes=8 << 20,
    )
    await consumer.start()
    try:
        start, seen = time.perf_counter(), 0
        while seen < EVENTS:
            seen += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=5000)).values()))
        return time.perf_counter() - start
    finally:
        await consumer.stop()


def ingest(folder: Path, bootstrap: str, topic: str, round_number: int) -> float:
    """Seconds from the first to the last event that a worker commits to the tables."""
    settings = Settings(
        broker=f"kafka://{bootstrap}",
        data=folder / f"data-{round_number}",
        topic_edge=topic,
        topic_functions=f"{topic}-functions",
        group=f"bench-{round_number}",
    )
    with (folder / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "ops", "worker"],
            env={**os.environ, **to_environment(settings)},
            stdout=log,
            stderr=log,
        )
    try:
        start, first, applied = 0.0, 0, 0
        while applied < EVENTS:
            time.sleep(0.05)
            if worker.poll() is not None:
                raise RuntimeError((folder / "worker.log").read_text()[-2000:])
            try:
                applied = read_progress(settings.data).events.get(topic, 0)
            except Exception:  # noqa: S112  # the store is still being made
                continue
            if applied and not start:
                start, first = time.perf_counter(), applied
        return (time.perf_counter() - start) * EVENTS / (EVENTS - first)
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    """Interleaved rounds, then the medians and their ratio."""
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        folder, topic = Path(name), "bench"
        kafka.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        now = time.time_ns() // 1000
        print(f"producing {EVENTS:,} events", flush=True)
        kafka.produce((topic, None, key, value, None) for key, value in edge_events(EVENTS, now - EVENTS * 100))
        rows: list[tuple[float, float]] = []
        for number in range(ROUNDS):
            limit = EVENTS / asyncio.run(drain(kafka.bootstrap, topic))
            worker = EVENTS / ingest(folder, kafka.bootstrap, topic, number)
            rows.append((limit, worker))
            print(f"round {number + 1}: bare consumer {limit:,.0f}/s, worker {worker:,.0f}/s", flush=True)
        limit, worker = (sorted(column)[ROUNDS // 2] for column in zip(*rows, strict=True))
        print(f"median: bare consumer {limit:,.0f}/s, worker {worker:,.0f}/s, ratio {worker / limit:.2f}")
