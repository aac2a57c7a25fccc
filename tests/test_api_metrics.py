"""What `/metrics` tells is what stands in the store."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Topics
from kafka_broker import KafkaBroker
from prometheus_client.parser import text_string_to_metric_families
from service import Service

from schema.tables import store_path

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.set_clock(NOW)
        yield service


def scrape(service: Service) -> dict[tuple[str, ...], float]:
    """Every sample by its name, and its labels' values with the topic first."""
    with urlopen(f"http://{service.settings.listen}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    first = lambda item: item[0] != "topic"  # noqa: E731
    return {(s.name, *(value for _, value in sorted(s.labels.items(), key=first))): s.value for s in samples}


def send(service: Service, *values: bytes | None) -> None:
    service.kafka.produce([(service.edge, 0, None, value, NOW // 1000) for value in values])
    service.wait_until_applied()


def test_positions_lag_gaps_rejects_and_counters_are_told(service: Service) -> None:
    worker = service.start("worker")
    good = json.dumps({"timestamp": NOW, "project": "p", "id": "a"}).encode()
    send(service, good, good, b"{", None, json.dumps({"timestamp": NOW, "project": "p", "id": {}}).encode())
    service.start_api()
    service.stop(worker)
    edge = service.edge
    service.kafka.produce([(edge, 0, None, good, NOW // 1000)] * 4)
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(edge, 0, 7)]).values():
        future.result(30)
    told = scrape(service)
    assert told["freshet_position_offset", edge, "0"] == told["freshet_log_end_offset", edge, "0"] == 5
    assert told["freshet_gaps_total", edge, "0"] == told["freshet_gap_offsets_total", edge, "0"] == 0
    assert told["freshet_messages_total", edge] == 5
    assert told["freshet_skipped_total", edge, "empty"] == 1
    assert told["freshet_unreadable_fields_total", edge, "id"] == 1
    assert told["freshet_events_total", edge] == 3

    service.start("worker")
    service.wait_until_applied()
    told = scrape(service)
    assert told["freshet_position_offset", edge, "0"] == 9
    assert (told["freshet_gaps_total", edge, "0"], told["freshet_gap_offsets_total", edge, "0"]) == (1, 2)
    assert (told["freshet_lag_messages", edge, "0"], told["freshet_lag_seconds", edge, "0"]) == (0, 0)
    assert told["freshet_last_commit_timestamp_seconds", edge, "0"] == NOW / 1e6
    assert told["freshet_generation",] == 1
    assert told["freshet_store_bytes",] > 0
    (count,) = [value for name, value in told.items() if name[:2] == ("freshet_rejects_total", edge)]
    assert count == 1


def test_the_lag_is_that_of_the_store(service: Service) -> None:
    worker = service.start("worker")
    send(service, json.dumps({"timestamp": NOW, "project": "p", "id": "a"}).encode())
    service.stop(worker)
    service.start_api()
    service.set_clock(NOW + 90_000_000)
    with closing(sqlite3.connect(store_path(service.settings.data, 1))) as db, db:
        db.execute("UPDATE positions SET end_offset = next_offset + 3 WHERE topic = ?", (service.edge,))
    told = scrape(service)
    assert told["freshet_lag_messages", service.edge, "0"] == 3
    assert told["freshet_lag_seconds", service.edge, "0"] == pytest.approx(90, abs=0.001)


def test_before_the_first_worker_it_is_a_503(service: Service) -> None:
    service.start_api()
    reply = service.get("/metrics")
    assert (reply.status, reply.body["error"]["status"]) == (503, "UNAVAILABLE")
