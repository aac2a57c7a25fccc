"""`freshet rejects retry` on a real Kafka: what a stricter worker rejected is folded exactly once, whatever happens."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Topics
from events import Traffic
from kafka_broker import KafkaBroker
from oracle import Oracle, Record
from service import Service, wait_for

from schema.settings import to_environment
from schema.tables import current_generation, store_path
from streams.content import Digest, Range, digests, snapshot

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.settings = replace(service.settings, query_seconds=1)
        service.set_clock(NOW)
        yield service


def command(service: Service, *words: str) -> list[str]:
    return [sys.executable, "-m", "ops", *words]


def freshet(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **to_environment(service.settings)}
    return subprocess.run(command(service, *words), env=environment, capture_output=True, text=True, check=False)


def retry(service: Service, *words: str) -> dict[str, Any]:
    done = freshet(service, "rejects", "retry", "--json", *words)
    assert done.returncode == 0, done
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def feed(service: Service, seed: int, count: int) -> None:
    messages = Traffic(seed, NOW, service.edge, service.functions).messages(count)
    service.kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])


def reject_some(service: Service, seed: int = 3, count: int = 800) -> None:
    """Have a stricter worker apply traffic, and stop it."""
    feed(service, seed, count)
    worker = service.start("worker", "strict_worker.py")
    service.wait_until_applied()
    service.stop(worker)


def oracle_of(service: Service) -> Oracle:
    oracle = Oracle(service.log_of_topics(), service.edge, service.functions)
    for topic in (service.edge, service.functions):
        oracle.feed(Record(*record) for record in service.kafka.read_all(topic))
    return oracle


def rejects(service: Service) -> Counter[Any]:
    return Counter(service.ask_store('SELECT topic, partition, "offset", element, reason FROM rejects'))


def counters(service: Service, prefix: str) -> Counter[tuple[str, str]]:
    rows = service.ask_store("SELECT topic, name, count FROM counters WHERE name LIKE ?", f"{prefix}%")
    return Counter({(topic, name.removeprefix(prefix)): count for topic, name, count in rows})


def content(service: Service) -> dict[Range, Digest]:
    with snapshot(store_path(service.settings.data, current_generation(service.settings.data))) as db:
        return digests(db, {})


def assert_as_if_never_rejected(service: Service) -> None:
    """The tables, rejects and counters are those that today's decoder makes of the log, and so says verify.

    One that fails for another reason today keeps the one it was rejected for.
    """
    oracle = oracle_of(service)
    kept = rejects(service)
    assert Counter(place[:-1] for place in kept.elements()) == Counter(place[:-1] for place in oracle.rejects)
    assert counters(service, "reject.") - counters(service, "retried.") == Counter(
        (place[0], place[-1]) for place in kept.elements()
    )
    made = {"events": len(oracle.entries) + len(oracle.invocations), **oracle.skipped}
    assert {name: counters(service, name).total() for name in made} == made
    verified = freshet(service, "verify")
    assert (verified.returncode, "hold the same" in verified.stdout) == (0, True), verified


def test_what_a_stricter_worker_rejected_is_folded_and_a_replay_finds_it_so(service: Service) -> None:
    reject_some(service)
    assert freshet(service, "verify").returncode == 3
    before = rejects(service)
    told = retry(service)
    assert_as_if_never_rejected(service)
    after = rejects(service)
    assert sum(told["folded"].values()) == len(before - after) > 100
    assert set(told["folded"]) == {"too_deep", "too_large"}
    assert Counter(told["still"]) == Counter(reject[-1] for reject in (before & after).elements())
    assert Counter(told["new"]) == Counter(reject[-1] for reject in (after - before).elements()) != Counter()
    assert (told["gone"], told["impossible"]) == (0, {})
    same = content(service)
    assert retry(service)["folded"] == {}
    replayed = freshet(service, "replay")
    assert replayed.returncode == 0, replayed
    assert content(service) == same
    assert_as_if_never_rejected(service)
