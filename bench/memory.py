"""`python -m bench memory --minutes M`: resident memory of worker and API, idle, at full speed, and over time.

Idle: five seconds after the start. Full speed: while a backlog is worked off and the API is asked all the time. Then a
steady load for as many minutes as are asked for, looked at up to ten times a minute.
"""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench import backlog, pace
from bench.cases import CASES
from bench.figures import Cell, Chart, Options, Result, Table, how_many, median
from bench.live import Live, live
from bench.load import edge_events
from bench.usage import memory, peak_memory, tree
from ops.bars import Bars

EVENTS, SHORT_EVENTS = 1_000_000, 100_000
MINUTES, SHORT_MINUTES = 5.0, 0.2
_RATE = 500  # events/s of the steady load
_IDLE_SECONDS = 5.0
_LOOK_EVERY = 6.0
_PATIENCE = 600.0


class Sample(NamedTuple):
    """Resident memory in MB of the worker and of the API's serving process."""

    worker: float
    api: float


def run(options: Options) -> Result:
    """Idle, backlog, steady load."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    minutes = options.minutes if options.minutes is not None else (SHORT_MINUTES if options.short else MINUTES)
    with tempfile.TemporaryDirectory() as name, live(Path(name)) as freshet:
        time.sleep(_IDLE_SECONDS)
        idle = _sample(freshet)
        start = time.time_ns() // 1000 - events * 100
        to = backlog.holding_producer(freshet.kafka, "backlog")
        backlog.fill(to, "edge", edge_events(events, start), events)
        to.commit_transaction()
        busy = _until_applied(freshet, events)
        steady = _steady(freshet, minutes * 60)
        peak = Sample(peak_memory(freshet.worker.pid), max(map(peak_memory, _serving(freshet))))
    tenth = max(1, len(steady) // 10)
    rows: list[list[Cell]] = [
        [what, sample.worker, sample.api]
        for what, sample in {
            "idle": idle,
            f"median during a backlog of {how_many(events)} messages": _middle(busy),
            f"first tenth of {minutes:g} min at {_RATE:,} events/s": _middle(steady[:tenth]),
            "last tenth of it": _middle(steady[-tenth:]),
            "peak": peak,
        }.items()
    ]
    every = minutes / max(1, len(steady))
    chart = Chart(
        "memory",
        f"Memory at {_RATE:,} events/s",
        "MB by minute",
        {"worker": [sample.worker for sample in steady], "API": [sample.api for sample in steady]},
        [],
        x=[number * every for number in range(len(steady))],
    )
    return Result(subject="memory", tables=[Table("Memory, MB", ["", "worker", "API"], rows)], charts=[chart])


def _serving(freshet: Live) -> list[int]:
    """The API's serving processes, without gunicorn's master."""
    return tree(freshet.api.process.pid)[1:]


def _sample(freshet: Live) -> Sample:
    return Sample(memory(freshet.worker.pid), max(map(memory, _serving(freshet))))


def _middle(samples: list[Sample]) -> Sample:
    return Sample(*map(median, zip(*samples, strict=True)))


def _until_applied(freshet: Live, events: int) -> list[Sample]:
    """Ask for answers while the backlog is worked off."""
    samples: list[Sample] = []
    deadline = time.monotonic() + _PATIENCE
    with Bars() as bars:
        bars.watcher.step("working off the backlog", events)
        done = 0
        while done < events:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{done:,} of {events:,} events were applied in {_PATIENCE:g} s")
            _ask_all(freshet)
            samples.append(_sample(freshet))
            before, done = done, freshet.applied()
            bars.watcher.done(done - before)
    return samples


def _steady(freshet: Live, seconds: float) -> list[Sample]:
    load = pace.start(freshet.kafka.bootstrap, "edge", _RATE, seconds)
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    with Bars() as bars:
        bars.watcher.step("steady load", int(seconds / _LOOK_EVERY) + 1)
        while time.monotonic() < end:
            _ask_all(freshet)
            samples.append(_sample(freshet))
            bars.watcher.done(1)
            time.sleep(min(_LOOK_EVERY, seconds / 4))
    if load.wait(60):
        raise RuntimeError(f"the load of {_RATE:,} events/s broke off")
    return samples


def _ask_all(freshet: Live) -> None:
    for case in CASES:
        freshet.api.client.ask(case.endpoint, case.parameters)
