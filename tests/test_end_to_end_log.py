"""What a log may do: transactions and their markers, topics that are missing, cut, or created anew."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Topics
from kafka_broker import KafkaBroker
from service import PATIENCE, Service, wait_for

from schema.settings import Settings, to_environment
from schema.tables import store_path
from streams.watchdog import STUCK

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.set_clock(NOW)
        yield service


def entry(name: str) -> bytes:
    return json.dumps({"timestamp": NOW - 1, "project": "p", "id": name}).encode()


def send(service: Service, *names: str, stamp: int | None = NOW // 1000) -> None:
    service.kafka.produce([(service.edge, 0, None, entry(name), stamp) for name in names])


def ids(service: Service) -> list[str]:
    return sorted(row["id"] for row in service.rows("logs.all", project="p"))


def command(settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops", *words], env=to_environment(settings), capture_output=True, text=True, check=False
    )


def test_only_committed_transactions_count_and_the_lag_reaches_0(service: Service) -> None:
    producer = Producer(
        {"bootstrap.servers": service.kafka.bootstrap, "transactional.id": service.edge, "log_level": 0}
    )
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(service.edge, entry(f"{number}"), partition=0, timestamp=NOW // 1000)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    service.start("worker")
    service.start_api()
    service.wait_until_applied()
    assert ids(service) == ["0", "2", "4"]
    assert service.ends()[service.edge, 0] == 12  # a record and a marker each


def test_what_is_behind_an_open_transaction_is_no_lag(service: Service) -> None:
    """Nobody can read it yet; the watchdog would end one healthy worker after the other."""
    send(service, "a", "b")
    producer = Producer(
        {"bootstrap.servers": service.kafka.bootstrap, "transactional.id": service.edge, "log_level": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(service.edge, entry("c"), partition=0, timestamp=NOW // 1000)
    producer.flush()
    service.start("worker")
    wait_for("what can be read", lambda: service.applied().get((service.edge, 0)) == 2)
    places = service.ask_store("SELECT next_offset, end_offset FROM positions WHERE topic = ?", service.edge)
    assert (2, 2) in places
    producer.commit_transaction()
    service.wait_until_applied()


def test_missing_topics_are_created(kafka: KafkaBroker, tmp_path: Path) -> None:
    with Service(tmp_path, kafka, "created-edge", "created-functions") as service:
        service.set_clock(NOW)
        service.start("worker", topic_partitions=3)
        wait_for("positions", lambda: len(service.applied()) == 6)
        send(service, "a", stamp=None)  # of now: these topics' retention would take an old one, maybe before it is read
        service.wait_until_applied()
        service.start_api()
        assert ids(service) == ["a"]


def test_no_broker_ends_the_worker_with_the_remedy(service: Service) -> None:
    worker = service.start("worker", broker="kafka://127.0.0.1:1")
    assert worker.wait(PATIENCE) == 1
    assert "no broker answers at kafka://127.0.0.1:1" in service.log(service.processes[0])


def test_a_log_cut_past_the_stored_position_goes_on_and_the_gap_is_kept(service: Service) -> None:
    worker = service.start("worker")
    send(service, "a", "b")
    service.wait_until_applied()
    assert service.stop(worker) == 0
    send(service, "c", "d", "e")
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(service.edge, 0, 4)]).values():
        future.result()
    service.start("worker")
    service.wait_until_applied()
    service.start_api()
    assert ids(service) == ["a", "b", "e"]
    ((gaps,),) = service.ask_store("SELECT gaps FROM positions WHERE topic = ? AND partition = 0", service.edge)
    assert json.loads(gaps) == [[2, 4, NOW]]
    assert f"{service.edge}[0]: offsets 2 to 3 are gone from the log" in service.log(service.processes[1])


@pytest.mark.parametrize("records", [1, 3], ids=["shorter", "longer"])
def test_a_topic_created_anew_ends_the_worker_and_can_be_accepted(service: Service, records: int) -> None:
    worker = service.start("worker")
    send(service, "a", "b")
    service.wait_until_applied()
    assert service.stop(worker) == 0
    service.kafka.delete_topic(service.edge)
    service.kafka.create_topic(service.edge, 4, {"retention.ms": "-1"})
    send(service, *(f"new-{number}" for number in range(records)))

    assert service.start("worker").wait(PATIENCE) == 1
    assert f"freshet accept-recreated {service.edge}" in service.log(service.processes[1])
    shown = command(service.settings, "status").stdout
    assert ("the log ends before the position" in shown) == (records < 2), shown

    accepted = command(service.settings, "accept-recreated", service.edge)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    service.start("worker")
    service.start_api()
    wait_for("the new log", lambda: len(ids(service)) == 2 + records)
    assert ids(service) == ["a", "b", *(f"new-{number}" for number in range(records))]


def test_a_store_that_stays_locked_is_waited_for_and_then_ends_a_stuck_worker(service: Service) -> None:
    service.start("worker")
    send(service, "a")
    service.wait_until_applied()
    impatient = service.processes[0]
    with closing(sqlite3.connect(store_path(service.settings.data, 1), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        send(service, "b")
        wait_for("the lock to be met", lambda: "database is locked: trying again" in service.log(service.processes[0]))
        other.execute("ROLLBACK")
    service.wait_until_applied()
    assert service.stop(impatient) == 0

    stuck = service.start("worker", stuck_seconds=8)
    send(service, "c")
    service.wait_until_applied()
    with closing(sqlite3.connect(store_path(service.settings.data, 1), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        send(service, "d")
        assert stuck.wait(PATIENCE) == STUCK
        other.execute("ROLLBACK")
    assert "this worker is stuck: " in service.log(service.processes[1])
    service.start("worker")
    service.wait_until_applied()
    service.start_api()
    assert ids(service) == ["a", "b", "c", "d"]


def test_a_store_of_a_newer_version_is_refused_by_worker_and_api(service: Service) -> None:
    worker = service.start("worker")
    wait_for("positions", service.applied)
    assert service.stop(worker) == 0
    with closing(sqlite3.connect(store_path(service.settings.data, 1))) as db, db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)",
            ("freshet-store", "9999_later", ""),
        )
    assert service.start("worker").wait(PATIENCE) == 1
    assert "freshet-1.db was made by a newer Freshet (it has had 9999_later)" in service.log(service.processes[1])
    service.start_api()
    reply = service.get("/api/endpoints/logs.all", project="p")
    assert (reply.status, reply.body["error"]["status"]) == (503, "UNAVAILABLE")
    assert "newer Freshet" in reply.body["error"]["message"]


def test_the_groups_committed_offsets_mirror_the_store(service: Service) -> None:
    service.start("worker")
    send(service, "a", "b", "c")
    service.wait_until_applied()
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})

    def committed() -> bool:
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = ConsumerGroupTopicPartitions(service.settings.group)
        found = [future.result() for future in admin.list_consumer_group_offsets([asked]).values()]
        offsets = {(tp.topic, tp.partition): tp.offset for tp in found[0].topic_partitions}
        return offsets.get((service.edge, 0)) == 3

    wait_for("the group's offset", committed)
