"""`python -m bench query --events N`: each endpoint and interval on N edge requests and N/4 invocations of a week.

Freshet answers over HTTP, asked for an answer that was not kept; the peers answer the specification's queries from the
raw events in this process (PostgreSQL over its socket), without HTTP. Rounds of all are interleaved; p50 and p99 are
of all calls of a case. The answers are held against each other, so that all do the same work. From 1 M events on the
peers hold narrow events: without the part of the metadata that no query looks at.
"""

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench.answers import Client, Reply, api
from bench.cases import CASES, COUNTS, LOGS, OWN_CASES, STATS, Case, Engine, Rows
from bench.figures import Cell, Chart, Options, Result, Table, how_many, median, percentile
from bench.load import BIG, SMALL
from bench.stores import Plan, build, seal
from ops.bars import Bars
from schema.timestamps import DAY

EVENTS, SHORT_EVENTS = 1_000_000, 200_000
ROUNDS, SHORT_ROUNDS = 2, 1
_NARROW_FROM = 500_000  # events
_SPAN = 7 * DAY
_MOST_CALLS, _LONGEST = 100, 1.0  # of one case of one contender in one round: calls, seconds
Times = dict[tuple[str, Case], list[float]]
PATTERNS = {
    "reference of the big project": BIG,
    "reference of the small project": SMALL,
    "in no URL": "graphql/v1",
    "in one URL of a hundred thousand": "eq\\.0000",
    "in a fifth of the URLs": "/storage/v1",
    "in a fifth, case ignored": "(?i)/STORAGE/V1",
}


def run(options: Options) -> Result:
    """Make the stores, ask, compare."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    now = time.time_ns() // 1000
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, columns = Path(name), Path(name) / "columns"
        plan = Plan(folder / "data", now, _SPAN, events, events // 4)
        if options.peers:
            plan = plan._replace(columns=columns, narrow=events > _NARROW_FROM)
        seal(build(plan))
        engines = stack.enter_context(_engines(folder, columns)) if options.peers else []
        freshet = stack.enter_context(api(plan.data, now, query_seconds=60))
        times = _times(freshet.client, engines, now, options.rounds or (SHORT_ROUNDS if options.short else ROUNDS))
        freshet.process.terminate()
        freshet.process.wait()
        patterns = _patterns(plan.data, now)
    title = f"{how_many(events)} requests and {how_many(events // 4)} invocations over 7 days"
    return Result(
        subject="query",
        variant=title,
        tables=[_cases_table(title, times, engines), _patterns_table(title, patterns)],
        charts=[_chart(f"query-{events}", title, times, engines)],
    )


@contextmanager
def _engines(folder: Path, columns: Path) -> Iterator[list[Engine]]:
    from bench.peers import postgres
    from bench.peers.clickhouse import ClickHouse
    from bench.peers.duck import Duck

    with postgres.server() as dsn, Bars() as bars:
        bars.watcher.step("filling the peers", 3)
        engines: list[Engine] = [Duck(folder, columns)]
        bars.watcher.done(1)
        engines.append(ClickHouse(folder, columns))
        bars.watcher.done(1)
        postgres.fill(dsn, columns)
        bars.watcher.done(1)
        engines += [postgres.Postgres(dsn, "tuned"), postgres.Postgres(dsn, "original")]
        for file in columns.iterdir():
            file.unlink()
        try:
            yield engines
        finally:
            for engine in engines:
                engine.close()


def _times(client: Client, engines: list[Engine], now: int, rounds: int) -> Times:
    times: Times = defaultdict(list)
    with Bars() as bars:
        bars.watcher.step("asking", rounds * len(CASES))
        for _ in range(rounds):
            for case in OWN_CASES:
                _asked(client, case)  # the first time is another table's
                times["Freshet", case] += _called(partial(_seconds, client, case))
            for case in CASES:
                expected = _comparable(case, _rows(client, case))
                times["Freshet", case] += _called(partial(_seconds, client, case))
                for engine in engines:
                    if _comparable(case, engine.ask(case, now)) != expected:
                        raise RuntimeError(f"{engine.name} answers {case} otherwise than Freshet")
                    times[engine.name, case] += _called(partial(_timed, engine, case, now))
                bars.watcher.done(1)
    return times


def _called(call: Callable[[], float]) -> list[float]:
    """Seconds of each call, for as many as there is time for."""
    found: list[float] = []
    while len(found) < _MOST_CALLS and sum(found) < _LONGEST:
        found.append(call())
    return found


def _seconds(client: Client, case: Case) -> float:
    return _asked(client, case).seconds


def _timed(engine: Engine, case: Case, now: int) -> float:
    began = time.perf_counter()
    engine.ask(case, now)
    return time.perf_counter() - began


def _asked(client: Client, case: Case) -> Reply:
    reply = client.ask(case.endpoint, case.parameters)
    if reply.status != 200:
        raise RuntimeError(f"{case}: {reply.status} {reply.body[:500]!r}")
    return reply


def _rows(client: Client, case: Case) -> Rows:
    """Freshet's rows in the order of `Engine.ask`."""
    result: list[dict[str, Any]] = json.loads(_asked(client, case).body)["result"]
    if case.endpoint == STATS:
        names = ("timestamp", "count", "error_count", "min_execution_time", "max_execution_time")
        return [tuple(row[name] for name in names) for row in result]
    if case.endpoint == COUNTS:
        return [(_micros(row.pop("timestamp")), *row.values()) for row in result]
    return [tuple(row.values()) for row in result]


def _comparable(case: Case, rows: Rows) -> list[Any]:
    """What all have to give alike: buckets, counts, least and largest; of logs.all the ids and times, newest first.

    Averages are floats, and percentiles the engines' own approximations.
    """
    if case.endpoint == LOGS:
        return [(str(row[0]), row[1]) for row in rows]
    return [row[:5] for row in rows]


def _micros(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def _patterns(data: Path, now: int) -> dict[str, list[tuple[float, float, int]]]:
    """Of each pattern: seconds of the first answer and of the second, and calls that the first took; by round."""
    found: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for _ in range(ROUNDS):
        with api(data, now) as freshet:  # a new process remembers nothing
            for name, pattern in PATTERNS.items():
                seconds, calls = 0.0, 0
                while True:
                    reply = freshet.client.ask(COUNTS, {"project": pattern, "interval": "daily"})
                    seconds, calls = seconds + reply.seconds, calls + 1
                    if reply.status == 200:
                        break
                    if reply.status != 503 or calls == _MOST_CALLS:
                        raise RuntimeError(f"{pattern}: {reply.status} {reply.body[:500]!r}")
                again = _asked(freshet.client, Case(COUNTS, "daily", pattern))
                found[name].append((seconds, again.seconds, calls))
    return found


def _patterns_table(title: str, found: dict[str, list[tuple[float, float, int]]]) -> Table:
    rows: list[list[Cell]] = []
    for name, rounds in found.items():
        first, again, calls = zip(*rounds, strict=True)
        rows.append([name, median(first) * 1000, median(again) * 1000, max(calls)])
    return Table(
        f"usage.api-counts daily by pattern, {title}: ms",
        ["a pattern", "never seen", "asked again", "calls until 200"],
        rows,
        "Asked again with `Cache-Control: no-cache`. A search past the time limit of 10 s answers 503; it is asked "
        "again until it answers 200, and the seconds of all calls are added.",
    )


def _cases_table(title: str, times: Times, engines: list[Engine]) -> Table:
    names = ["Freshet", *(engine.name for engine in engines)]
    rows: list[list[Cell]] = []
    for case in CASES:
        size = "big" if case.project == BIG else "small"
        cells = [times[name, case] for name in names]
        rows.append([f"{case.label}, {size}", percentile(cells[0], 99) * 1000, *(median(c) * 1000 for c in cells)])
    for case in OWN_CASES:
        own = times["Freshet", case]
        rows.append([f"{case.label}, big", percentile(own, 99) * 1000, median(own) * 1000, *[None] * len(engines)])
    return Table(
        f"Queries, {title}: ms",
        ["endpoint, interval, project", "Freshet p99", *(f"{name} p50" for name in names)],
        rows,
        "Freshet over HTTP with `Cache-Control: no-cache`, the peers without HTTP. Every call of a case asks the same: "
        "usage.api-counts is that of a pattern known already, the next table has the first time.",
    )


def _chart(name: str, title: str, times: Times, engines: list[Engine]) -> Chart:
    cases = [case for case in CASES if case.project == BIG]
    names = ["Freshet", *(engine.name for engine in engines)]
    return Chart(
        name,
        f"Queries of the big project, {title}",
        "ms, p50",
        {name: [median(times[name, case]) * 1000 for case in cases] for name in names},
        [case.label for case in cases],
        logarithmic=True,
    )
