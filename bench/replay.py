"""`python -m bench replay`: a replay of many events while the live worker ingests and the API answers all the time."""

import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from kafka_broker import KafkaBroker
from service import Service

from bench import product
from bench.figures import Options, Result, Table
from bench.load import edge_events
from schema.settings import to_environment

EVENTS = 1_000_000
LIVE_EVERY, LIVE_EVENTS = 0.1, 100  # seconds, events
PATIENCE = 1800.0


class Pauses(threading.Thread):
    """Looks how long nothing is applied, while there is always something to apply."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self.stop = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        """Called by start()."""
        applied, since = self._service.applied(), time.perf_counter()
        while not self.stop.wait(0.05):
            if (now := self._service.applied()) != applied:
                applied, since = now, time.perf_counter()
            self.longest = max(self.longest, time.perf_counter() - since)


class Asker(threading.Thread):
    """Asks for answers one after the other, and counts their statuses."""

    def __init__(self, service: Service, project: str) -> None:
        super().__init__()
        self._service, self._project = service, project
        self.stop = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0

    def run(self) -> None:
        """Called by start()."""
        while not self.stop.is_set():
            began = time.perf_counter()
            self.statuses[self._service.get("/api/endpoints/logs.all", project=self._project).status] += 1
            self.slowest = max(self.slowest, time.perf_counter() - began)


def freshet(service: Service, command: str) -> float:
    """Run a command to its end; returns the seconds it took."""
    began = time.perf_counter()
    subprocess.run(
        [product.PYTHON, "-m", "ops", command], env={**os.environ, **to_environment(service.settings)}, check=True
    )
    return time.perf_counter() - began


def run(options: Options) -> Result:
    """Verify, replay under load, verify again."""
    events_wanted = options.events or EVENTS
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        for topic in ("edge", "functions"):
            kafka.create_topic(topic, 4, {"retention.ms": "-1"})
        now = time.time_ns() // 1000
        print(f"producing {events_wanted:,} events", flush=True)
        events = edge_events(events_wanted, now - events_wanted * 100)
        project, value = next(events)
        kafka.produce([("edge", None, project, value, None)])
        kafka.produce(("edge", None, key, value, None) for key, value in events)
        with Service(Path(name), kafka, "edge", "functions", python=product.PYTHON) as service:
            service.start("worker")
            service.start_api()
            service.wait_until_applied(PATIENCE)
            before = freshet(service, "verify")
            asker = Asker(service, project.decode())
            asker.start()
            pauses = Pauses(service)
            pauses.start()
            produced = threading.Event()
            live = threading.Thread(target=_produce, args=(kafka, produced))
            live.start()
            seconds = freshet(service, "replay")
            pauses.stop.set()
            produced.set()
            live.join()
            asker.stop.set()
            asker.join()
            service.wait_until_applied(PATIENCE)
            after = freshet(service, "verify")
    return Result(
        subject="replay",
        tables=[
            Table(
                f"Replay of {events_wanted:,} events while {LIVE_EVENTS / LIVE_EVERY:,.0f} events/s come in and "
                "answers are asked for",
                ["", "s"],
                [
                    ["verify, before: equal", before],
                    ["replay and swap", seconds],
                    ["verify, after: equal", after],
                    ["slowest answer meanwhile", asker.slowest],
                    ["longest time without a batch applied", pauses.longest],
                ],
                f"Answers by status: {', '.join(f'{n:,} × {status}' for status, n in sorted(asker.statuses.items()))}.",
            )
        ],
    )


def _produce(kafka: KafkaBroker, stop: threading.Event) -> None:
    seed = 2
    while not stop.wait(LIVE_EVERY):
        events = edge_events(LIVE_EVENTS, time.time_ns() // 1000, seed=seed)
        kafka.produce([("edge", None, key, value, None) for key, value in events])
        seed += 1
