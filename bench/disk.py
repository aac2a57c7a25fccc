"""`python -m bench disk`: bytes an edge event by table, after a bulk load and at live rates, beside the peers.

At a rate the worker writes what a fetch brings: what comes within 50 ms, cut into four partitions (12 events at 1 k/s,
125 at 10 k/s). The same batches are applied here, spread over as much time as the rate
gives them, and sealed afterwards, since the hours are over. Sizes by table are SQLite's own (dbstat): pages as full as
writing left them. Free pages, which the file keeps for later, are told apart. The peers hold the same: the whole event,
its URL and path, merged, vacuumed or checkpointed.
"""

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from api.reader import Reader
from bench.cases import COUNTS, LOGS, Case, Engine
from bench.figures import Cell, Chart, Options, Result, Table, how_many, median
from bench.load import BIG, edge_requests
from bench.stores import BATCH, Plan, build, seal
from schema.saved_queries import load_saved_queries
from schema.timestamps import HOUR, SECOND

EVENTS, SHORT_EVENTS = 200_000, 36_000
_SAMPLE = 2000


class Load(NamedTuple):
    """How events come: so many a second, in batches of so many."""

    name: str
    rate: int
    batch: int


LOADS = (
    Load("bulk", 10_000, BATCH),
    Load("10 k/s", 10_000, 125),
    Load("1 k/s", 1_000, 12),
    Load("10/s", 10, 1),
)
_HOUR_OF_TEN = 36_000
"""Events of an hour at 10/s: no more are applied at that rate."""
_ASKED = ("usage.api-counts hourly, never seen", "usage.api-counts hourly", "logs.all FREE")
_FREE = "free pages beside it"
_TABLES = {
    "entry_blocks": ("entry_blocks", "entry_blocks_newest"),
    "url_blocks": ("url_blocks", "url_blocks_newest"),
    "origin_hits": ("origin_hits",),
}


def run(options: Options) -> Result:
    """Make a store for each way in which events come, and one of each peer."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    now = time.time_ns() // 1000
    now -= now % HOUR + HOUR  # so that every hour with events is over
    raw = _raw_bytes()
    sizes: dict[str, dict[str, float]] = {}
    answers: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, columns = Path(name), Path(name) / "columns"
        for load in LOADS:
            count = min(events, _HOUR_OF_TEN) if load.rate == 10 else events
            plan = Plan(folder / f"data-{load.rate}-{load.batch}", now, count * SECOND // load.rate, count)
            plan = plan._replace(batch=load.batch, columns=columns if options.peers and load.batch == BATCH else None)
            store = build(plan)
            for state in (load.name, f"{load.name}, sealed"):
                if state != load.name:
                    seal(store)
                sizes[state] = _by_table(store, count)
                answers[state] = _answers(plan)
        peers = _peers(folder, columns, events) if options.peers else {}
    rows: list[list[Cell]] = [
        [part, *(size[part] for size in sizes.values())] for part in (*_TABLES, "all else", "all", _FREE)
    ]
    rows += [
        [f"{part}, % of raw JSON", *(size[part] / raw * 100 for size in sizes.values())]
        for part in ("entry_blocks", "all")
    ]
    rows += [[name, bytes_, *[None] * (len(sizes) - 1)] for name, bytes_ in {**peers, "raw JSON": raw}.items()]
    totals = {**{f"Freshet, {name}": size["all"] for name, size in sizes.items()}, **peers, "raw JSON": raw}
    return Result(
        subject="disk",
        tables=[
            Table(
                f"Disk: bytes an edge event, {how_many(events)} events ({how_many(_HOUR_OF_TEN)} at 10/s, an hour)",
                ["", *sizes],
                rows,
            ),
            Table(
                "Queries of the big project after such loads, ms: of a pattern never seen, and medians of nine more",
                ["", *answers],
                [[name, *row] for name, row in zip(_ASKED, zip(*answers.values(), strict=True), strict=True)],
                "In one process without HTTP, as of the last event, which all events precede by less than an hour.",
            ),
        ],
        charts=[Chart("disk", "Disk", "bytes an event", {"bytes": list(totals.values())}, list(totals))],
    )


def _by_table(store: Path, events: int) -> dict[str, float]:
    """Bytes an event, by table with its indexes, of a store that nobody has open."""
    with closing(sqlite3.connect(store)) as db:
        ((free,), (page_size,)) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size"))
        pages = dict(db.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
    sizes = {table: sum(pages.get(part, 0) for part in parts) / events for table, parts in _TABLES.items()}
    whole = sum(pages.values()) / events
    return {**sizes, "all else": whole - sum(sizes.values()), "all": whole, _FREE: free * page_size / events}


def _answers(plan: Plan) -> list[float]:
    """What `_ASKED` takes, in ms."""
    queries = load_saved_queries()
    found: list[float] = []
    with closing(Reader(plan.data)) as reader:
        for case in (Case(COUNTS, "hourly", BIG), Case(LOGS, "FREE", BIG)):
            query, times = queries[case.endpoint], list[float]()
            parameters = {parameter.name: None for parameter in query.parameters} | case.parameters
            for _ in range(10):
                began = time.perf_counter()
                reader.run(query, parameters, None, plan.now, 60)
                times.append((time.perf_counter() - began) * 1000)
            found += [times[0]] if case.endpoint == COUNTS else []
            found.append(median(times[1:]))
    return found


def _peers(folder: Path, columns: Path, events: int) -> dict[str, float]:
    from bench.peers import postgres
    from bench.peers.clickhouse import ClickHouse
    from bench.peers.duck import Duck

    with postgres.server() as dsn:
        postgres.fill(dsn, columns)
        engines: list[Engine] = [Duck(folder, columns), ClickHouse(folder, columns)]
        engines += [postgres.Postgres(dsn, form) for form in ("tuned", "original")]
        sizes = {engine.name: engine.size() / events for engine in engines}
        for engine in engines:
            engine.close()
    return sizes


def _raw_bytes() -> float:
    return sum(len(event.json()) for event in edge_requests(_SAMPLE, 1_700_000_000_000_000)) / _SAMPLE
