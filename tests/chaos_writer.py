"""A producer that never stops, for the chaos harness."""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

from chaos_worker import marker
from confluent_kafka import KafkaError, KafkaException, Producer
from events import Message, Traffic

PAUSE_SECONDS = 300.0  # how long it may take until all is acknowledged
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_RATES = (20, 60, 150, 400, 1000)  # messages/s
_HANDFUL_SECONDS = 0.05
_IN_TRANSACTIONS = 0.3  # of all stretches


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
        until = time.monotonic() + PAUSE_SECONDS
        while not self._idle.wait(0.1):
            self.check()
            if time.monotonic() > until:
                raise RuntimeError(f"the broker did not take all within {PAUSE_SECONDS:.0f} s")

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
            time.sleep(_HANDFUL_SECONDS)
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
                    time.sleep(_HANDFUL_SECONDS)
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
        return self._traffic.messages(round(self._rate * _HANDFUL_SECONDS))

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
