"""`freshet doctor` on set-ups that are whole, and on ones that are really broken."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from conftest import Topics
from kafka_broker import KafkaBroker
from service import Service, wait_for
from test_end_to_end_replay import freshet

from schema.tables import store_path

ENTRY = json.dumps({"timestamp": 1_750_000_000_000_000, "project": "p", "id": "a"}).encode()


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        yield service


def diagnosis(service: Service, **settings: Any) -> tuple[bool, dict[str, tuple[str, str, str]]]:
    """Whether all is well, and state, text and remedy of each subject's worst finding."""
    service.settings = replace(service.settings, **settings)
    shown = freshet(service, "doctor", "--json")
    assert shown.stderr == ""
    told = json.loads(shown.stdout)
    assert shown.returncode == (0 if told["healthy"] else 1)
    found: dict[str, tuple[str, str, str]] = {}
    for finding in sorted(told["findings"], key=lambda finding: ["good", "doubtful", "bad"].index(finding["state"])):
        found[finding["subject"]] = (finding["state"], finding["text"], finding["remedy"])
        assert (finding["state"] == "bad") <= bool(finding["remedy"]), finding
    return told["healthy"], found


def send(service: Service, milliseconds: int) -> None:
    service.kafka.produce([(service.edge, 0, None, ENTRY, milliseconds)])


def run(service: Service) -> None:
    service.start("worker")
    send(service, time.time_ns() // 1_000_000 - 5000)
    service.wait_until_applied()
    service.start_api()
    wait_for("/ready", lambda: service.get("/ready").status == 200)


def test_a_whole_set_up_is_healthy_line_by_line(service: Service) -> None:
    run(service)
    healthy, found = diagnosis(service)
    assert healthy, found
    assert set(found) == {"settings", "broker", "topic", "clock", "folder", "disk", "store", "keys", "API"}
    assert {state for subject, (state, *_) in found.items() if subject != "disk"} == {"good"}, found
    shown = freshet(service, "doctor")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert [line for line in lines if line.startswith("✗")] == []
    assert len([line for line in lines if line.startswith(("✓", "!"))]) == 10, "two topics"
    assert f"{service.edge} has 4 partitions, kept" in shown.stdout


def test_a_broker_that_is_down(service: Service) -> None:
    healthy, found = diagnosis(service, broker="kafka://127.0.0.1:1")
    assert not healthy
    assert found["broker"][0] == "bad"
    assert "no broker answers at kafka://127.0.0.1:1" in found["broker"][1]
    assert "FRESHET_BROKER" in found["broker"][2]
    assert "topic" not in found


def test_topics_that_are_missing_compacted_or_kept_for_an_hour(service: Service) -> None:
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    configure(admin, service.edge, "cleanup.policy", "compact")
    configure(admin, service.functions, "retention.ms", str(60 * 60_000))
    shown = freshet(service, "doctor").stdout
    assert f"✗ topic      {service.edge} has 4 partitions, but is compacted" in shown
    assert f"! topic      {service.functions} has 4 partitions, kept 1.0 h" in shown
    _, found = diagnosis(service, topic_edge="no-such-topic")
    assert found["topic"][:2] == ("bad", "no-such-topic is missing")
    assert "start a worker" in found["topic"][2]


def configure(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    for future in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]
    ).values():
        future.result(30)


def test_a_clock_that_is_an_hour_slow(service: Service) -> None:
    send(service, time.time_ns() // 1_000_000 + 3_600_000)
    _, found = diagnosis(service)
    state, text, remedy = found["clock"]
    assert (state, remedy[:14]) == ("bad", "set the clocks")
    assert "is 3,600 s ahead" in text or "is 3,59" in text


def test_a_folder_that_takes_nothing(service: Service) -> None:
    """/proc: not even root may make a file there."""
    healthy, found = diagnosis(service, data=Path("/proc"))
    assert not healthy
    assert found["folder"][0] == "bad"
    assert f"let user {os.geteuid()} write there" in found["folder"][2]
    assert found["disk"][:2] == ("bad", "0.0 GiB are free")
    assert "free some space" in found["disk"][2]


def test_without_worker_key_or_api(service: Service) -> None:
    shutil.rmtree(service.settings.data)
    _, found = diagnosis(service)
    assert found["folder"][1].endswith("is not there")
    assert found["API"][0] == "bad"
    assert "freshet api" in found["API"][2]
    service.settings.data.mkdir()
    _, found = diagnosis(service)
    assert found["store"][::2] == ("bad", "start a worker: freshet worker")


def test_a_key_that_has_expired_a_worker_that_died_and_a_store_that_is_damaged(service: Service) -> None:
    run(service)
    service.processes[0].kill()
    with closing(sqlite3.connect(service.settings.data / "control.db")) as db, db:
        db.execute("UPDATE keys SET expires_at = 1")
    _, found = diagnosis(service)
    assert found["keys"] == ("bad", "all have expired", "make one: freshet keys add NAME")
    for process in service.processes:
        process.kill()
        process.wait()
    path = store_path(service.settings.data, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    for page in range(8192, len(content), 8192):
        content[page + 100 : page + 8000] = b"\x5a" * 7900
    path.write_bytes(content)
    _, found = diagnosis(service)
    assert found["store"][0] == "bad"
    assert "freshet replay" in found["store"][2] or "start a worker" in found["store"][2]


def test_a_store_of_a_newer_freshet(service: Service) -> None:
    run(service)
    with closing(sqlite3.connect(store_path(service.settings.data, 1))) as db, db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('freshet-store', '9999_new', '')"
        )
    _, found = diagnosis(service)
    assert found["store"][0] == "bad"
    assert "newer Freshet (it has had 9999_new)" in found["store"][1]
    wait_for("/ready to see it", lambda: service.get("/ready").status == 503)
    assert "newer Freshet" in service.get("/ready").body["reasons"][0]
