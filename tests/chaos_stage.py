"""What the chaos harness plays on: workers under a supervisor, a writer that never stops, and a disk that can fill."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from chaos_worker import marker
from confluent_kafka import KafkaError, KafkaException, Producer
from events import Message, Traffic

RESTART_SECONDS = 0.5  # how soon the supervisor starts another worker
MOST_WORKERS = 3
DISK_BYTES = 192 << 20
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_RATES = (20, 60, 150, 400, 1000)  # messages/s
_PAUSE = 0.05  # seconds between two handfuls
_IN_TRANSACTIONS = 0.3  # of all stretches
_PLACE = re.compile(r"\S*[/:]\S*[/:]\S*")
_HEAD = re.compile(r"^[-0-9]{10} [0-9:,]{12} ")


@dataclass(eq=False)
class Worker:
    """A worker's process. `ending` says what the harness did to it that ends it, '' while nothing."""

    process: subprocess.Popen[bytes]
    log: Path
    ending: str = ""
    frozen: bool = False

    def signal(self, number: int, ending: str = "") -> None:
        """Send a signal."""
        self.ending = ending or self.ending
        self.process.send_signal(number)

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        self.signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """Whether its process has not ended."""
        return self.process.poll() is None

    @property
    def reading(self) -> bool:
        """Whether it has got so far as to read from its partitions."""
        return self.alive and not self.frozen and "reading on from" in self.log.read_text(errors="replace")

    def last_words(self) -> str:
        """The last line of its log that is no part of a traceback's frames."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line[:1].strip()]
        return _PLACE.sub("…", _HEAD.sub("", lines[-1]).partition(" (")[0])[:200] if lines else "nothing"


@dataclass
class Fleet:
    """The workers on one store, and their supervisor: `tend` starts as many as are wanted."""

    folder: Path
    environment: Mapping[str, str]
    wanted: int = 2
    workers: list[Worker] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    """How workers ended, by what was done to them and how they answered."""
    _started: int = 0
    _ended_at: float = 0.0

    @property
    def fired(self) -> Path:
        """The file of the markers that have killed."""
        return self.folder / "fired"

    def tend(self) -> None:
        """Take note of those that have ended, and start others."""
        for worker in [worker for worker in self.workers if not worker.alive]:
            self._note_end(worker)
            self.workers.remove(worker)
            self._ended_at = time.monotonic()
        if len(self.workers) < self.wanted and time.monotonic() - self._ended_at >= RESTART_SECONDS:
            self.start()

    def start(self) -> None:
        """Start one more worker."""
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        with log.open("wb") as output:
            program = [sys.executable, str(Path(__file__).with_name("chaos_worker.py")), str(self.fired)]
            process = subprocess.Popen(program, env={**os.environ, **self.environment}, stdout=output, stderr=output)
        self.workers.append(Worker(process, log))

    def pick(self, chance: Random) -> Worker | None:
        """One that runs and to which nothing has been done yet."""
        able = [worker for worker in self.workers if worker.alive and not worker.ending and not worker.frozen]
        return chance.choice(able) if able else None

    def said(self, text: str) -> int:
        """How often any worker so far has logged a text."""
        return sum(log.read_text(errors="replace").count(text) for log in self.folder.glob("worker-*.log"))

    def kill(self) -> None:
        """End all of them."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()

    def _note_end(self, worker: Worker) -> None:
        code = worker.process.returncode
        if code == -9 and not worker.ending:
            self.ends["a marker"] += 1
        elif worker.ending:
            self.ends[f"{worker.ending}: exit code {code}"] += 1
        else:
            self.ends[f"by itself, exit code {code}: {worker.last_words()}"] += 1


class Writer(threading.Thread):
    """Writes made-up traffic to the two topics, at a rate that keeps changing, until it is closed.

    A broker that is away only holds it up. Everything that it has handed over is in the log once `pause` returns.
    """

    def __init__(self, bootstrap: str, traffic: Traffic, seed: int, *, most: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._broker, self._traffic, self._most = bootstrap, traffic, most
        self._chance = Random(seed)
        self._going, self._idle = threading.Event(), threading.Event()
        self._closed = False
        self._rate, self._rate_until, self._until = 0, 0.0, 0.0
        self._markers: list[bytes] = []
        self._markers_made = 0
        self.written = self.refused = 0
        self.error: BaseException | None = None

    def mark(self, what: str) -> int:
        """Have the next messages hold a marker; returns its number."""
        self._markers_made += 1
        self._markers.append(marker(self._markers_made, what))
        return self._markers_made

    def resume(self) -> None:
        """Write on."""
        self._going.set()

    def pause(self) -> None:
        """Stop once all is acknowledged."""
        self._going.clear()
        self._idle.clear()
        while not self._idle.wait(0.1):
            self.check()

    def check(self) -> None:
        """Raises what ended the thread."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._going.set()
        self.join(30)

    def run(self) -> None:
        try:
            while not self._closed:
                self._stretch()
                self._idle.set()
                self._going.wait()
        except BaseException as error:
            self.error = error

    def _stretch(self) -> None:
        """Write for a while with one producer and codec, in transactions or without."""
        if not self._going.is_set():
            return
        self._until = time.monotonic() + self._chance.uniform(4, 12)
        settings = {
            "bootstrap.servers": self._broker,
            "log_level": 0,
            "enable.idempotence": True,
            "compression.type": self._chance.choice(_CODECS),
            "partitioner": "murmur2_random",
            "message.timeout.ms": 60_000,
            "reconnect.backoff.max.ms": 500,  # so that recovery times are those of the workers
            "topic.metadata.refresh.interval.ms": 1000,  # so that partitions that are added are soon written to
        }
        transactional = {"transactional.id": self._traffic.edge_topic, "transaction.timeout.ms": 60_000}
        if self._chance.random() < _IN_TRANSACTIONS:
            self._transactions(settings | transactional)
        else:
            self._plain(Producer(settings))
            if not self._going.is_set():  # let the log end in holes
                self._transactions(settings | transactional)

    def _plain(self, producer: Producer) -> None:
        while self._writing():
            messages = self._messages()
            while self._markers:
                topic = self._chance.choice((self._traffic.edge_topic, self._traffic.functions_topic))
                made = Message(topic, None, self._markers.pop(), time.time_ns() // 1_000_000)
                messages.insert(self._chance.randrange(len(messages) + 1), made)
            self._send(producer, messages)
            time.sleep(_PAUSE)
        producer.flush()

    def _transactions(self, settings: dict[str, Any]) -> None:
        """Some of them are aborted, so their records must not count; both kinds leave holes in the offsets."""
        producer = Producer(settings)
        try:
            producer.init_transactions(60)
            committing = True
            while committing:
                committing = self._writing()
                producer.begin_transaction()
                for _ in range(self._chance.randint(1, 8)):
                    self._send(producer, self._messages())
                    time.sleep(_PAUSE)
                if committing and self._chance.random() < 0.7:
                    producer.commit_transaction(60)
                else:
                    producer.abort_transaction(60)
        except KafkaException:
            self._abort(settings)

    def _abort(self, settings: dict[str, Any]) -> None:
        """End what a transaction that failed may have left open, or it would hold back all that is read."""
        while not self._closed:
            with suppress(KafkaException):
                Producer(settings).init_transactions(60)
                return

    def _writing(self) -> bool:
        return self._going.is_set() and not self._closed and time.monotonic() < self._until

    def _messages(self) -> list[Message]:
        """The next messages, at the rate of the moment."""
        now = time.monotonic()
        if now > self._rate_until:
            self._rate = min(self._most, self._chance.choice(_RATES))
            self._rate_until = now + self._chance.uniform(0.5, 4)
        return self._traffic.messages(round(self._rate * _PAUSE))

    def _send(self, producer: Producer, messages: Iterable[Message]) -> None:
        for message in messages:
            while not self._queued(producer, message):
                producer.poll(0.1)
        producer.poll(0)

    def _queued(self, producer: Producer, message: Message) -> bool:
        topic, key, value, timestamp = message.topic, message.key, message.value, message.timestamp_ms
        try:
            producer.produce(topic, value, key, timestamp=timestamp, on_delivery=self._delivered)
        except BufferError:
            return False
        return True

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        self.written += error is None
        self.refused += error is not None


class Disk(Protocol):
    """The data folder's disk, which can be made to refuse writes."""

    means: str

    def fill(self, workers: Iterable[Worker]) -> None: ...
    def free(self, workers: Iterable[Worker]) -> None: ...
    def close(self) -> None: ...


class SmallDisk:
    """A tmpfs under the data folder, filled by a ballast file."""

    means = "a ballast file on a small tmpfs"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)

    def fill(self, workers: Iterable[Worker]) -> None:
        """Take what is free, also what has become free since the last time."""
        with (self._folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while ballast.write(b"\0" * size):
                        pass

    def free(self, workers: Iterable[Worker]) -> None:
        """Give it back."""
        (self._folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "-l", str(self._folder)], check=False, stderr=subprocess.DEVNULL)


class LimitedFiles:
    """Where nothing can be mounted: the kernel refuses the workers' writes to any file, by their limit of its size."""

    means = "a file size limit of 0 (nothing could be mounted)"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, workers: Iterable[Worker]) -> None:
        """Refuse all writes of these."""
        self._limit(workers, 0)

    def free(self, workers: Iterable[Worker]) -> None:
        """Allow them again."""
        self._limit(workers, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Nothing."""

    @staticmethod
    def _limit(workers: Iterable[Worker], size: int) -> None:
        for worker in workers:
            with suppress(ProcessLookupError):
                resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def small_disk(folder: Path) -> Disk:
    """A disk of its own for the data folder."""
    try:
        return SmallDisk(folder)
    except (OSError, subprocess.CalledProcessError):
        return LimitedFiles(folder)
