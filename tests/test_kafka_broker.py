"""The tests' own Kafka: what every test that uses it relies on."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import kafka_broker
import pytest
from confluent_kafka import KafkaException, Producer
from conftest import Topics
from kafka_broker import CACHE, BrokerError, KafkaBroker, Message, Record

from ops.kafka import fetch_jars

MS = 1_700_000_000_000


def test_records_come_back_with_their_timestamps_and_tombstones(kafka: KafkaBroker, topics: Topics) -> None:
    messages: list[Message] = [
        (topics.edge, 2, b"key", b"late", MS + 5),
        (topics.edge, 2, None, b"early", MS),
        (topics.edge, 2, b"key", None, 1),
        (topics.edge, 2, None, b"", -1),
        (topics.edge, 0, None, b"\x00\xff", MS),
    ]
    assert kafka.produce(messages) == [(2, 0), (2, 1), (2, 2), (2, 3), (0, 0)]
    assert kafka.read_all(topics.edge) == [
        Record(topics.edge, 0, 0, MS, b"\x00\xff"),
        Record(topics.edge, 2, 0, MS + 5, b"late"),
        Record(topics.edge, 2, 1, MS, b"early"),
        Record(topics.edge, 2, 2, 1, None),
        Record(topics.edge, 2, 3, -1, b""),
    ]
    assert kafka.read_all(topics.functions) == []


def test_placements_are_in_the_order_of_the_messages(kafka: KafkaBroker, topics: Topics) -> None:
    messages: list[Message] = [(topics.edge, None, b"%d" % i, b"%d" % i, MS + i) for i in range(20_000)]
    placed = kafka.produce(messages)
    stored = {(record.partition, record.offset): record.value for record in kafka.read_all(topics.edge)}
    assert [stored[where] for where in placed] == [message[3] for message in messages]
    assert {partition for partition, _ in placed} == {0, 1, 2, 3}


def test_a_message_without_a_timestamp_gets_the_time_of_day(kafka: KafkaBroker, topics: Topics) -> None:
    before = time.time_ns() // 1_000_000
    kafka.produce([(topics.edge, 0, None, b"", None)])
    assert before <= kafka.read_all(topics.edge)[0].timestamp_ms <= time.time_ns() // 1_000_000


def test_a_timestamp_that_cannot_be_written_is_refused(kafka: KafkaBroker, topics: Topics) -> None:
    with pytest.raises(ValueError, match="timestamp of 0"):
        kafka.produce([(topics.edge, 0, None, b"", 0)])


@pytest.mark.parametrize(
    ("topic", "partition", "size", "reason"),
    [("edge", 9, 1, "partition"), ("edge", 0, 2_000_000, "too large"), ("unknown", None, 1, "nknown topic")],
)
def test_a_message_that_the_broker_refuses_raises(
    kafka: KafkaBroker, topics: Topics, topic: str, partition: int | None, size: int, reason: str
) -> None:
    name = topics.edge if topic == "edge" else topic
    with pytest.raises((BrokerError, KafkaException), match=reason):
        kafka.produce([(name, partition, None, b"x" * size, MS)])


def test_only_committed_records_are_read(kafka: KafkaBroker, topics: Topics) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topics.edge, "log_level": 3})
    producer.init_transactions()
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
        (b"open", producer.flush),
    ):
        producer.begin_transaction()
        producer.produce(topics.edge, value, partition=0)
        end()
    assert [record.value for record in kafka.read_all(topics.edge)] == [b"committed"]
    producer.abort_transaction()


def test_topics_grow_and_can_be_recreated(kafka: KafkaBroker, topics: Topics) -> None:
    kafka.add_partitions(topics.edge, 6)
    assert kafka.produce([(topics.edge, 5, None, b"old", MS), (topics.edge, 0, None, b"old", MS)]) == [(5, 0), (0, 0)]
    kafka.delete_topic(topics.edge)
    with pytest.raises(KafkaException, match="nknown topic"):
        kafka.read_all(topics.edge)
    kafka.create_topic(topics.edge, 1, {"retention.ms": "-1"})
    assert kafka.produce([(topics.edge, 0, None, b"new", MS)]) == [(0, 0)]
    assert kafka.read_all(topics.edge) == [Record(topics.edge, 0, 0, MS, b"new")]
    with pytest.raises(KafkaException, match="already exists"):
        kafka.create_topic(topics.edge, 1)


def test_it_formats_and_starts_and_keeps_its_data_and_port_through_kill_and_stop(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "new" / "folder") as broker:
        address = broker.bootstrap
        broker.create_topic("kept", 2, {"retention.ms": "-1"})
        broker.produce(("kept", i % 2, None, b"%d" % i, MS + i) for i in range(1000))
        before = broker.read_all("kept")
        with pytest.raises(BrokerError, match="answers already"):
            broker.start()
        for end in (broker.kill, broker.stop):
            end()
            assert not serves(address)
            broker.start()
            assert broker.bootstrap == address
            assert broker.read_all("kept") == before
    assert len(before) == 1000
    assert not serves(address)
    broker.stop()
    broker.kill()


def test_a_broker_that_does_not_answer_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_broker, "CLIENT_SECONDS", 1)
    broker = KafkaBroker(tmp_path)
    with pytest.raises(BrokerError, match="1 messages were not written"):
        broker.produce([("topic", 0, None, b"", MS)])
    with pytest.raises(KafkaException):
        broker.read_all("topic")
    with pytest.raises(KafkaException):
        broker.create_topic("topic", 1)


def test_a_broker_that_cannot_start_raises_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(BrokerError, match=r"(?s)could not format.*log ends:\n.*data"):
        KafkaBroker(tmp_path).start()


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_jars(CACHE)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrokerError, match=r"java is not on PATH.*Java 17"):
        KafkaBroker(tmp_path).start()


def test_a_missing_maven_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrokerError, match=r"mvn is not on PATH.*Maven"):
        fetch_jars(tmp_path)


def test_a_failing_maven_raises_with_its_output_and_leaves_no_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_maven(tmp_path, monkeypatch, "echo no network; exit 1")
    with pytest.raises(BrokerError, match=r"(?s)mvn could not fetch.*no network"):
        fetch_jars(tmp_path / "cache")
    assert [entry.suffix for entry in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_jar_that_was_tampered_with_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_maven(tmp_path, monkeypatch, f"{copying()}; echo >>$to/kafka_2.13-4.3.1.jar")
    with pytest.raises(BrokerError, match=r"other jars than Kafka's: kafka_2\.13-4\.3\.1\.jar; none is used"):
        fetch_jars(tmp_path / "cache")
    assert not (tmp_path / "cache" / "kafka-4.3.1").exists()


def test_two_runs_at_a_time_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_maven(tmp_path, monkeypatch, f"echo ran >>{tmp_path}/runs; sleep 0.3; {copying()}")
    runs = [threading.Thread(target=fetch_jars, args=[tmp_path / "cache"]) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert (tmp_path / "runs").read_text() == "ran\n"
    assert fetch_jars(tmp_path / "cache").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has ended")
def test_it_outlives_the_thread_that_started_it_and_dies_with_the_process(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal, threading
from kafka_broker import KafkaBroker
broker = KafkaBroker(pathlib.Path({str(tmp_path)!r}))
thread = threading.Thread(target=broker.start)
thread.start()
thread.join()
broker.create_topic("after-the-thread", 1)
print(broker.bootstrap, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    folder = Path(kafka_broker.__file__).parent
    ended = subprocess.run([sys.executable, "-c", program], cwd=folder, stdout=subprocess.PIPE, text=True, timeout=120)
    assert ended.returncode == -9
    deadline = time.monotonic() + 10
    while serves(ended.stdout.strip()):
        assert time.monotonic() < deadline, "the JVM outlived the process that started it"


def copying() -> str:
    """What a Maven does that has the jars here already; its last argument is -DoutputDirectory=…"""
    return f'for a; do :; done; to="${{a#*=}}"; mkdir -p "$to"; cp {fetch_jars(CACHE)}/* "$to"'


def fake_maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "mvn").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def serves(address: str) -> bool:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False
