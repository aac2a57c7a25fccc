"""`freshet up --broker kafka`: a real Apache Kafka of one's own that keeps what it was sent, whatever ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_broker import CACHE, KafkaBroker, free_port_pair
from service import wait_for
from test_ops_processes import is_gone
from test_ops_up import FRESHET, Up, descendants

from ops.kafka import answers, fetch_jars, own_settings
from ops.progress import read_progress
from schema.errors import SettingsError
from schema.settings import Settings

TOPIC = Settings().topic_functions
EVENT = (
    b'{"timestamp": %d, "event_type": "BootEvent", "function_id": "f", "project": "p", "execution_time_ms": 5,'
    b' "metadata": []}'
)


@contextmanager
def up_with_kafka(folder: Path, port: int) -> Iterator[Up]:
    """`freshet up --broker kafka` on the tests' jars, so that it has none to fetch."""
    jars = fetch_jars(CACHE)
    kept = folder / "data" / "kafka"
    kept.mkdir(parents=True, exist_ok=True)
    if not (kept / jars.name).exists():
        (kept / jars.name).symlink_to(jars)
    (folder / "freshet.toml").write_text(f'broker = "kafka://127.0.0.1:{port}"\n')
    with Up(folder, FRESHET, "--broker", "kafka", wait=r"Make a key with: freshet keys add NAME") as up:
        yield up


def send(port: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, EVENT % number)
    assert producer.flush(30) == 0


def kept(port: int) -> int:
    """How many messages the topic holds."""
    client = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "kept", "log_level": 0})
    try:
        partitions = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        marks = [client.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30) for number in partitions]
        return sum(high - low for low, high in marks)
    finally:
        client.close()


def applied(folder: Path) -> int:
    progress = read_progress(folder / "data")
    return progress.events.get(TOPIC, 0) + progress.rejects


def test_after_everything_was_killed_rows_and_messages_are_still_there(tmp_path: Path) -> None:
    folder, port = tmp_path / "a, b: dät", free_port_pair()  # none of which Kafka can read in its settings
    folder.mkdir()
    with up_with_kafka(folder, port) as up:
        assert f"Apache Kafka 4.3.1 answers at kafka://127.0.0.1:{port}\n" in up.printed
        send(port, 500)
        wait_for("the rows", lambda: applied(folder) == 500)
        cluster = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30).cluster_id
        everything = descendants(up.process.pid)
        assert len(everything) >= 4
    assert (folder / "data" / "kafka" / "data" / "meta.properties").exists()
    wait_for("the end of all", lambda: all(is_gone(pid) for pid in everything))  # Up has killed them
    with up_with_kafka(folder, port) as up:
        assert kept(port) == 500
        assert AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30).cluster_id == cluster
        broker = wait_for("the broker", lambda: up.child("kafka.Kafka"))
        os.kill(broker, signal.SIGKILL)
        wait_for("another broker", lambda: up.child("kafka.Kafka") not in (None, broker) and answers(port))
        assert "the kafka was killed by SIGKILL; starting it again in " in up.printed
        send(port, 500)
        wait_for("all rows", lambda: applied(folder) == 1000)
        assert kept(port) == 1000
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(60) == 0
        assert up.printed.endswith("stopping\nstopped\n")
        assert not answers(port)


def test_when_up_is_killed_the_broker_ends_by_itself(tmp_path: Path) -> None:
    port = free_port_pair()
    with up_with_kafka(tmp_path, port) as up:
        broker = wait_for("the broker", lambda: up.child("kafka.Kafka"))
        up.process.kill()
        wait_for("its end", lambda: is_gone(broker), 30)


def test_a_port_where_a_kafka_answers_is_left_alone(tmp_path: Path, kafka: KafkaBroker) -> None:
    done = start(tmp_path, FRESHET_BROKER=f"kafka://{kafka.bootstrap}")
    assert done.returncode == 1
    assert f"a Kafka answers at kafka://{kafka.bootstrap} already" in done.stderr


def test_what_is_missing_is_named_with_what_to_install(tmp_path: Path) -> None:
    done = start(tmp_path, FRESHET_BROKER=f"kafka://127.0.0.1:{free_port_pair()}", PATH="")
    assert done.returncode == 1
    assert "is not on PATH: a real Apache Kafka needs Java 17 and, to be fetched, Maven" in done.stderr
    assert "Traceback" not in done.stderr


def start(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ops", "up", "--broker", "kafka"]
    return subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def test_maven_really_fetches_the_jars_and_says_that_it_does(tmp_path: Path) -> None:
    seconds: list[float] = []
    jars = fetch_jars(tmp_path, seconds.append)
    assert {jar.name for jar in jars.iterdir()} == {jar.name for jar in fetch_jars(CACHE).iterdir()}
    assert seconds == sorted(seconds)
    assert len(seconds) > 1


@pytest.mark.parametrize(
    "broker", ["kafka://elsewhere:9092", "kafka://127.0.0.1:1;127.0.0.1:2", "kafka://127.0.0.1:65535"]
)
def test_another_machine_or_several_brokers_are_refused(broker: str) -> None:
    with pytest.raises(SettingsError, match=r"of one's own is at kafka://127\.0\.0\.1:PORT"):
        own_settings(Settings(broker=broker))


def test_its_address_is_that_of_the_setting_or_port_9092() -> None:
    assert own_settings(Settings()).broker == "kafka://127.0.0.1:9092"
    assert own_settings(Settings(broker="kafka://localhost:9192")).broker == "kafka://127.0.0.1:9192"
    with pytest.raises(SettingsError, match="PLAINTEXT alone"):
        own_settings(Settings(broker="kafka://localhost:9192", broker_security="SSL"))
