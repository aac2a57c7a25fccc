"""`python -m bench http-ingest`: events a second through one API process, and what uncached queries take meanwhile.

The load comes from a process of its own, so what a query takes is not what its client takes. The queries are those of
the three endpoints in turn, on a store of 200,000 requests; no worker runs beside them: its part is `bench ingest`.
"""

import asyncio
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path

import aiohttp
from kafka_broker import KafkaBroker

from bench.answers import Api, Client, api
from bench.cases import COUNTS, LOGS, STATS, Case
from bench.figures import Cell, Options, Result, Table, percentile
from bench.load import BIG, edge_events
from bench.stores import Plan, build
from bench.usage import Meter, tree
from ops.keys import add_key
from schema.settings import Settings
from schema.timestamps import HOUR

EVENTS, BATCH, CONNECTIONS, PARTITIONS = 20_000, 100, 8, 4
STORED, SHORT_STORED = 200_000, 20_000
SECONDS, SHORT_SECONDS = 8.0, 2.0
STEADY = 20_000  # events a second
ASKED = (Case(STATS, "1hr", BIG), Case(LOGS, "FREE", BIG), Case(COUNTS, "hourly", BIG))
ASK_EVERY = 0.02  # seconds


@cache
def bodies(count: int) -> list[bytes]:
    """Requests of 100 events each, about 2.5 KB an event, 200 projects mixed."""
    now = time.time_ns() // 1000
    events = [value for _, value in edge_events(count, now - count * 100)]
    return [b'{"batch":[%b]}' % b",".join(events[at : at + BATCH]) for at in range(0, count, BATCH)]


def load(listen: str, key: str, events: int, seconds: float, rate: float) -> int:
    """How many events `CONNECTIONS` producers get logged in so many seconds, each waiting for its answer.

    All together send `rate` events a second at most; of 0 as many as they can.
    """
    return asyncio.run(_load(listen, key, bodies(events), seconds, rate))


async def _load(listen: str, key: str, requests: list[bytes], seconds: float, rate: float) -> int:
    began = time.perf_counter()

    async def produce(session: aiohttp.ClientSession, number: int) -> int:
        slot, logged = number, 0
        while time.perf_counter() < began + seconds:
            if rate:
                due = began + (logged * CONNECTIONS + slot * BATCH) / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            number = (number + CONNECTIONS) % len(requests)
            async with session.post("/api/logs?source_name=cloudflare.logs.prod", data=requests[number]) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {await answer.text()}")
            logged += BATCH
        return logged

    async with aiohttp.ClientSession(f"http://{listen}", headers={"X-API-KEY": key}) as session:
        return sum(await asyncio.gather(*(produce(session, number) for number in range(CONNECTIONS))))


def ask(client: Client, until: float) -> list[float]:
    """The milliseconds that each query takes of those that are asked, one every 20 ms, until then."""
    taken: list[float] = []
    for case in cycle(ASKED):
        if time.perf_counter() > until:
            return taken
        reply = client.ask(case.endpoint, case.parameters)
        if reply.status != 200:
            raise RuntimeError(f"{case}: {reply.status} {reply.body[:500]!r}")
        taken.append(reply.seconds * 1000)
        time.sleep(ASK_EVERY)
    raise AssertionError("there is always another one to ask")


def measure(running: Api, key: str, events: int, seconds: float) -> list[list[Cell]]:
    """Queries alone, ingest alone, both at a steady rate, both as fast as it goes."""
    rows: list[list[Cell]] = []
    listen = running.settings.listen
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        pool.submit(load, listen, key, events, 1.0, 0.0).result()  # the start of the producer and of the load
        for name, rate in (
            ("queries alone", None),
            ("ingest alone", 0.0),
            (f"queries beside ingest of {STEADY:,} events/s", float(STEADY)),
            ("queries beside as much ingest as it takes", 0.0),
        ):
            meter, began = Meter(api=tree(running.process.pid)), time.perf_counter()
            logged: Future[int] | None = None
            if rate is not None:
                logged = pool.submit(load, listen, key, events, seconds, rate)
            taken = ask(running.client, began + seconds) if name.startswith("queries") else []
            count = logged.result() if logged is not None else 0
            passed, used = meter.read()
            rows.append(
                [
                    name,
                    count / passed if count else None,
                    used["api"] / count * 1e6 if count and not taken else None,
                    *(percentile(taken, percent) if taken else None for percent in (50, 99)),
                ]
            )
    return rows


def run(options: Options) -> Result:
    """One API process on a store, and a Kafka."""
    topics, now = Settings(), time.time_ns() // 1000
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        for topic in (topics.topic_edge, topics.topic_functions):
            kafka.create_topic(topic, PARTITIONS)
        data = Path(name) / "data"
        stored = SHORT_STORED if options.short else STORED
        build(Plan(data, now, HOUR, stored, stored // 4))
        key = add_key(data, "producer", allow=("query", "ingest"))
        with api(data, broker=f"kafka://{kafka.bootstrap}") as running:
            rows = measure(
                running, key, max(BATCH, options.events or EVENTS), SHORT_SECONDS if options.short else SECONDS
            )
    table = Table(
        f"HTTP ingest: one process, {CONNECTIONS} connections, batches of {BATCH}, acknowledged by Kafka",
        ["", "events/s", "CPU µs/event", "query p50 ms", "query p99 ms"],
        rows,
        "The load, Kafka and the API share the machine. Queries are those of the three endpoints in turn, not cached.",
    )
    return Result("http-ingest", [table])
