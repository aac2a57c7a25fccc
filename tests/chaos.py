"""Chaos on a real Kafka: `python tests/chaos.py --minutes 60 --kills 300 --seed N --report FILE`.

While a producer writes without pause, faults drawn from a seed strike workers, broker, disk and store. After each
round, once all is applied, every table has to equal the oracle over the log: nothing lost, double or made up. Ends
with code 1 at the first difference. The seed fixes what strikes and for how long; the operating system decides what is
hit in the middle of what, so no two runs are the same.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from chaos_disk import small_disk
from chaos_faults import FAULTS, Stage, Strike
from chaos_fleet import Fleet
from chaos_recovery import Place
from chaos_report import Result, write_report
from chaos_tables import Difference, Expectation, compare
from chaos_writer import Writer
from confluent_kafka import KafkaException
from events import Traffic
from kafka_broker import KafkaBroker
from oracle import DAY, Record
from service import Service

from schema.settings import Settings, to_environment
from schema.tables import store_path

PARTITIONS = 4
ROUNDS_ON_ONE_LOG = 3
DRAIN_SECONDS, CALM_SECONDS = 180.0, 20.0
TICK_SECONDS, LOOK_SECONDS, ENDS_SECONDS = 0.03, 0.1, 0.3
MOST_AT_ONCE = 3
KEEP_ALL: dict[str, Any] = {
    setting.name: 36_500 * DAY for setting in fields(Settings) if setting.name.startswith("keep_")
}
BAG = Counter({kind: fault.often for kind, fault in FAULTS.items()})
KILLS_A_BAG = sum(count for kind, count in BAG.items() if kind.startswith("SIGKILL of a worker"))


class Stall(AssertionError):
    """What is in the log is not applied, though all faults are over."""


class Chaos:
    """A run. `rounds` goes on one log and store, `run` on one after the other."""

    def __init__(self, kafka: KafkaBroker, folder: Path, seed: int, *, lock_seconds: float, most_a_second: int) -> None:
        self.kafka, self.folder = kafka, folder
        self.lock_seconds, self.most_a_second = lock_seconds, most_a_second
        self.chance = random.Random(seed)
        self.result = Result(seed)
        self.recoveries = self.result.recoveries
        self.gap = 2.0
        """The mean time between faults, in seconds."""
        self.calm = 0.0
        """The share of the faults before and behind which all recover, so that it shows how long that takes."""
        self._goal: tuple[float, int] | None = None
        self._bag: list[str] = []
        self._active: list[tuple[str, Strike]] = []
        self._looked = self._told = 0.0

    def run(self, minutes: float, kills: int) -> None:
        """Rounds until the time is over and so many workers were killed. Raises Difference or Stall."""
        until = time.monotonic() + 60 * minutes
        self.calm, self._goal = 0.12, (until, kills)
        while time.monotonic() < until or self.result.worker_kills < kills:
            with self.stage() as (stage, expectation):
                for _ in range(ROUNDS_ON_ONE_LOG):
                    if time.monotonic() < until or self.result.worker_kills + stage.worker_kills < kills:
                        self.round(stage, expectation, self._draw(BAG.total() // 2))

    @contextmanager
    def stage(self) -> Iterator[tuple[Stage, Expectation]]:
        """A fresh pair of topics, an empty store, two workers and a writer."""
        self.result.logs += 1
        name = f"chaos-{self.result.logs}"
        folder = self.folder / name
        topics = f"edge-{name}", f"functions-{name}"
        for topic in topics:
            self.kafka.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        with ExitStack() as stack:
            disk = small_disk(folder / "data")
            stack.callback(disk.close)
            self.result.disk = disk.means
            service = Service(folder, self.kafka, *topics)
            service.settings = replace(service.settings, **KEEP_ALL)
            traffic = Traffic(self.chance.getrandbits(32), time.time_ns() // 1000, *topics)
            fleet = Fleet(folder, to_environment(service.settings))
            stack.callback(fleet.kill)
            writer = Writer(self.kafka.bootstrap, traffic, self.chance.getrandbits(32), most=self.most_a_second)
            writer.start()
            stack.callback(writer.close)
            stage = Stage(service, fleet, writer, disk, PARTITIONS, self.lock_seconds)
            expectation = Expectation(service.log_of_topics(), *topics)
            try:
                yield stage, expectation
                self._end(stage)
            except BaseException:
                self._keep(stage)
                raise
        for topic in topics:
            self.kafka.delete_topic(topic)
        shutil.rmtree(folder)

    def round(self, stage: Stage, expectation: Expectation, kinds: Sequence[str]) -> None:
        """Strike with each kind, let all end, and compare. Raises Difference or Stall."""
        stage.hurry = False
        stage.writer.resume()
        left = list(kinds)
        while left:
            self._pace(stage)
            alone = self.chance.random() < self.calm
            self._let_pass(stage, self.chance.expovariate(1 / self.gap))
            self._settle(stage, alone)
            struck = next((kind for kind in left if self._strike(stage, kind)), None)
            if struck is not None:
                left.remove(struck)
                self._settle(stage, alone)
            elif not self._active:
                break
        self._bag += left  # those that could not strike
        stage.hurry = True
        while self._active:
            self._tick(stage)
        self._let_pass(stage, 2 * LOOK_SECONDS)
        stage.writer.pause()
        ends = self._drain(stage)
        self._compare(stage, expectation, ends)
        self.result.rounds += 1

    def _draw(self, count: int) -> list[str]:
        """The next faults out of the bag, which is filled anew when it is empty."""
        if len(self._bag) < count:
            more = list(BAG.elements())
            self.chance.shuffle(more)
            self._bag += more
        drawn, self._bag = self._bag[:count], self._bag[count:]
        return drawn

    def _strike(self, stage: Stage, kind: str) -> bool:
        strike = FAULTS[kind].strike(stage, self.chance)
        self._active.append((kind, strike))
        struck = self._step(stage, kind, strike)
        if (kind, strike) in self._active:
            self.recoveries.disturb()
        return struck

    def _step(self, stage: Stage, kind: str, strike: Strike) -> bool:
        """One step of a fault; False where it could not strike."""
        try:
            next(strike)
        except StopIteration as end:
            self._active.remove((kind, strike))
            struck: bool = end.value
            if struck:
                self.result.faults[kind] += 1
                self.recoveries.disturb()
                self.recoveries.begin(kind, stage.service.applied(), disturbed=bool(self._active))
            return struck
        return True

    def _tick(self, stage: Stage) -> None:
        stage.writer.check()
        stage.fleet.tend()
        for kind, strike in list(self._active):
            self._step(stage, kind, strike)
        now = time.monotonic()
        if self.recoveries.awaited and now - self._looked > LOOK_SECONDS:
            self._looked = now
            self.recoveries.look(stage.service.applied())
        if now - self._told > (1 if sys.stdout.isatty() else 20):
            self._told = now
            self._tell(stage)
        time.sleep(TICK_SECONDS)

    def _settle(self, stage: Stage, alone: bool) -> None:
        """Wait until another fault may be, or there is none whose end or recovery is awaited."""
        until = time.monotonic() + CALM_SECONDS
        while len(self._active) >= MOST_AT_ONCE or (
            alone and (self._active or self.recoveries.awaited) and time.monotonic() < until
        ):
            self._tick(stage)

    def _let_pass(self, stage: Stage, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tick(stage)

    def _drain(self, stage: Stage) -> Mapping[Place, int]:
        """Wait until all that is in the log has been applied; returns its ends.

        The ends are looked up again and again: a transaction's end is told before its markers are in the log.
        """
        since, ends = time.monotonic(), stage.service.ends()
        while not (applied := stage.service.applied()).items() >= ends.items():
            if time.monotonic() - since > DRAIN_SECONDS:
                behind = {place: (applied.get(place), end) for place, end in ends.items() if applied.get(place) != end}
                raise Stall(f"after {DRAIN_SECONDS:.0f} s without faults, (applied, end) of partitions: {behind}")
            self._let_pass(stage, ENDS_SECONDS)
            ends = stage.service.ends()
        self.recoveries.forget()
        self.result.drains.append(time.monotonic() - since)
        return ends

    def _compare(self, stage: Stage, expectation: Expectation, ends: Mapping[Place, int]) -> None:
        before = expectation.events
        for topic in (stage.service.edge, stage.service.functions):
            expectation.feed(Record(*record) for record in self.kafka.read_all(topic))
        self.result.compared += compare(store_path(stage.service.settings.data, 1), expectation, ends)
        self.result.events += expectation.events - before

    def _end(self, stage: Stage) -> None:
        """All workers leave, and what the log's rounds came to is added up."""
        stage.fleet.wanted = 0
        for worker in stage.fleet.workers:
            worker.signal(signal.SIGTERM, "SIGTERM at the end of a log")
        until = time.monotonic() + 30
        while stage.fleet.workers and time.monotonic() < until:
            self._tick(stage)
        self._add_up(stage)

    def _add_up(self, stage: Stage) -> None:
        self.result.messages += stage.writer.written
        self.result.worker_kills += stage.worker_kills
        self.result.broker_kills += stage.broker_kills
        self.result.most_partitions = max(self.result.most_partitions, stage.partitions)
        self.result.stops += stage.stops
        self.result.ends += stage.fleet.ends

    def _keep(self, stage: Stage) -> None:
        """After a failure, keep the data folder beside the logs before its disk is unmounted."""
        self._add_up(stage)
        for _, strike in self._active:
            strike.close()
        data = stage.service.settings.data
        shutil.copytree(data, data.with_name("data-kept"), ignore=shutil.ignore_patterns("ballast"))

    def _pace(self, stage: Stage) -> None:
        """Choose the gap between faults so that the kills asked for come about in time, with some to spare."""
        if self._goal is not None:
            until, kills = self._goal
            left = max(1, kills - self.result.worker_kills - stage.worker_kills)
            faults = 1.3 * left / KILLS_A_BAG * BAG.total()
            self.gap = min(8.0, max(0.2, 0.6 * (until - time.monotonic()) / faults))

    def _tell(self, stage: Stage) -> None:
        result = self.result
        kinds = ", ".join(f"{count} {kind}" for kind, count in result.faults.items())
        line = (
            f"{result.seconds:5.0f} s, log {result.logs}, round {result.rounds + 1}: "
            f"{result.worker_kills + stage.worker_kills} kills, {stage.writer.written} messages, "
            f"{result.compared.total()} rows compared; now {[kind for kind, _ in self._active]}; {kinds}"
        )
        sys.stdout.write(f"\r\x1b[K{line[:200]}" if sys.stdout.isatty() else f"{line}\n")
        sys.stdout.flush()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Chaos on a real Kafka, every table held against the log.")
    parser.add_argument("--minutes", type=float, default=60, help="how long at least")
    parser.add_argument("--kills", type=int, default=300, help="how many workers are killed at least")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--lock-seconds", type=float, default=30, help="how long the store is held locked")
    parser.add_argument("--most-a-second", type=int, default=1000, help="messages written a second, at most")
    parser.add_argument("--report", type=Path, help="where to write the report (Markdown)")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="freshet-chaos-"))
    with KafkaBroker(folder / "kafka") as kafka:
        chaos = Chaos(kafka, folder, asked.seed, lock_seconds=asked.lock_seconds, most_a_second=asked.most_a_second)
        try:
            chaos.run(asked.minutes, asked.kills)
        except (Difference, Stall, KafkaException, RuntimeError) as error:
            chaos.result.difference = f"{type(error).__name__}: {error}"
            sys.stdout.write(f"\n{type(error).__name__}: {error}\nthe store and the logs are kept in {folder}\n")
    result = chaos.result
    if asked.report is not None:
        write_report(asked.report, result)
    if result.difference:
        return 1
    shutil.rmtree(folder)
    summary = {"rounds": result.rounds, "kills": result.worker_kills, "compared": result.compared.total()}
    sys.stdout.write(f"\nno difference: {json.dumps(summary)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
