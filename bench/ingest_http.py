"""`python -m bench http-ingest`: events a second through one API process, and what queries take meanwhile."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import msgspec
from kafka_broker import KafkaBroker
from service import free_port

from bench.load import edge_events
from ops.keys import add_key
from schema.settings import Settings, to_environment
from schema.tables import migrate

SECONDS = float(os.environ.get("SECONDS", "10"))
EVENTS, BATCH, CONNECTIONS, PARTITIONS = 20_000, 100, 8, 4
QUERY = "/api/endpoints/usage.api-counts?interval=hourly&project="
QUERY_EVERY = 0.02  # seconds
STEADY = 20_000  # events a second


def bodies() -> list[bytes]:
    """Requests of 100 events each, 2.2 KB an event, 200 projects mixed."""
    now = time.time_ns() // 1000
    events = [value for _, value in edge_events(EVENTS, now - EVENTS * 100)]
    return [b'{"batch":[%b]}' % b",".join(events[at : at + BATCH]) for at in range(0, EVENTS, BATCH)]


async def load(session: aiohttp.ClientSession, requests: list[bytes], until: float, rate: float = 0.0) -> int:
    """How many events `CONNECTIONS` producers get logged until then, each waiting for its answer.

    All together send `rate` events a second at most; without one as many as they can.
    """
    began = time.perf_counter()

    async def produce(number: int) -> int:
        slot, logged = number, 0
        while time.perf_counter() < until:
            if rate:
                due = began + (logged * CONNECTIONS + slot * BATCH) / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            number = (number + CONNECTIONS) % len(requests)
            async with session.post("/api/logs?source_name=cloudflare.logs.prod", data=requests[number]) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {await answer.text()}")
            logged += BATCH
        return logged

    return sum(await asyncio.gather(*map(produce, range(CONNECTIONS))))


async def ask(session: aiohttp.ClientSession, until: float) -> list[float]:
    """The milliseconds that each of the queries takes that are asked every 20 ms until then."""
    taken = []
    while time.perf_counter() < until:
        start = time.perf_counter()
        async with session.get(QUERY + "abc") as answer:
            await answer.read()
            answer.raise_for_status()
        taken.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(QUERY_EVERY)
    return sorted(taken)


def percentiles(taken: list[float]) -> str:
    """p50 and p99 as text."""
    return f"p50 {taken[len(taken) // 2]:.1f} ms, p99 {taken[len(taken) * 99 // 100]:.1f} ms"


async def measure(settings: Settings, key: str, api: int) -> None:
    """Queries alone, ingest alone, both at a steady rate, both as fast as it goes.

    `api` is the process id of the API's master.
    """
    requests = bodies()
    base = f"http://{settings.listen}"
    async with aiohttp.ClientSession(base, headers={"X-API-KEY": key}) as session:
        await load(session, requests, time.perf_counter() + 1)
        alone = await ask(session, time.perf_counter() + SECONDS)
        before = cpu_seconds(api)
        logged = await load(session, requests, time.perf_counter() + SECONDS)
        used = cpu_seconds(api) - before
        beside = []
        for rate in (STEADY, 0):
            until = time.perf_counter() + SECONDS
            beside.append(await asyncio.gather(load(session, requests, until, rate), ask(session, until)))
    print(f"ingest alone {logged / SECONDS:,.0f} events/s")
    print(f"the API used {used / SECONDS:.2f} of a core alone: {used / logged * 1e6:.1f} µs an event")
    print(f"queries alone {percentiles(alone)}")
    for count, during in beside:
        print(f"queries beside ingest of {count / SECONDS:,.0f} events/s {percentiles(during)}")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process's children have used so far."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """One API process, a Kafka, no worker: the log is what is measured."""
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        settings = Settings(
            broker=f"kafka://{kafka.bootstrap}", data=Path(name) / "data", listen=f"127.0.0.1:{free_port()}"
        )
        for topic in (settings.topic_edge, settings.topic_functions):
            kafka.create_topic(topic, PARTITIONS)
        migrate(settings.data)
        key = add_key(settings.data, "bench")
        with closing(sqlite3.connect(settings.data / "control.db")) as db, db:
            db.execute("UPDATE keys SET allow = ?", (msgspec.json.encode(["query", "ingest"]).decode(),))
        with open(Path(name) / "api.log", "wb") as log:
            api = subprocess.Popen(
                [sys.executable, "-m", "ops", "api"],
                env={**os.environ, **to_environment(settings)},
                stdout=log,
                stderr=log,
            )
        try:
            while True:
                with suppress(OSError), urlopen(f"http://{settings.listen}/health", timeout=1):
                    break
                time.sleep(0.1)
            asyncio.run(measure(settings, key, api.pid))
        finally:
            api.terminate()
            api.wait()
