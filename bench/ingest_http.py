"""`python -m bench http-ingest`: events a second through one API process, and what uncached queries take meanwhile."""

import asyncio
import tempfile
import time
from pathlib import Path

import aiohttp
from kafka_broker import KafkaBroker

from bench.answers import Api, api
from bench.figures import Cell, Options, Result, Table, percentile
from bench.load import edge_events
from bench.usage import Meter, tree
from ops.keys import add_key
from schema.settings import Settings
from schema.tables import migrate

EVENTS, BATCH, CONNECTIONS, PARTITIONS = 20_000, 100, 8, 4
SECONDS, SHORT_SECONDS = 8.0, 1.0
STEADY = 20_000  # events a second
QUERY = "/api/endpoints/functions.invocation-stats?interval=1hr&project=p"
QUERY_EVERY = 0.02  # seconds


def bodies(count: int) -> list[bytes]:
    """Requests of 100 events each, about 2.5 KB an event, 200 projects mixed."""
    now = time.time_ns() // 1000
    events = [value for _, value in edge_events(count, now - count * 100)]
    return [b'{"batch":[%b]}' % b",".join(events[at : at + BATCH]) for at in range(0, count, BATCH)]


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
        async with session.get(QUERY, headers={"Cache-Control": "no-cache"}) as answer:
            await answer.read()
            answer.raise_for_status()
        taken.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(QUERY_EVERY)
    return taken


async def measure(running: Api, key: str, requests: list[bytes], seconds: float) -> list[list[Cell]]:
    """Queries alone, ingest alone, both at a steady rate, both as fast as it goes."""
    rows: list[list[Cell]] = []
    async with aiohttp.ClientSession(f"http://{running.settings.listen}", headers={"X-API-KEY": key}) as session:
        await load(session, requests, time.perf_counter() + 1)  # the producer's start
        for name, ingesting, asking, rate in (
            ("queries alone", False, True, 0.0),
            ("ingest alone", True, False, 0.0),
            (f"queries beside ingest of {STEADY:,} events/s", True, True, STEADY),
            ("queries beside as much ingest as it takes", True, True, 0.0),
        ):
            meter = Meter(api=tree(running.process.pid))
            until = time.perf_counter() + seconds
            logged, taken = await asyncio.gather(
                load(session, requests, until, rate) if ingesting else asyncio.sleep(0, 0),
                ask(session, until) if asking else asyncio.sleep(0, []),
            )
            passed, used = meter.read()
            rows.append(
                [
                    name,
                    logged / passed if ingesting else None,
                    used["api"] / logged * 1e6 if logged and not asking else None,
                    *(percentile(taken, percent) if asking else None for percent in (50, 99)),
                ]
            )
    return rows


def run(options: Options) -> Result:
    """One API process and a Kafka, without a worker: its part is the benchmark `ingest`."""
    topics = Settings()
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        for topic in (topics.topic_edge, topics.topic_functions):
            kafka.create_topic(topic, PARTITIONS)
        data = Path(name) / "data"
        migrate(data)
        key = add_key(data, "producer", allow=("query", "ingest"))
        requests = bodies(max(BATCH, options.events or EVENTS))
        with api(data, broker=f"kafka://{kafka.bootstrap}") as running:
            rows = asyncio.run(measure(running, key, requests, SHORT_SECONDS if options.short else SECONDS))
    table = Table(
        f"HTTP ingest: one process, {CONNECTIONS} connections, batches of {BATCH}, acknowledged by Kafka",
        ["", "events/s", "CPU µs/event", "query p50 ms", "query p99 ms"],
        rows,
        "The load, Kafka and the API share the machine; the query is not cached and finds an empty store.",
    )
    return Result("http-ingest", [table])
