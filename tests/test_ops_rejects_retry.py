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
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Topics
from events import MINUTE, Traffic
from kafka_broker import KafkaBroker
from oracle import Oracle, Record
from service import Service, wait_for
from test_end_to_end_redaction import stored

from schema.redaction import KINDS
from schema.settings import to_environment
from schema.tables import current_generation, store_path
from streams.content import Digest, Range, digests, snapshot
from streams.generations import sole_replay

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
    assert json.loads(freshet(service, "status", "--json").stdout)["retried"] == told["folded"]
    assert "of these folded by a retry: too_" in freshet(service, "status").stdout
    same = content(service)
    assert retry(service)["folded"] == {}
    replayed = freshet(service, "replay")
    assert replayed.returncode == 0, replayed
    assert content(service) == same
    assert_as_if_never_rejected(service)


def started(service: Service, *words: str, script: tuple[str, ...] = ("-m", "ops")) -> subprocess.Popen[str]:
    """A retry in the background; ended with the service."""
    process = subprocess.Popen(
        [sys.executable, *script, "rejects", "retry", "--json", *words],
        env={**os.environ, **to_environment(service.settings)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    service.processes.append(process)  # type: ignore[arg-type]
    return process


def struck(service: Service, place: str, number: int, blow: str) -> subprocess.Popen[str]:
    script = str(Path(__file__).with_name("retry_struck.py"))
    return started(service, script=(script, place, str(number), blow))


def test_killed_at_any_moment_it_goes_on_where_it_was(service: Service) -> None:
    reject_some(service)
    left = [sum(rejects(service).values())]
    for number, place in enumerate(("before", "delete", "commit", "after"), 3):
        process = struck(service, place, number, "SIGKILL")
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        left.append(service.ask_store("SELECT count(*) FROM rejects")[0][0])
    assert left == sorted(left, reverse=True)
    assert left[-1] < left[0]
    assert retry(service)["folded"] != {}
    assert_as_if_never_rejected(service)


def test_two_at_once_beside_a_running_worker_fold_each_reject_once(service: Service) -> None:
    reject_some(service)
    worker = service.start("worker")
    before = service.ask_store("SELECT count(*) FROM rejects")[0][0]
    first = struck(service, "before", 2, "SIGSTOP")  # it has decoded a message that the other takes meanwhile
    wait_for("the first to stop", lambda: stopped(first))
    others = [started(service) for _ in range(2)]
    feed(service, 4, 300)
    told = [json.loads(process.communicate(timeout=120)[0]) for process in others]
    first.send_signal(signal.SIGCONT)
    told.append(json.loads(first.communicate(timeout=120)[0]))
    service.wait_until_applied()
    assert worker.poll() is None
    folded = [sum(one["folded"].values()) for one in told]
    assert sum(folded) == counters(service, "retried.").total() <= before
    assert told[-1]["gone"] > 0
    retry(service)
    assert_as_if_never_rejected(service)


def stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_store_that_is_retired_takes_nothing_and_a_replay_waits_for_a_retry(service: Service) -> None:
    reject_some(service)
    process = struck(service, "before", 1, "SIGSTOP")
    wait_for("the retry to stop", lambda: stopped(process))
    refused = freshet(service, "replay")
    assert (refused.returncode, "a retry of rejects, is running" in refused.stderr) == (1, True), refused
    before = rejects(service), content(service)
    with closing(sqlite3.connect(store_path(service.settings.data, 1))) as db, db:
        db.execute("UPDATE store SET retired = 1")
    process.send_signal(signal.SIGCONT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was replaced by a newer generation" in told
    assert (rejects(service), content(service)) == before
    with sole_replay(service.settings.data):
        assert "a replay or verify is running" in freshet(service, "rejects", "retry").stderr
    with closing(sqlite3.connect(store_path(service.settings.data, 1))) as db, db:
        db.execute("UPDATE store SET retired = 0")
    retry(service)
    assert_as_if_never_rejected(service)


def element(minutes_ago: float, project: str = "p", **fields: Any) -> dict[str, Any]:
    """An edge event that a stricter worker rejects."""
    request = {"method": "GET", "url": f"https://{project}.example.org/rest/v1/{minutes_ago}", "headers": {"a": {}}}
    return {
        "timestamp": NOW - int(minutes_ago * MINUTE),
        "project": project,
        "metadata": {"request": request},
        **fields,
    }


def flat(minutes_ago: float) -> dict[str, Any]:
    """An edge event that it takes."""
    return {"timestamp": NOW - int(minutes_ago * MINUTE), "project": "flat"}


def send(service: Service, partition: int, *values: Any) -> None:
    """Have messages of an hour ago at the latest in a partition of the edge topic, in whatever form they come."""
    bodies = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    service.kafka.produce([(service.edge, partition, None, body, NOW // 1000) for body in bodies])


def cut_log(service: Service, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(service.edge, partition, offset)]).values():
        future.result(30)


def backup(service: Service) -> Service:
    """The same service on a copy of its data."""
    folder = service.folder / "copy"
    assert freshet(service, "backup", str(folder)).returncode == 0
    copy = Service(service.folder / "copied", service.kafka, service.edge, service.functions)
    copy.settings = replace(service.settings, data=folder)
    return copy


def test_a_message_that_the_log_no_longer_has_is_retried_from_its_kept_bytes(service: Service) -> None:
    pair = [flat(1), element(2)]
    lines = b"\n".join(json.dumps(one).encode() for one in (flat(3), {"timestamp": "?"}, element(4)))
    array = [element(5), 7, element(6), flat(7), {"timestamp": NOW + 30 * 24 * 60 * MINUTE}]
    newest = element(-10 * 60, id="newest")  # on the next day
    send(service, 0, element(8), pair, {"batch": pair}, lines, array, element(9), newest)
    send(service, 1, [flat(10), element(11, padding="x" * 5000)], element(12))
    worker = service.start("worker", "strict_worker.py")
    service.wait_until_applied()
    service.stop(worker)
    copy = backup(service)
    retry(copy, "--partition", "0")
    send(service, 0, flat(13))
    send(service, 1, flat(13))
    for partition, end in ((0, 7), (1, 2)):
        cut_log(service, partition, end)
    told = retry(service, "--partition", "0", "--topic", service.edge, "--since", "2025-01-01", "--until", "2025-12-31")
    assert (told["folded"], told["new"]) == ({"too_deep": 6, "too_large": 1}, {"not_object": 1, "future": 1})
    assert told["still"] == {"bad_timestamp": 1}
    assert content(service) == content(copy)
    told = retry(service, "--partition", "1", "--reason", "too_deep")
    assert told["folded"] == {"too_deep": 1}
    assert told["impossible"] == {"the log no longer has its message, and its bytes are not kept whole": 1}
    assert "can't be retried: 1: the log no longer" in freshet(service, "rejects", "retry").stdout
    assert "can't be retried" not in freshet(copy, "rejects", "retry", "--partition", "0").stdout

    # What was folded out of offsets that the log no longer has, newer than all others, outlives a replay.
    worker = service.start("worker")
    service.wait_until_applied()
    service.stop(worker)
    before = content(service)
    assert freshet(service, "verify").returncode == 0
    assert freshet(service, "replay").returncode == 0
    assert content(service) == before


def test_what_a_replay_has_read_meanwhile_is_not_folded_again(service: Service) -> None:
    """A log that begins in the midst: a replay takes of what it reads the events from the cut on alone."""
    day = 24 * 60
    send(service, 0, flat(3 * day), flat(3 * day))
    strict = service.start("worker", "strict_worker.py")
    service.wait_until_applied()
    old, new = element(3 * day + 1), element(60)
    send(service, 0, old, new, [old, new, flat(61), 5], [flat(62), old, new], {"timestamp": "?"})
    service.wait_until_applied()
    service.stop(strict)
    copy = backup(service)
    retry(copy)
    assert freshet(copy, "verify").returncode == 0
    cut_log(service, 0, 2)
    assert freshet(service, "replay", "--accept-differences").returncode == 0
    assert content(service) != content(copy)
    assert Counter(retry(service)["folded"]) == {"too_deep": 4, "too_large": 1}
    assert content(service) == content(copy)
    assert rejects(service) == rejects(copy)
    assert freshet(service, "verify").returncode == 0


def test_a_topic_created_anew_has_nothing_of_what_was_rejected_before(service: Service) -> None:
    """Neither before nor after that was accepted: what is at the same offset now is another message."""
    send(service, 0, element(1, "first"), element(2, "second"))
    worker = service.start("worker", "strict_worker.py")
    service.wait_until_applied()
    service.stop(worker)
    service.kafka.delete_topic(service.edge)
    service.kafka.create_topic(service.edge, 4, {"retention.ms": "-1"})
    others = [json.dumps(element(number, "other")).encode() for number in range(3)]
    service.kafka.produce([(service.edge, 0, None, other, NOW // 1000 + 1) for other in others])
    assert retry(service, "--offset", "0")["folded"] == {"too_deep": 1}
    assert freshet(service, "accept-recreated", service.edge).returncode == 0
    assert retry(service)["folded"] == {"too_deep": 1}
    assert service.ask_store("SELECT project, count FROM entry_blocks ORDER BY 1") == [("first", 1), ("second", 1)]


def test_what_is_folded_is_redacted_and_its_ids_are_neither_compared_nor_kept(service: Service) -> None:
    """As docs/decisions/0011 and 0012 say; a replay, which decodes each in its place, leaves the duplicates out."""
    service.settings = replace(service.settings, redact=",".join(KINDS), deduplicate="10min")
    told: dict[str, Any] = {
        "event_message": "GET /?apikey=Hidd3nToken 203.0.113.77",
        "headers": {"Authorization": "Hidd3nBearer"},
    }
    one, two, url = element(1, id="one", **told), element(2, id="two", **told), "https://u:Hidd3nPassword@p.example.org"
    one["metadata"]["request"]["url"] = f"{url}/rest/v1/?token=Hidd3nParameter"
    send(service, 0, one, one, {**flat(2), "project": "p", "id": "two"}, two)
    worker = service.start("worker", "strict_worker.py")
    service.wait_until_applied()
    service.stop(worker)
    assert sum(rejects(service).values()) == 3
    ids = service.ask_store("SELECT * FROM recent_ids")
    assert retry(service)["folded"] == {"too_deep": 3}
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(4,)]
    assert service.ask_store("SELECT * FROM recent_ids") == ids
    send(service, 0, {**flat(1), "project": "p", "id": "one"}, {**flat(2), "project": "p", "id": "two"})
    worker = service.start("worker")
    service.wait_until_applied()
    service.stop(worker)
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(5,)]
    assert counters(service, "duplicate").total() == 1

    def texts() -> list[bytes]:
        files = [file.read_bytes() for file in service.settings.data.rglob("*") if file.is_file()]
        return [*files, *stored(store_path(service.settings.data, current_generation(service.settings.data)))]

    assert not any(secret in text for secret in (b"Hidd3n", b"203.0.113.77") for text in texts())
    assert sum(b"apikey=REDACTED REDACTED" in text for text in texts()) == 3
    assert freshet(service, "verify").returncode == 3
    assert freshet(service, "replay", "--accept-differences").returncode == 0
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(2,)]
    assert counters(service, "duplicate").total() == 4
    assert not any(secret in text for secret in (b"Hidd3n", b"203.0.113.77") for text in texts())
    assert freshet(service, "verify").returncode == 0
