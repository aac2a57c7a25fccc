"""A real Apache Kafka for the tests: that of `ops/kafka.py`, with what tests ask of it.

Needs Java 17 on PATH, and Maven the first time. What is missing is an error, never a skipped test.
"""

import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from os import getpid
from pathlib import Path
from typing import NamedTuple, Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Delivery
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ops import kafka
from ops.kafka import BrokerError as BrokerError
from ops.kafka import answers, fetch_jars, format_command, prepare, start_command

CACHE = Path(__file__).resolve().parents[1] / ".cache"
START_SECONDS, STOP_SECONDS, CLIENT_SECONDS = 90, 30, 30

# topic, partition (None: the key's), key, value (None: a tombstone), milliseconds since 1970 (None: now, -1: none)
Message = tuple[str, int | None, bytes | None, bytes | None, int | None]

# It forgets producers whose records' timestamps are past the expiration (default 1 day, at most this): their retries
# would be written twice. The rest has it look at its logs twice a second.
SETTINGS = f"""{kafka.SETTINGS}\
producer.id.expiration.ms=2147483647
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
"""

# Runs between fork and java: the kernel shall kill the JVM when the thread that forked it ends (1: PR_SET_PDEATHSIG).
# So one thread forks them all; it lives as long as this process and ends with it, however that ends.
BIND_TO_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that wanted a broker has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
FORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-forker")


class Record(NamedTuple):
    """A record as stored; `timestamp_ms` counts milliseconds since 1970, a tombstone's `value` is None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None


class KafkaBroker:
    """One broker on 127.0.0.1 that keeps server.properties, data/ and log in `folder` from start to start.

    A context manager: started on entry, stopped on exit. On Linux it dies with this process, SIGKILL included.
    Methods that talk to it raise KafkaException for what it refuses, and where it does not answer.
    """

    def __init__(self, folder: Path, settings: str = "", alone: bool = False) -> None:
        """`settings` are more lines of server.properties, or with `alone` all, with {port} and the like filled in."""
        self.folder = folder.resolve()
        self._settings = settings if alone else SETTINGS + settings
        self._port = free_port_pair()
        self._process: subprocess.Popen[bytes] | None = None
        self._producer: Producer | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, the same from start to start."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Formats the data on first use, starts, and returns when requests are answered.

        Raises BrokerError with the log's tail when it ends early or is not ready within START_SECONDS.
        """
        if answers(self._port):
            raise BrokerError(f"{self.bootstrap} answers already: stop what runs there, or use another KafkaBroker")
        self.kill()  # reaps one that ended by itself
        prepare(self.folder, self._port, self._settings)
        jars = fetch_jars(CACHE)
        if (format_data := format_command(self.folder, jars)) is not None:
            self._launch(format_data)
            if self._exit_code(START_SECONDS) != 0:
                self._fail("could not format its data")
        self._launch(start_command(jars))
        deadline = time.monotonic() + START_SECONDS
        while not answers(self._port):
            if self._exit_code(0.05) is not None or time.monotonic() > deadline:
                self._fail(f"ended before it was ready, or was not ready within {START_SECONDS} s")

    def stop(self) -> None:
        """SIGTERM and wait; nothing where it does not run. Raises BrokerError, and kills, after STOP_SECONDS."""
        if self._process is not None:
            self._process.terminate()
            if self._exit_code(STOP_SECONDS) is None:
                self._fail(f"did not stop within {STOP_SECONDS} s of SIGTERM")
            self._process = self._producer = None

    def kill(self) -> None:
        """SIGKILL and wait; nothing where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = self._producer = None

    def create_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        """Creates a topic with Kafka's topic settings `config`; returns when each partition has its leader."""
        admin = AdminClient(self._client())
        topic = NewTopic(name, partitions, 1, config=config or {})
        self._settle(admin, name, admin.create_topics([topic], request_timeout=CLIENT_SECONDS), partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Grows a topic to `total` partitions; returns when each has its leader."""
        admin = AdminClient(self._client())
        grown = NewPartitions(name, total)
        self._settle(admin, name, admin.create_partitions([grown], request_timeout=CLIENT_SECONDS), total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; returns when the broker no longer knows it and the name is free."""
        admin = AdminClient(self._client())
        self._settle(admin, name, admin.delete_topics([name], request_timeout=CLIENT_SECONDS), 0)

    def produce(self, messages: Iterable[Message]) -> list[tuple[int, int]]:
        """Writes each message (acks=all, idempotent); gives their (partition, offset) in the same order.

        Once each, also through a kill and start meanwhile, but a kill may double those stamped over 24 days ago.

        Raises BrokerError when one was refused or not acknowledged within CLIENT_SECONDS (others may be written),
        ValueError for a timestamp of 0, in place of which librdkafka would write the time of day.
        """
        placed: dict[int, tuple[int, int]] = {}
        refused: list[str] = []

        def report(index: int, error: KafkaError | None, message: Delivery) -> None:
            if error is None:
                placed[index] = cast(int, message.partition()), cast(int, message.offset())
            else:
                refused.append(f"message {index} for {message.topic()}[{message.partition()}]: {error.str()}")

        if self._producer is None:
            self._producer = Producer(
                self._client()
                | {
                    "enable.idempotence": True,  # implies acks=all; costs half a second, so the producer is kept
                    "message.max.bytes": 100_000_000,  # so that the broker's limit is the one to meet
                    "message.timeout.ms": CLIENT_SECONDS * 1000,
                    "partitioner": "murmur2_random",  # Java producers' choice
                    "topic.metadata.propagation.max.ms": 1000,  # how long to hope for an unknown topic
                }
            )
        producer = self._producer
        for index, (topic, partition, key, value, timestamp_ms) in enumerate(messages):
            if timestamp_ms == 0:
                raise ValueError(f"message {index} for {topic}: a timestamp of 0 can't be written; None means now")
            where, when = -1 if partition is None else partition, timestamp_ms or 0
            queued = False
            while not queued:
                try:
                    producer.produce(topic, value, key, where, on_delivery=partial(report, index), timestamp=when)
                    queued = True
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()
        if refused:
            self._producer = None
            raise BrokerError(f"{self.bootstrap}: {len(refused)} messages were not written; first: {refused[0]}")
        return [placed[index] for index in range(len(placed))]

    def read_all(self, topic: str) -> list[Record]:
        """All committed records (read_committed) ordered by partition and offset, up to any open transaction.

        Raises BrokerError when nothing arrives for CLIENT_SECONDS before the end.
        """
        consumer = Consumer(
            self._client()
            | {
                "group.id": "read_all",  # the client wants one; no group is joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",  # retention may pass the reader
                "fetch.wait.max.ms": 10,
            }
        )
        records: list[Record] = []
        try:
            found = consumer.list_topics(topic, CLIENT_SECONDS).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            unread = set(found.partitions)
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
            while unread:
                message = consumer.poll(CLIENT_SECONDS)
                if message is None:
                    raise BrokerError(f"{self.bootstrap}: {topic}{sorted(unread)} sent nothing for {CLIENT_SECONDS} s")
                error, partition, offset = message.error(), cast(int, message.partition()), cast(int, message.offset())
                if error is None:
                    records.append(Record(topic, partition, offset, message.timestamp()[1], message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(partition)
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(records)

    def _client(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}  # what fails is raised

    def _settle(self, admin: AdminClient, name: str, asked: dict[str, Future[None]], partitions: int) -> None:
        asked[name].result()
        deadline = time.monotonic() + CLIENT_SECONDS
        while True:
            known = admin.list_topics(name, CLIENT_SECONDS).topics[name].partitions.values()
            if len(known) == partitions and all(partition.leader >= 0 for partition in known):
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"{self.bootstrap}: {name} has {len(known)} partitions, not {partitions} and leaders")
            admin.poll(0.02)

    def _launch(self, command: list[str]) -> None:
        bound = [sys.executable, "-I", "-S", "-c", BIND_TO_PARENT, str(getpid()), *command]
        with (self.folder / "log").open("ab") as log:
            self._process = FORKER.submit(
                lambda: subprocess.Popen(
                    bound,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            ).result()

    def _exit_code(self, seconds: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _fail(self, what: str) -> None:
        self.kill()
        log = self.folder / "log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise BrokerError(f"Kafka on {self.bootstrap} {what}; {log} ends:\n{tail}")


def free_port_pair() -> int:
    """A free port whose successor is free too, below the kernel's ephemeral range.

    From within that range, a client that redials a dead broker can be given the port itself and connect to itself.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(12_000, 32_000, 2)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue
    raise BrokerError("no two free ports found between 12000 and 32000 in 100 tries")
