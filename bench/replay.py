"""`python -m bench replay`: a replay of many events while the live worker ingests and the API answers all the time."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from kafka_broker import KafkaBroker
from service import Service

from bench.load import edge_events
from schema.settings import to_environment

EVENTS = int(os.environ.get("EVENTS", "1000000"))
LIVE_EVERY, LIVE_EVENTS = 1.0, 1000  # seconds, events
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
        [sys.executable, "-m", "ops", command], env={**os.environ, **to_environment(service.settings)}, check=True
    )
    return time.perf_counter() - began


def main() -> None:
    """Verify, replay under load, verify again; prints what it saw."""
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        for topic in ("edge", "functions"):
            kafka.create_topic(topic, 4, {"retention.ms": "-1"})
        now = time.time_ns() // 1000
        print(f"producing {EVENTS:,} events", flush=True)
        events = edge_events(EVENTS, now - EVENTS * 100)
        project, value = next(events)
        kafka.produce([("edge", None, project, value, None)])
        kafka.produce(("edge", None, key, value, None) for key, value in events)
        with Service(Path(name), kafka, "edge", "functions") as service:
            service.start("worker")
            service.start_api()
            service.wait_until_applied(PATIENCE)
            print(f"verify before: equal, {freshet(service, 'verify'):.1f} s", flush=True)
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
            print(f"replay: {seconds:.1f} s, answers by status {dict(asker.statuses)}, slowest {asker.slowest:.2f} s")
            print(
                f"longest time without a batch applied: {pauses.longest:.1f} s; {LIVE_EVENTS} come every {LIVE_EVERY} s"
            )
            print(f"verify after: equal, {freshet(service, 'verify'):.1f} s", flush=True)


def _produce(kafka: KafkaBroker, stop: threading.Event) -> None:
    seed = 2
    while not stop.wait(LIVE_EVERY):
        events = edge_events(LIVE_EVENTS, time.time_ns() // 1000, seed=seed)
        kafka.produce([("edge", None, key, value, None) for key, value in events])
        seed += 1
