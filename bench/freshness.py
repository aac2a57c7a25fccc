"""`python -m bench freshness`: how long an event takes from its producer to an answer, while many others come in.

Every 25 ms a probe is produced (its own project, linger 0): its time begins with the call of `produce`. A client asks
logs.all for that project over and over on one connection, 2 ms after each answer; the time ends when the first answer
that holds the probe has been read. So what is measured holds the broker, the worker, the API, and the asking itself.
A new store's dictionary has been trained before.
"""

import tempfile
import threading
import time
from pathlib import Path

import msgspec
from confluent_kafka import Producer
from service import wait_for

from bench import backlog, pace
from bench.cases import LOGS
from bench.figures import Cell, Chart, Options, Result, Table, percentile
from bench.live import Live, live
from bench.load import edge_events
from bench.usage import Meter
from ops.bars import Bars

RATES = (1_000, 10_000)  # events/s
SECONDS, SHORT_SECONDS = 30.0, 8.0
_PROBE_EVERY, _PAUSE = 0.025, 0.002  # seconds
_LONGEST = 30.0  # to wait for the last probe
_PROJECT = "freshness-probe"
_WARM = 5000  # events before the measurement: a new store trains its dictionary on the first 2,000


class _Row(msgspec.Struct):
    id: str


class _Answer(msgspec.Struct):
    result: list[_Row]


class Probes(threading.Thread):
    """Produces probes; `produced` tells when, by id."""

    def __init__(self, bootstrap: str, seconds: float) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._seconds = seconds
        self.produced: dict[str, float] = {}

    def run(self) -> None:
        """Called by start()."""
        end = time.perf_counter() + self._seconds
        while (now := time.perf_counter()) < end:
            name = f"probe-{len(self.produced)}"
            event = {"id": name, "timestamp": time.time_ns() // 1000, "project": _PROJECT, "event_message": name}
            self.produced[name] = now
            self._producer.produce("edge", msgspec.json.encode(event), name.encode())
            self._producer.poll(0)
            time.sleep(_PROBE_EVERY)
        self._producer.flush(10)


def run(options: Options) -> Result:
    """Each rate in turn, on a Freshet of its own."""
    seconds = SHORT_SECONDS if options.short else SECONDS
    rates = RATES if options.events is None else (max(1, int(options.events / seconds)),)
    rows: list[list[Cell]] = []
    with Bars() as bars:
        for rate in rates:
            bars.watcher.step(f"freshness at {rate:,} events/s", 0)
            with tempfile.TemporaryDirectory() as name, live(Path(name)) as freshet:
                rows.append([f"{rate:,}", *_measured(freshet, rate, seconds)])
    return Result(
        subject="freshness",
        tables=[
            Table(
                f"From produce to visible, ms, over {seconds:g} s at each rate",
                ["events/s", "p50", "p99", "longest", "probes", "worker, % of a core", "events/s applied meanwhile"],
                rows,
                "The client asks again 2 ms after each answer. What is applied has the 40 probes a second in it.",
            )
        ],
        charts=[
            Chart(
                "freshness",
                "From produce to visible",
                "ms",
                {name: [_number(row[place]) for row in rows] for place, name in ((1, "p50"), (2, "p99"))},
                [f"{row[0]} events/s" for row in rows],
            )
        ],
    )


def _measured(freshet: Live, rate: int, seconds: float) -> list[Cell]:
    backlog.fill(backlog.producer(freshet.kafka), "edge", edge_events(_WARM, time.time_ns() // 1000), _WARM)
    wait_for("the first events", lambda: freshet.applied() >= _WARM)
    load = pace.start(freshet.kafka.bootstrap, "edge", rate, seconds + 2)
    time.sleep(1)  # until the load flows
    probes = Probes(freshet.kafka.bootstrap, seconds)
    meter = Meter(worker=[freshet.worker.pid])
    applied = freshet.applied()
    probes.start()
    times = _seen(freshet, probes)
    wall, cpu = meter.read()
    applied = freshet.applied() - applied
    probes.join()
    if load.wait(60):
        raise RuntimeError(f"the load of {rate:,} events/s broke off")
    shown = [value * 1000 for value in times]
    return [
        percentile(shown, 50),
        percentile(shown, 99),
        max(shown),
        len(shown),
        cpu["worker"] / wall * 100,
        round(applied / wall),
    ]


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell


def _seen(freshet: Live, probes: Probes) -> list[float]:
    """Seconds from produce to visible, of every probe."""
    decode = msgspec.json.Decoder(_Answer).decode
    times: dict[str, float] = {}
    last = time.perf_counter()
    while probes.is_alive() or len(times) < len(probes.produced):
        body = freshet.api.client.ask(LOGS, {"project": _PROJECT}).body
        now = time.perf_counter()
        for row in decode(body).result:
            if row.id not in times:
                times[row.id] = now - probes.produced[row.id]
                last = now
        if now - last > _LONGEST:
            raise RuntimeError(f"{len(probes.produced) - len(times)} probes were not seen for {_LONGEST:g} s")
        time.sleep(_PAUSE)
    return list(times.values())
