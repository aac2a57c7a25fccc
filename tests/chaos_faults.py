"""The faults. Each is a generator: it strikes, yields until its time is over, mends what it broke, and returns.

It returns False where it could not strike just now. What it decides comes from the `chance` that it is given.
"""

import random
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chaos_disk import Disk
from chaos_fleet import MOST_WORKERS, Fleet
from chaos_worker import DIE, STOP, Fired, fired_markers
from chaos_writer import Writer
from confluent_kafka import KafkaException
from kafka_broker import BrokerError
from service import Service

from schema.tables import store_path

MOST_PARTITIONS = 12
STOP_SECONDS = 60.0  # how long a worker may take over SIGTERM before it gets SIGKILL
MARKER_SECONDS = 90.0  # how long a marker may take to be written, read and fire
TAKEOVER_SECONDS = 30.0  # how long others may take to apply the batch of one that is frozen
FELT_SECONDS = 25.0  # how long a fault of the store waits for a worker to meet it
Strike = Generator[None, None, bool]


@dataclass
class Stage:
    """All that a fault can reach."""

    service: Service
    fleet: Fleet
    writer: Writer
    disk: Disk
    partitions: int
    lock_seconds: float
    broker_up: bool = True
    hurry: bool = False
    """Whether the round is ending: what lasts is to be cut short."""
    busy: set[str] = field(default_factory=set)
    """What is under way of which there can be but one."""
    worker_kills: int = 0
    broker_kills: int = 0
    stops: list[float] = field(default_factory=list)
    """How long workers took over SIGTERM, in seconds."""
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))


def wait(stage: Stage, seconds: float, *, whatever: bool = False) -> Generator[None, None, None]:
    """Let time pass; a round that ends cuts it short, unless it must pass `whatever` comes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (whatever or not stage.hurry):
        yield


def kill(stage: Stage, chance: random.Random) -> Strike:
    """SIGKILL of a worker at any moment, frozen ones included."""
    able = [worker for worker in stage.fleet.workers if worker.alive and not worker.ending]
    if not able:
        return False
    victim = chance.choice(able)
    victim.signal(signal.SIGKILL, "SIGKILL")
    stage.worker_kills += 1
    while victim.alive:
        yield
    return True


def kill_while_writing(stage: Stage, chance: random.Random) -> Strike:
    """SIGKILL of a worker within some milliseconds after a commit was seen, when the next is likely under way."""
    before, until = stage.service.applied(), time.monotonic() + 5
    while stage.service.applied() == before and time.monotonic() < until:
        yield
    time.sleep(chance.random() * 0.05)
    return (yield from kill(stage, chance))


def _marked(what: str) -> Callable[[Stage, random.Random], Strike]:
    def strike(stage: Stage, chance: random.Random) -> Strike:
        struck = yield from _mark(stage, what)
        stage.worker_kills += struck is not None
        return struck is not None

    return strike


def _mark(stage: Stage, what: str) -> Generator[None, None, Fired | None]:
    """Have a marker written, and wait until it has fired."""
    if "marker" in stage.busy or not stage.broker_up:
        return None
    stage.busy.add("marker")
    number, until = stage.writer.mark(what), time.monotonic() + MARKER_SECONDS
    try:
        while (struck := fired_markers(stage.fleet.fired).get(number)) is None and time.monotonic() < until:
            yield
        return struck
    finally:
        stage.busy.discard("marker")


def terminate(stage: Stage, chance: random.Random) -> Strike:
    """SIGTERM of a worker; the supervisor starts another."""
    victim = stage.fleet.pick(chance)
    if victim is None:
        return False
    victim.signal(signal.SIGTERM, "SIGTERM")
    since = time.monotonic()
    while victim.alive:
        if time.monotonic() - since > STOP_SECONDS and victim.ending == "SIGTERM":
            victim.signal(signal.SIGKILL, f"SIGTERM, and SIGKILL after {STOP_SECONDS:.0f} s")
        yield
    stage.stops.append(time.monotonic() - since)
    return True


def freeze(stage: Stage, chance: random.Random) -> Strike:
    """SIGSTOP of a worker for longer than its session, then SIGCONT: it comes back as a zombie."""
    victim = stage.fleet.pick(chance)
    if victim is None:
        return False
    victim.signal(signal.SIGSTOP)
    victim.frozen = True
    yield from wait(stage, stage.service.settings.session_seconds + chance.uniform(1, 4), whatever=True)
    victim.thaw()
    return True


def freeze_with_batch(stage: Stage, chance: random.Random) -> Strike:
    """The same, of a worker that holds a batch, until another one has applied that."""
    if stage.fleet.wanted == 1:
        return False
    struck = yield from _mark(stage, STOP)
    victim = next((worker for worker in stage.fleet.workers if struck and worker.process.pid == struck.process), None)
    if struck is None or victim is None:
        return False
    victim.frozen = True
    place, until = (struck.topic, struck.partition), time.monotonic() + TAKEOVER_SECONDS
    before = stage.service.applied().get(place)
    while stage.service.applied().get(place) == before and time.monotonic() < until and victim.alive:
        yield
    victim.thaw()
    return True


def break_broker(stage: Stage, chance: random.Random) -> Strike:
    """SIGKILL of the broker, and a start on the same data."""
    if not stage.broker_up or "topics" in stage.busy:
        return False
    stage.broker_up = False
    stage.service.kafka.kill()
    stage.broker_kills += 1
    yield from wait(stage, chance.uniform(0, 8))
    yield from _done(stage.threads.submit(stage.service.kafka.start))
    stage.broker_up = True
    return True


def join(stage: Stage, chance: random.Random) -> Strike:
    """One worker more."""
    if stage.fleet.wanted == MOST_WORKERS:
        return False
    stage.fleet.wanted += 1
    while len(stage.fleet.workers) < stage.fleet.wanted and not stage.hurry:
        yield
    return True


def leave(stage: Stage, chance: random.Random) -> Strike:
    """SIGTERM of a worker for good."""
    if stage.fleet.wanted == 1:
        return False
    stage.fleet.wanted -= 1
    return (yield from terminate(stage, chance))


def add_partitions(stage: Stage, chance: random.Random) -> Strike:
    """One to three partitions more for each topic."""
    if stage.partitions == MOST_PARTITIONS or not stage.broker_up or "topics" in stage.busy:
        return False
    stage.busy.add("topics")
    total = min(MOST_PARTITIONS, stage.partitions + chance.randint(1, 3))
    try:
        for topic in (stage.service.edge, stage.service.functions):
            yield from _done(stage.threads.submit(stage.service.kafka.add_partitions, topic, total))
    except (KafkaException, BrokerError):
        return False
    finally:
        stage.busy.discard("topics")
    stage.partitions = total
    return True


def fill_disk(stage: Stage, chance: random.Random) -> Strike:
    """No byte is left for the store, until a worker has met that and some seconds more."""
    if "disk" in stage.busy or not any(worker.reading for worker in stage.fleet.workers):
        return False
    stage.busy.add("disk")
    met, felt = _disk_errors(stage), False
    until = time.monotonic() + FELT_SECONDS
    _empty_log(stage)
    try:
        while not felt and time.monotonic() < until:
            stage.disk.fill(stage.fleet.workers)
            yield
            felt = _disk_errors(stage) > met
        for _ in wait(stage, chance.uniform(1, 4)):
            stage.disk.fill(stage.fleet.workers)
            yield
    finally:
        stage.disk.free(stage.fleet.workers)
        stage.busy.discard("disk")
    return felt


def _empty_log(stage: Stage) -> None:
    """Have the next commits need room: otherwise they may go on for long where SQLite's log has been before."""
    with suppress(sqlite3.OperationalError), closing(_opened(stage, timeout=1)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _opened(stage: Stage, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(store_path(stage.service.settings.data, 1), timeout=timeout, isolation_level=None)


def _disk_errors(stage: Stage) -> int:
    return stage.fleet.said("disk is full") + stage.fleet.said("disk I/O error")


def lock_store(stage: Stage, chance: random.Random) -> Strike:
    """Another process holds the store's write lock."""
    if "lock" in stage.busy:
        return False
    stage.busy.add("lock")
    try:
        with closing(_opened(stage, timeout=0)) as db:
            until = time.monotonic() + FELT_SECONDS
            while not _locked(db):
                if time.monotonic() > until:
                    return False
                yield
            yield from wait(stage, stage.lock_seconds)
    finally:
        stage.busy.discard("lock")
    return True


def _locked(db: sqlite3.Connection) -> bool:
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def _done(future: Future[Any]) -> Generator[None, None, None]:
    while not future.done():
        yield
    future.result()


class Fault(NamedTuple):
    """A kind of fault, and how often it strikes among the others in a long run."""

    strike: Callable[[Stage, random.Random], Strike]
    often: int


FAULTS = {
    "SIGKILL of a worker": Fault(kill, 9),
    "SIGKILL of a worker while it writes": Fault(kill_while_writing, 8),
    **{f"SIGKILL of a worker {what.removeprefix('die ')}": Fault(_marked(what), 3) for what in DIE},
    "SIGTERM of a worker": Fault(terminate, 2),
    "SIGSTOP past the session, SIGCONT": Fault(freeze, 1),
    "SIGSTOP before step 1, SIGCONT": Fault(freeze_with_batch, 2),
    "SIGKILL of the broker": Fault(break_broker, 1),
    "a worker joins": Fault(join, 2),
    "a worker leaves": Fault(leave, 2),
    "partitions added": Fault(add_partitions, 1),
    "disk full": Fault(fill_disk, 1),
    "store locked by another process": Fault(lock_store, 1),
}
