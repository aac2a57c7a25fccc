"""`python -m bench http`: requests/s and their p99 from one API worker, beside bare Falcon sending the same bytes.

Bare Falcon runs under the same gunicorn worker class and settings, access log included. 16 kept connections; both are
asked in turn, round after round; medians. Uncached answers are asked for with `Cache-Control: no-cache`, those of the
endpoints that keep answers for 32 projects in turn: whoever asks for the same at once shares a computation. There the
bare application sends one of the 32 answers, that of median size.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from service import free_port, wait_for

from bench import product
from bench.answers import FRESH, Api, Client, api, path
from bench.cases import COUNTS, LOGS, STATS, Case
from bench.figures import Cell, Chart, Options, Result, Table, median
from bench.hammer import CONNECTIONS, client, hammer
from bench.load import BIG, REFS
from bench.stores import Plan, build
from bench.usage import Meter, tree
from ops.bars import Bars
from schema.settings import Settings
from schema.timestamps import HOUR

EVENTS, SHORT_EVENTS = 200_000, 50_000
ROUNDS, SHORT_ROUNDS = 3, 2
_SECONDS, _SHORT_SECONDS = 5.0, 2.0
_IN_TURN = 2 * CONNECTIONS
KINDS = (
    ("cached, invocation-stats 1hr", Case(STATS, "1hr", BIG), False),
    ("cached, api-counts minutely", Case(COUNTS, "minutely", BIG), False),
    ("uncached, logs.all, 100 rows", Case(LOGS, "FREE", BIG), True),
    ("uncached, invocation-stats 1day", Case(STATS, "1day", BIG), True),
    ("uncached, api-counts minutely", Case(COUNTS, "minutely", BIG), True),
)


class _Sample(NamedTuple):
    """Requests/s, the 99th percentile of their seconds, CPU seconds of the server's processes a request."""

    rate: float
    p99: float
    cpu: float


def run(options: Options) -> Result:
    """Interleaved rounds of Freshet and bare Falcon for each kind of answer."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    seconds = _SHORT_SECONDS if options.short else _SECONDS
    rounds = options.rounds or (SHORT_ROUNDS if options.short else ROUNDS)
    now = time.time_ns() // 1000
    rows: list[list[Cell]] = []
    with tempfile.TemporaryDirectory() as name:
        plan = Plan(Path(name) / "data", now, 6 * HOUR, events, events // 4)
        build(plan)
        with api(plan.data) as freshet, Bars() as bars:
            bars.watcher.step("asking", len(KINDS))
            for kind, case, fresh in KINDS:
                rows.append([kind, *_beside_bare(freshet, case, fresh, seconds, rounds, Path(name))])
                bars.watcher.done(1)
    table = Table(
        f"HTTP: one worker, {CONNECTIONS} kept connections",
        [
            *("", "bytes", "requests/s", "p99 ms", "CPU µs/request"),
            *("bare Falcon requests/s", "p99 ms", "CPU µs/request", "Freshet's share"),
        ],
        rows,
        f"The client is {client()}. Uncached statistics and counts are those of {_IN_TURN} projects in turn.",
    )
    chart = Chart(
        "http",
        "HTTP",
        "requests/s",
        {"Freshet": [_number(row[2]) for row in rows], "bare Falcon": [_number(row[5]) for row in rows]},
        [kind for kind, _, _ in KINDS],
    )
    return Result(subject="http", tables=[table], charts=[chart])


def _beside_bare(freshet: Api, case: Case, fresh: bool, seconds: float, rounds: int, folder: Path) -> list[Cell]:
    listen, key = freshet.settings.listen, freshet.client.key
    shared = fresh and case.endpoint != LOGS
    cases = [case._replace(project=ref) for ref in REFS[:_IN_TURN]] if shared else [case]
    queries = [path(asked.endpoint, asked.parameters) for asked in cases]
    bodies = [freshet.client.ask(asked.endpoint, asked.parameters, FRESH if fresh else {}).body for asked in cases]
    body = sorted(bodies, key=len)[len(bodies) // 2]
    ours: list[_Sample] = []
    bares: list[_Sample] = []
    with _bare(folder, body) as (bare, process):
        for _ in range(rounds):
            ours.append(_hammered(listen, queries, key, fresh, seconds, freshet.process.pid))
            bares.append(_hammered(bare, queries, key, fresh, seconds, process.pid))
    own, other = (_Sample(*map(median, zip(*samples, strict=True))) for samples in (ours, bares))
    cells: list[Cell] = [cell for s in (own, other) for cell in (round(s.rate), s.p99 * 1000, s.cpu * 1e6)]
    return [len(body), *cells, f"{own.rate / other.rate:.0%}"]


def _hammered(listen: str, queries: list[str], key: str, fresh: bool, seconds: float, server: int) -> _Sample:
    meter = Meter(own=tree(server)[1:])
    load = hammer([f"http://{listen}{query}" for query in queries], key, fresh, seconds)
    return _Sample(*load, meter.read()[1]["own"] / (load.rate * seconds))


@contextmanager
def _bare(folder: Path, body: bytes) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Bare Falcon sending these bytes; gives where it listens, and its process."""
    file, listen = folder / "body", f"127.0.0.1:{free_port()}"
    file.write_bytes(body)
    arguments = ["-m", "bench.peers.bare_falcon", str(file), listen]
    process = product.start(arguments, Settings(), folder / "bare.log")
    try:
        wait_for("bare Falcon", lambda: _answers(listen))
        yield listen, process
    finally:
        process.terminate()
        process.wait(30)


def _answers(listen: str) -> bool:
    client = Client(listen, "")
    try:
        return client.ask("anything", {}).status == 200
    except OSError:
        return False
    finally:
        client.close()


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell
