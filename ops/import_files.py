"""`freshet import`: exports into the topics, each line once, however often it is stopped and started again.

Lines go to Kafka in transactions. Each carries, as the committed offset of a group of the file's own, where in the
file it ended: the lines and the place become visible together, and the next run goes on from there.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from api.ingest_elements import Decode, Judge, Message
from ops.bars import Bars
from ops.exports import Export, Line
from schema.connection import librdkafka_connection
from schema.decoding import decode_edge, decode_functions
from schema.errors import FreshetError, LogError, SettingsError
from schema.messages import Element, Reject, pair_surrogates, trim
from schema.settings import EMBEDDED, Settings

BAD_LINES_CODE = 3
_LINES, _BYTES = 5000, 8 << 20  # of a transaction, about
_JUDGED = 100  # lines at once
_SECONDS = 30.0
_TRANSACTION_SECONDS = 30  # after which the broker aborts what a killed import has left open


@dataclass(slots=True)
class Tally:
    """What an import has done: events sent, and bad lines."""

    events: int = 0
    bad: int = 0
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a file has been imported: unpacked bytes, and lines."""

    offset: int = 0
    lines: int = 0


def run_import(settings: Settings, files: Iterable[Path], functions: bool, again: bool) -> int:
    """Import each file and say how it went; returns the exit code.

    Raises FreshetError where it can't go on; what was imported until then is not imported again.
    """
    if settings.broker == EMBEDDED:
        raise SettingsError("the embedded broker lives inside `freshet up`: set FRESHET_BROKER to kafka://host:port")
    topic, decode = (settings.topic_functions, decode_functions) if functions else (settings.topic_edge, decode_edge)
    tally = Tally()
    try:
        largest = _largest(settings, topic)
        with Bars() as bars:
            for path in files:
                bars.watcher.step(f"{path} (KiB)", path.stat().st_size >> 10)
                with Importer(settings, topic, path) as importer:
                    importer.run(decode, largest, again, tally, bars.watcher.done)
    except KafkaException as error:
        raise LogError(
            f"Kafka at {settings.broker} failed ({error.args[0].str()}): the same command goes on where this stopped"
        ) from error
    rate = tally.events / max(time.monotonic() - tally.began, 0.001)
    click.echo(f"{tally.events:,} events imported into {topic} ({rate:,.0f}/s), {tally.bad:,} bad lines left out")
    return BAD_LINES_CODE if tally.bad else 0


class Importer:
    """Imports one file into one topic. A context manager."""

    def __init__(self, settings: Settings, topic: str, path: Path) -> None:
        self._topic, self._path = topic, path
        name = f"freshet-import-{_identity(topic, path)}"
        servers = librdkafka_connection(settings)
        self._group = Consumer({**servers, "group.id": name, "enable.auto.commit": False})
        self._producer = Producer(
            {
                **servers,
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
                "partitioner": "murmur2_random",
                "message.max.bytes": 100_000_000,  # the judge holds to the topic's limit
                "batch.size": 200_000,
                "linger.ms": 20,
            }
        )

    def __enter__(self) -> "Importer":
        return self

    def __exit__(self, *_: object) -> None:
        self._group.close()

    def run(self, decode: Decode, largest: int, again: bool, tally: Tally, progress: Callable[[int], None]) -> None:
        """Send the lines that have not been sent by an earlier run. Raises KafkaException, FreshetError.

        `progress` is told how many KiB of the file, as it is stored, have been read since it was last told.
        """
        self._producer.init_transactions(_SECONDS)  # an earlier run that still lives is fenced off, its rest aborted
        place = Place() if again else self._place()
        with Export(self._path) as export:
            lines = _from(export.lines(), place, self._path)
            if place.offset:
                click.echo(f"{self._path}: going on behind line {place.lines:,}, where an earlier import stopped")
            told = 0
            for part in _parts(lines):
                self._commit(self._judged(part, decode, largest, tally), part[-1])
                read = export.read >> 10
                progress(read - told)
                told = read

    def _judged(self, lines: list[Line], decode: Decode, largest: int, tally: Tally) -> list[Message]:
        messages: list[Message] = []
        judge = Judge(decode, None, largest, time.time_ns() // 1_000_000)
        elements = [element for line in lines if (element := _element(line)) is not None]
        for start in range(0, len(elements), _JUDGED):
            for judged in judge.judge(elements[start : start + _JUDGED]):
                if isinstance(judged, Message):
                    messages.append(judged)
                    continue
                tally.bad += 1
                click.echo(f"{self._path}:{judged.index}: {judged.reason}: {judged.detail['message']}", err=True)
        tally.events += len(messages)
        return messages

    def _commit(self, messages: list[Message], last: Line) -> None:
        """Send messages and the place behind them, all or nothing."""
        producer = self._producer
        producer.begin_transaction()
        try:
            for key, value in messages:
                while True:
                    try:
                        producer.produce(self._topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(0)
            place = TopicPartition(self._topic, 0, last.end, str(last.number))
            producer.send_offsets_to_transaction([place], self._group.consumer_group_metadata(), _SECONDS)
            producer.commit_transaction(_SECONDS)
        except BaseException:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(_SECONDS / 3)
            raise

    def _place(self) -> Place:
        (found,) = self._group.committed([TopicPartition(self._topic, 0)], _SECONDS)
        return Place(found.offset, int(found.metadata or 0)) if found.offset >= 0 else Place()


def _identity(topic: str, path: Path) -> str:
    """Which import this is: of a topic, a path and the file's first line, so that a file may grow and go on."""
    with Export(path) as export:
        first = next(export.lines(), Line(0, 0, b""))
    return hashlib.sha256(b"\0".join([topic.encode(), bytes(path.resolve()), first.text])).hexdigest()[:32]


def _from(lines: Iterator[Line], place: Place, path: Path) -> Iterator[Line]:
    """The lines behind a place."""
    passed = 0
    for line in lines:
        if line.end > place.offset:
            yield line
        passed = line.end
    if passed < place.offset:
        raise FreshetError(
            f"{path} ends at byte {passed:,}, but has been imported up to {place.offset:,}: it is another file by now; "
            "--again imports it from its start"
        )


def _parts(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """The lines, a transaction's at a time."""
    part: list[Line] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line.text)
        if len(part) >= _LINES or size >= _BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _element(line: Line) -> Element | Reject | None:
    """What stands in a line: one object; None where it is blank."""
    text = pair_surrogates(trim(line.text))
    if text.startswith(b"["):
        return Reject(line.number, "not_object", b"")
    return Element(line.number, text) if text else None


def _largest(settings: Settings, topic: str) -> int:
    """The largest batch that the topic takes, in bytes. Raises LogError where it is missing."""
    admin = AdminClient(librdkafka_connection(settings))
    if topic not in admin.list_topics(timeout=_SECONDS).topics:
        raise LogError(f"Kafka at {settings.broker} has no topic {topic}: start a worker, which makes it")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource], request_timeout=_SECONDS)[resource].result()
    return int(found["max.message.bytes"].value)
