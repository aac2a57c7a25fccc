"""What operators look at and rely on: status, retention, every codec, and large messages."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Topics
from events import DAY, HOUR, MINUTE, SECOND, Traffic
from kafka_broker import KafkaBroker
from service import Service, wait_for
from test_end_to_end_replay import freshet

from schema.settings import Settings

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.set_clock(NOW)
        yield service


def entry(name: str, timestamp: int = NOW - 1, **fields: Any) -> bytes:
    return json.dumps({"timestamp": timestamp, "project": "p", "id": name, **fields}).encode()


def send(service: Service, *values: bytes) -> None:
    service.kafka.produce([(service.edge, 0, None, value, NOW // 1000) for value in values])


def status(service: Service) -> dict[str, Any]:
    shown = freshet(service, "status", "--json")
    assert (shown.returncode, shown.stderr) == (0, ""), shown
    result: dict[str, Any] = json.loads(shown.stdout)
    return result


def test_status_tells_positions_lag_gaps_rejects_horizons_and_sizes(service: Service) -> None:
    before = freshet(service, "status")
    assert (before.returncode, before.stderr.count("\n")) == (1, 1), before
    worker = service.start("worker")
    send(service, entry("a"), b"poison", entry("b"))
    service.wait_until_applied()
    assert service.stop(worker) == 0
    send(service, entry("c"), entry("d"))
    shown = status(service)
    place = next(p for p in shown["partitions"] if (p["topic"], p["partition"]) == (service.edge, 0))
    assert (place["position"], place["end"], place["lag"], place["gaps"]) == (3, 5, 2, [])
    assert place["lag_seconds"] > 0
    assert place["last_commit"] == NOW
    assert len(shown["partitions"]) == 8
    assert shown["rejects"] == {"not_json": 1}
    assert shown["files"]["freshet-1.db"] > 0

    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(service.edge, 0, 4)]).values():
        future.result()
    service.start("worker")
    service.wait_until_applied()
    place = next(p for p in status(service)["partitions"] if (p["topic"], p["partition"]) == (service.edge, 0))
    assert (place["lag"], place["gaps"]) == (0, [[3, 4, NOW]])
    for_people = freshet(service, "status").stdout
    assert "gap: offsets 3 to 3 were gone from the log" in for_people
    assert "rejects: not_json 1" in for_people

    unreachable = replace(service.settings, broker="kafka://127.0.0.1:1")
    service.settings = unreachable
    assert "does not answer" in freshet(service, "status").stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(service: Service, codec: str) -> None:
    producer = Producer({"bootstrap.servers": service.kafka.bootstrap, "compression.type": codec})
    for number in range(200):
        producer.produce(service.edge, entry(f"{number:03}", NOW - number - 1), partition=0, timestamp=NOW // 1000)
    producer.flush()
    service.start("worker")
    service.wait_until_applied()
    service.start_api()
    assert [row["id"] for row in service.rows("logs.all", project="p")] == [f"{number:03}" for number in range(100)]


def test_messages_up_to_the_brokers_limit_are_taken_whole(service: Service) -> None:
    large = "x" * 1_000_000
    elements = [json.loads(entry(f"{number}", NOW - number - 1)) for number in range(8000)]
    send(service, entry("large", event_message=large), json.dumps({"batch": elements}).encode())
    service.start("worker")
    service.wait_until_applied()
    service.start_api()
    rows = service.rows("logs.all", project="p")
    assert len(rows) == 100
    assert next(row for row in rows if row["id"] == "large")["event_message"] == large
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(8001,)]


def test_what_has_expired_is_pruned_and_late_events_miss_expired_buckets_only(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    with Service(tmp_path, kafka, *topics) as service:
        defaults: dict[str, Any] = {s.name: s.default for s in fields(Settings) if s.name.startswith("keep_")}
        service.settings = replace(service.settings, **defaults)
        service.set_clock(NOW)
        traffic = Traffic(3, NOW, *topics)
        service.start("worker")
        wait_for("horizons", lambda: service.applied() and service.ask_store("SELECT * FROM horizons"))
        ages = [0, 20 * MINUTE, 4 * HOUR, 9 * DAY, 100 * DAY]
        messages = [traffic.invocation_at(NOW - age, project="p", record_ms=NOW // 1000) for age in ages]
        messages += [traffic.edge_at(NOW - age, project="p", record_ms=NOW // 1000) for age in ages]
        kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])
        service.wait_until_applied()

        def counts(sql: str) -> dict[Any, int]:
            rows: Iterable[tuple[Any, int]] = service.ask_store(sql)
            return dict(rows)

        kept = "SELECT grain, sum(count) FROM invocations WHERE function = '' GROUP BY grain"
        assert counts(kept) == {1: 1, 60: 2, 3600: 3, 86400: 4}
        hits = "SELECT grain, sum(hits) FROM origin_hits GROUP BY grain"
        assert counts(hits) == {60: 3, 3600: 3, 86400: 4}
        assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(4,)]
        assert service.ask_store("SELECT sum(count) FROM url_blocks") == [(3,)]
        expired = counts("SELECT name, count FROM counters WHERE name LIKE 'expired.%'")
        assert expired["expired.invocations.1"] == 4

        service.set_clock(NOW + 200 * DAY)
        tables = ("invocations", "origin_hits", "entry_blocks", "url_blocks")
        nothing = [(0,)] * len(tables)
        rows = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in tables)  # noqa: S608
        wait_for("all to be pruned", lambda: service.ask_store(rows) == nothing)
        service.set_clock(NOW)  # a clock set back brings nothing back
        kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])
        service.wait_until_applied()
        assert service.ask_store(rows) == nothing


def test_a_file_in_a_steady_state_keeps_its_size(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    with Service(tmp_path, kafka, *topics) as service:
        defaults: dict[str, Any] = {s.name: s.default for s in fields(Settings) if s.name.startswith("keep_")}
        service.settings = replace(service.settings, **defaults)
        traffic = Traffic(4, NOW, *topics)
        service.set_clock(NOW)
        service.start("worker")
        sizes = []
        for step in range(6):
            now = NOW + step * 100 * DAY
            service.set_clock(now)
            messages = [traffic.edge_at(now - number * SECOND) for number in range(2000)]
            kafka.produce(
                [(m.topic, 0, None, m.value, -1) for m in messages]
            )  # no record time: no event is in its future
            service.wait_until_applied()
            old = now - 9 * DAY
            wait_for("old blocks to go", partial(no_urls_before, service, old))
            sizes.append(service.ask_store("SELECT page_count FROM pragma_page_count")[0][0])
        assert sizes[-1] <= 1.3 * sizes[1], sizes


def no_urls_before(service: Service, timestamp: int) -> bool:
    return not service.ask_store("SELECT 1 FROM url_blocks WHERE max_timestamp < ?", timestamp)
