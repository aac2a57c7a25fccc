"""Two workers of one group share a store on one host, and whatever happens to them, every event is counted once."""

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Topics
from events import SECOND, Traffic
from kafka_broker import KafkaBroker
from oracle import Oracle, Record, rows_agree
from service import Service, wait_for

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.set_clock(NOW)
        yield service


def feed(service: Service, traffic: Traffic, count: int) -> None:
    messages = traffic.messages(count)
    service.kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])


def assert_answers_equal_the_log(service: Service, traffic: Traffic) -> None:
    """Every event of both topics is in the tables, once."""
    oracle = Oracle(service.log_of_topics(), service.edge, service.functions)
    for topic in (service.edge, service.functions):
        oracle.feed(Record(*record) for record in service.kafka.read_all(topic))
    for interval in ("minutely", "daily"):
        rows_agree(
            service.rows("usage.api-counts", project=".*", interval=interval), oracle.api_counts(NOW, ".*", interval)
        )
    for project in [*traffic.projects, traffic.default]:
        rows_agree(
            service.rows("functions.invocation-stats", project=project, interval="7day"),
            oracle.invocation_stats(NOW, project, None, "7day"),
        )
        rows_agree(
            service.rows("logs.all", project=project, project_tier="PAYG"), oracle.logs_all(NOW, project, "PAYG")
        )
    kept = service.ask_store('SELECT topic, partition, "offset", element, reason FROM rejects')
    assert Counter(kept) == Counter(oracle.rejects)
    (entries,) = service.ask_store("SELECT sum(count) FROM entry_blocks")
    (urls,) = service.ask_store("SELECT sum(count) FROM url_blocks")
    (hits,) = service.ask_store("SELECT sum(hits) FROM origin_hits WHERE grain = 86400")
    (events,) = service.ask_store("SELECT count FROM counters WHERE topic = ? AND name = 'events'", service.edge)
    assert entries == urls == hits == events


def test_killed_and_joining_workers_apply_every_event_once(service: Service) -> None:
    chance = random.Random(7)
    traffic = Traffic(7, NOW, service.edge, service.functions)
    service.start_api()
    workers = [service.start("worker"), service.start("worker")]
    wait_for("the first batch", service.applied)
    for round_number in range(4):
        feed(service, traffic, 1500)
        victim = workers.pop(chance.randrange(len(workers)))
        if round_number == 2:
            service.wait_for_log(victim, "reading on from")
            assert service.stop(victim) == 0
        else:
            victim.send_signal(signal.SIGKILL)
        workers.append(service.start("worker"))
    feed(service, traffic, 500)
    service.wait_until_applied(120)
    assert_answers_equal_the_log(service, traffic)
    assert all(worker.poll() is None for worker in workers)


def test_a_worker_that_was_frozen_past_its_session_doubles_nothing(service: Service) -> None:
    traffic = Traffic(8, NOW, service.edge, service.functions)
    service.start_api()
    frozen = service.start("worker")
    feed(service, traffic, 2000)
    wait_for("the first rows", lambda: any(service.applied().values()))
    frozen.send_signal(signal.SIGSTOP)  # perhaps in the middle of a transaction, which then holds the store's lock
    successor = service.start("worker")
    feed(service, traffic, 1000)
    service.wait_for_log(successor, "reading on from", "database is locked")
    frozen.send_signal(signal.SIGCONT)
    feed(service, traffic, 1000)
    service.wait_until_applied(60)
    assert_answers_equal_the_log(service, traffic)


def test_poison_never_stops_a_partition(service: Service) -> None:
    service.start("worker")
    now = NOW // 1000
    good = json.dumps({"timestamp": NOW - SECOND, "project": "p", "id": "behind"}).encode()
    poison = [b"\xff\xfe", b"{", b"[" * 200_000, b'{"timestamp":true}', b"[1,null]", None, b""]
    service.kafka.produce([(service.edge, 0, None, value, now) for value in [*poison, good]])
    service.kafka.produce([(service.functions, 0, None, value, now) for value in poison])
    service.wait_until_applied()
    service.start_api()
    assert [row["id"] for row in service.rows("logs.all", project="p")] == ["behind"]
