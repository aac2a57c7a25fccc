"""Producers that send again with the same id are counted once, whoever is killed meanwhile, and in a replay too."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from conftest import Topics
from events import HOUR, MINUTE, SECOND
from kafka_broker import KafkaBroker
from service import Service, wait_for

from schema.settings import to_environment

NOW = 1_750_000_000_123_456
SLOT_MS = MINUTE // 1000
IDS = "SELECT topic, partition, time, sum(length(marks)) FROM recent_ids GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.settings = replace(service.settings, deduplicate="10min")
        service.set_clock(NOW)
        yield service


def sent_again(service: Service, chance: random.Random, count: int, first: int) -> None:
    """Events of both topics whose ids come several times, seconds to half an hour apart, some in one message."""
    records: list[tuple[str, int | None, bytes | None, bytes | None, int]] = []
    for number in range(first, first + count):
        at = NOW - HOUR + (number - first) * 3600 * SECOND // count
        partition = number % 2
        for topic in (service.edge, service.functions):
            seen = chance.randrange(max(0, number - 500), number + 1)
            metadata = {"project_ref": "p", "function_id": "f", "response": {"status_code": 200}}
            event = {"id": f"{seen}", "timestamp": at, "project": "p", "metadata": metadata}
            events = [event] * chance.choice((1, 1, 1, 2))
            late = chance.choice((0, 0, 0, 7 * MINUTE, 30 * MINUTE))
            records.append((topic, partition, None, json.dumps(events).encode(), (at - late) // 1000))
    service.kafka.produce(records)


def expected(service: Service, topic: str) -> tuple[int, int]:
    """Events and duplicates of a topic, by a look at every record in its order."""
    events = duplicates = 0
    taken: dict[int, list[tuple[str, int]]] = {}
    slots: dict[int, int] = {}
    for _, partition, _, timestamp, value in service.kafka.read_all(topic):
        slot = slots[partition] = max(slots.get(partition, 0), timestamp // SLOT_MS)
        known = taken.setdefault(partition, [])
        for event in json.loads(value or b"[]"):
            if any(identity == event["id"] and slot - then <= 10 for identity, then in known):
                duplicates += 1
            else:
                known.append((event["id"], slot))
                events += 1
    return events, duplicates


def counted(service: Service, topic: str) -> tuple[int, int]:
    counts = dict(service.ask_store("SELECT name, count FROM counters WHERE topic = ?", topic))
    return counts["events"], counts["duplicate"]


def has_applied(service: Service, more_than: int) -> bool:
    return sum(service.applied().values()) > more_than


def freshet(service: Service, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ops", *words],
        env={**os.environ, **to_environment(service.settings)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_sent_again_counts_once_through_kills_another_worker_and_a_replay(service: Service) -> None:
    chance = random.Random(11)
    worker = service.start("worker")
    for part in range(2):
        sent_again(service, chance, 1500, 1500 * part)
        wait_for("some of it", partial(has_applied, service, 3000 * part))
        worker.send_signal(signal.SIGKILL)
        worker = service.start("worker")
    service.wait_until_applied(120)
    shown = {topic: expected(service, topic) for topic in (service.edge, service.functions)}
    assert all(events > 500 and duplicates > 500 for events, duplicates in shown.values())
    assert {topic: counted(service, topic) for topic in shown} == shown
    events, suppressed = shown[service.edge]
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(events,)]
    assert service.ask_store("SELECT sum(hits) FROM origin_hits WHERE grain = 60") == [(events,)]
    service.start_api()
    rows = service.rows("functions.invocation-stats", project="p", interval="1day")
    assert sum(row["count"] for row in rows) == shown[service.functions][0]

    status = json.loads(freshet(service, "status", "--json"))
    assert status["counters"][service.edge]["duplicate"] == suppressed
    assert f"{service.edge} {suppressed:,}" in freshet(service, "status")
    with urlopen(f"http://{service.settings.listen}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert f'freshet_skipped_total{{reason="duplicate",topic="{service.edge}"}} {float(suppressed)}' in metrics

    assert "hold the same" in freshet(service, "verify")
    ids = service.ask_store(IDS)
    for words in ([], ["--topic", service.edge]):
        freshet(service, "replay", *words)
        assert service.ask_store(IDS) == ids
    assert {topic: counted(service, topic) for topic in shown} == shown
    sent_again(service, chance, 500, 3000)
    service.wait_until_applied(120)
    assert counted(service, service.edge) == expected(service, service.edge)
