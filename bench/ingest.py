"""`python -m bench ingest`: from a backlog in Kafka to committed tables, beside peers that write the same and a limit.

Edge events of 2.5 KB in four partitions, read by each contender in turn, round after round; medians. A contender's
time runs from the first events that it has committed to the last, or to the end of its time, so its start-up does not
count. CPU is that of its processes in the same time, the broker's is stated beside it. Two workers get a backlog that
a transaction holds back until both have joined.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka_broker import KafkaBroker

from bench import backlog, product
from bench.figures import Cell, Chart, Options, Result, Table, median
from bench.load import edge_events, function_events
from bench.peers.tally import Tally
from bench.usage import Meter, peak_memory
from ops.progress import read_progress
from schema.settings import Settings

EVENTS, SHORT_EVENTS = 400_000, 100_000
ROUNDS, SHORT_ROUNDS = 3, 2
_LONGEST, _SHORT_LONGEST = 15.0, 5.0  # seconds of a round
_PATIENCE = 60.0
_LOOK_EVERY = 0.02


class Sample(NamedTuple):
    """One round of one contender: events/s, CPU µs an event of its own and of the broker, peak memory in MB."""

    rate: float
    cpu: float
    broker_cpu: float
    memory: float


class Contender(NamedTuple):
    """One that reads the topic; `start` gives its processes, `count` the events that it has committed."""

    name: str
    start: Callable[[Path, str, str], list[subprocess.Popen[bytes]]]
    count: Callable[[Path], int]
    topic: str = "edge"
    peer: bool = True
    before: Callable[[list[subprocess.Popen[bytes]]], None] | None = None


def peer(name: str, module: str, *arguments: str) -> Contender:
    """A contender of bench/peers, which tells how far it is by a tally."""

    def start(folder: Path, bootstrap: str, topic: str) -> list[subprocess.Popen[bytes]]:
        Tally(folder / "tally")
        command = [sys.executable, "-m", f"bench.peers.{module}", *arguments, bootstrap, topic, str(folder)]
        with (folder / "log").open("ab") as log:
            return [subprocess.Popen(command, stdout=log, stderr=log)]

    return Contender(name, start, lambda folder: Tally(folder / "tally").read())


def freshet(name: str, workers: int = 1, topic: str = "edge") -> Contender:
    """`freshet worker`, as many as are asked for, on one data folder."""

    def start(folder: Path, bootstrap: str, edge: str) -> list[subprocess.Popen[bytes]]:
        settings = Settings(
            broker=f"kafka://{bootstrap}",
            data=folder / "data",
            topic_edge=edge if topic != "functions" else "unused",
            topic_functions="functions" if topic == "functions" else "unused",
            group=f"freshet-{folder.name}",
            session_seconds=30,
        )
        return [product.start(["-m", "ops", "worker"], settings, folder / f"log-{n}") for n in range(workers)]

    def count(folder: Path) -> int:
        try:
            return sum(read_progress(folder / "data").events.values())
        except Exception:  # the store is still being made
            return 0

    return Contender(name, start, count, topic, peer=False)


CONTENDERS = (
    freshet("Freshet, one worker"),
    freshet("Freshet, two workers", workers=2, topic="held back"),
    peer("stock Faust agent, same writes", "faust_agent", "write"),
    peer("quixstreams, same writes", "quix"),
    peer("bytewax, same writes", "bytewax_flow"),
    peer("stock Faust agent, nothing", "faust_agent", "nothing"),
    peer("aiokafka getmany, nothing (the limit)", "aiokafka_drain"),
    freshet("Freshet, one worker, function invocations", topic="functions"),
)


def run(options: Options) -> Result:
    """Interleaved rounds of all contenders, and their medians."""
    events = options.events or (SHORT_EVENTS if options.short else EVENTS)
    rounds = options.rounds or (SHORT_ROUNDS if options.short else ROUNDS)
    longest = _SHORT_LONGEST if options.short else _LONGEST
    contenders = [contender for contender in CONTENDERS if options.peers or not contender.peer]
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    with tempfile.TemporaryDirectory() as name, KafkaBroker(Path(name) / "kafka") as kafka:
        start = time.time_ns() // 1000 - events * 100
        to = backlog.producer(kafka)
        backlog.make_topic(kafka, "unused")
        backlog.fill(to, backlog.make_topic(kafka, "edge"), edge_events(events, start), events)
        backlog.fill(to, backlog.make_topic(kafka, "functions"), function_events(events, start), events)
        for number in range(rounds):
            for contender in contenders:
                folder = Path(name) / f"{number}-{contenders.index(contender)}"
                folder.mkdir()
                sample = _measured(contender, folder, kafka, events, longest)
                samples[contender.name].append(sample)
                print(f"{number + 1}. {contender.name}: {sample.rate:,.0f}/s, {sample.cpu:.1f} µs CPU", flush=True)
    return _result(samples, events, rounds)


def _result(samples: dict[str, list[Sample]], events: int, rounds: int) -> Result:
    middle = {name: Sample(*map(median, zip(*found, strict=True))) for name, found in samples.items()}
    own = middle["Freshet, one worker"].rate
    rows: list[list[Cell]] = [
        [name, round(s.rate), _times_as_fast(own, name, s), s.cpu, s.broker_cpu, round(s.memory)]
        for name, s in middle.items()
    ]
    return Result(
        subject="ingest",
        tables=[
            Table(
                f"Ingest of {events:,} events of 2.5 KB (invocations: 0.7 KB), medians of {rounds} rounds",
                ["", "events/s", "one worker is × as fast", "CPU µs/event", "broker's CPU µs/event", "peak MB"],
                rows,
                "CPU is that of all of a contender's processes, the peak that of the largest one.",
            )
        ],
        charts=[
            Chart(
                "ingest",
                "Ingest",
                "events/s",
                {"events/s": [round(sample.rate) for sample in middle.values()]},
                list(middle),
            )
        ],
    )


def _times_as_fast(own: float, name: str, other: Sample) -> float | None:
    """How much faster one worker is; of Freshet's own other rows there is nothing to compare."""
    return None if name.startswith("Freshet") else own / other.rate


def _measured(contender: Contender, folder: Path, kafka: KafkaBroker, events: int, longest: float) -> Sample:
    with _topic(contender, folder, kafka, events) as (topic, release):
        processes = contender.start(folder, kafka.bootstrap, topic)
        try:
            release(processes)
            pids = [process.pid for process in processes]
            meter = Meter(own=pids, broker=[kafka_pid(kafka)])
            (seconds, cpu), first, count = meter.read(), 0, 0
            deadline = time.monotonic() + _PATIENCE
            while count < events and (time.monotonic() < deadline or count == first):
                time.sleep(_LOOK_EVERY)
                _require_alive(contender, processes, folder)
                if time.monotonic() > deadline + _PATIENCE:
                    raise RuntimeError(f"{contender.name} stands at {count:,} of {events:,} events: {_logs(folder)}")
                before, count = count, contender.count(folder)
                if count and not before and count < events / 2:  # else the time from the start on counts
                    first, meter = count, Meter(own=pids, broker=[kafka_pid(kafka)])
                    deadline = time.monotonic() + longest
                elif count != before:
                    seconds, cpu = meter.read()
            done = count - first
            memory = max(map(peak_memory, pids))
            return Sample(done / seconds, cpu["own"] / done * 1e6, cpu["broker"] / done * 1e6, memory)
        finally:
            _stop(processes)


@contextmanager
def _topic(
    contender: Contender, folder: Path, kafka: KafkaBroker, events: int
) -> Iterator[tuple[str, Callable[[list[subprocess.Popen[bytes]]], None]]]:
    """The topic to read, and what lets its events be seen once the readers are there."""
    if contender.topic != "held back":
        yield contender.topic, lambda _: None
        return
    topic = backlog.make_topic(kafka, f"held-{folder.name}")
    to = backlog.holding_producer(kafka, topic)
    backlog.fill(to, topic, edge_events(events, time.time_ns() // 1000 - events * 100), events)

    def release(processes: list[subprocess.Popen[bytes]]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not _shared(folder, topic, len(processes)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the workers did not share the topic: {_logs(folder)}")
            _require_alive(contender, processes, folder)
            time.sleep(0.1)
        to.commit_transaction()

    yield topic, release
    kafka.delete_topic(topic)


def _shared(folder: Path, topic: str, workers: int) -> bool:
    """Whether each worker's last seek is to partitions of its own, and all are somebody's."""
    partitions: list[str] = []
    for number in range(workers):
        seeks = [line for line in (folder / f"log-{number}").read_text().splitlines() if "reading on from" in line]
        found = re.findall(rf"{topic}\[(\d+)\]", seeks[-1]) if seeks else []
        if not found:
            return False
        partitions += found
    return len(partitions) == len(set(partitions)) == backlog.PARTITIONS


def _logs(folder: Path) -> str:
    return "".join(file.read_text() for file in sorted(folder.glob("log*")))[-3000:]


def kafka_pid(kafka: KafkaBroker) -> int:
    """The broker's process."""
    assert kafka._process is not None
    return kafka._process.pid


def _require_alive(contender: Contender, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    for process in processes:
        if process.poll() is not None:
            raise RuntimeError(f"{contender.name} ended: {_logs(folder)}")


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
