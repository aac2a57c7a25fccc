"""Replay, verify and backup: the tables are a view of the log, and can be made from it again while they are in use."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Topics
from events import DAY, HOUR, MINUTE, Message, Traffic
from kafka_broker import KafkaBroker
from oracle import Oracle, Record, rows_agree
from service import PATIENCE, Service, wait_for

from schema.clock import system_clock
from schema.errors import LogError
from schema.settings import to_environment
from schema.tables import current_generation, store_path
from streams.content import Digest, Range, digests, snapshot
from streams.generations import revive, sole_replay
from streams.rebuild import LogReader
from streams.replay import Replay, Watcher, Wish
from streams.topics import prepare_topics

NOW = 1_750_000_000_123_456


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.settings = replace(service.settings, query_seconds=1)
        service.set_clock(NOW)
        yield service


def feed(service: Service, traffic: Traffic, count: int) -> None:
    messages = traffic.messages(count)
    service.kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])


def freshet(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops", *words],
        env={**os.environ, **to_environment(service.settings)},
        capture_output=True,
        text=True,
        check=False,
    )


def oracle_of(service: Service) -> Oracle:
    oracle = Oracle(service.log_of_topics(), service.edge, service.functions)
    for topic in (service.edge, service.functions):
        oracle.feed(Record(*record) for record in service.kafka.read_all(topic))
    return oracle


def assert_answers_equal(service: Service, oracle: Oracle, traffic: Traffic) -> None:
    for interval in ("minutely", "daily"):
        rows_agree(
            service.rows("usage.api-counts", project="rest|auth", interval=interval),
            oracle.api_counts(NOW, "rest|auth", interval),
        )
    for project in (*traffic.projects[:4], traffic.default):
        rows_agree(
            service.rows("functions.invocation-stats", project=project, interval="1hr"),
            oracle.invocation_stats(NOW, project, None, "1hr"),
        )
        rows_agree(
            service.rows("logs.all", project=project, project_tier="PAYG"), oracle.logs_all(NOW, project, "PAYG")
        )


@contextmanager
def asked_all_the_time(service: Service) -> Iterator[list[int]]:
    """Ask for an answer again and again; gives the statuses seen."""
    statuses: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            statuses.append(service.get("/api/endpoints/usage.api-counts", project=".*", interval="daily").status)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        thread.join()


def content(store: Path) -> dict[Range, Digest]:
    with snapshot(store) as db:
        return digests(db, {})


def alter(store: Path, sql: str) -> None:
    with closing(sqlite3.connect(store, timeout=30)) as db, db:
        assert db.execute(sql).rowcount == 1


def test_a_replay_takes_over_while_the_live_one_serves_and_ingests(service: Service) -> None:
    traffic = Traffic(11, NOW, service.edge, service.functions)
    service.start_api()
    worker = service.start("worker")
    feed(service, traffic, 3000)
    service.wait_until_applied()
    with asked_all_the_time(service) as statuses:
        running = subprocess.Popen(
            [sys.executable, "-m", "ops", "replay"],
            env={**os.environ, **to_environment(service.settings)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(5):
            feed(service, traffic, 200)
        output, _ = running.communicate(timeout=120)
        feed(service, traffic, 200)
        service.wait_until_applied()
    assert running.returncode == 0, output
    assert "generation 2 answers and ingests now" in output
    assert set(statuses) == {200}
    assert worker.poll() is None
    assert [path.name for path in sorted(service.settings.data.glob("freshet-*.db"))] == ["freshet-2.db"]
    assert_answers_equal(service, oracle_of(service), traffic)
    verified = freshet(service, "verify")
    assert (verified.returncode, "hold the same" in verified.stdout) == (0, True), verified


def apply_old_and_new(service: Service, traffic: Traffic) -> None:
    """Have partition 0 of both topics applied: offsets 0 to 49 are three days old, 50 to 109 an hour."""
    old, new = NOW - 3 * DAY, NOW - HOUR
    first = [traffic.edge_at(old + number * MINUTE, record_ms=old // 1000) for number in range(50)]
    first += [traffic.invocation_at(old + number * MINUTE, record_ms=old // 1000) for number in range(50)]
    later = [traffic.edge_at(new + number, record_ms=NOW // 1000) for number in range(60)]
    later += [traffic.invocation_at(new + number, record_ms=NOW // 1000) for number in range(60)]
    for messages in (first, later):
        service.kafka.produce([(m.topic, 0, None, m.value, m.timestamp_ms) for m in messages])
        service.wait_until_applied()


def cut_log(service: Service, offset: int) -> None:
    """Have partition 0 of both topics begin at an offset."""
    admin = AdminClient({"bootstrap.servers": service.kafka.bootstrap})
    cut = [TopicPartition(topic, 0, offset) for topic in (service.edge, service.functions)]
    for future in admin.delete_records(cut).values():
        future.result()


ALTERED = {
    "old entry": "DELETE FROM entry_blocks WHERE id = (SELECT min(id) FROM entry_blocks)",
    "new entry": "DELETE FROM entry_blocks WHERE id = (SELECT max(id) FROM entry_blocks)",
    "new invocation": """UPDATE invocations SET count = count + 1
        WHERE rowid = (SELECT rowid FROM invocations WHERE grain = 1 ORDER BY bucket DESC LIMIT 1)""",
}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("", ()),
        ("--topic {edge}", ("new invocation",)),
        ("--from-offset 50", ("old entry",)),
        ("--from-time {yesterday}", ("old entry",)),
        ("--topic {functions} --from-offset 50", ("old entry", "new entry")),
        ("--from-offset 110", tuple(ALTERED)),
    ],
)
def test_a_replay_reads_what_it_is_asked_for_and_keeps_the_rest(
    service: Service, words: str, kept: tuple[str, ...]
) -> None:
    """What was altered in the tables before tells what was made anew and what was kept as it stood."""
    service.start("worker")
    apply_old_and_new(service, Traffic(17, NOW, service.edge, service.functions))
    store = store_path(service.settings.data, 1)
    intact = state = content(store)
    altered: dict[str, set[Range]] = {}
    for name, sql in ALTERED.items():
        alter(store, sql)
        before, state = state, content(store)
        altered[name] = {span for span in before if before[span] != state.get(span)}
        assert altered[name]
    yesterday = datetime.fromtimestamp((NOW - DAY) / 1e6, UTC).isoformat()
    wish = words.format(edge=service.edge, functions=service.functions, yesterday=yesterday).split()
    replayed = freshet(service, "replay", "--accept-differences", *wish)
    assert replayed.returncode == 0, replayed
    result = content(store_path(service.settings.data, 2))
    assert {span for span in intact if intact[span] != result.get(span)} == set().union(
        *(altered[name] for name in kept)
    )


def test_without_marks_a_replay_of_a_log_that_was_cut_is_refused(service: Service) -> None:
    service.start("worker")
    apply_old_and_new(service, Traffic(18, NOW, service.edge, service.functions))
    cut_log(service, 50)
    store = store_path(service.settings.data, 1)
    with closing(sqlite3.connect(store, timeout=30)) as db, db:
        db.execute("DELETE FROM marks")
        db.execute("UPDATE positions SET largest_timestamp = NULL")
    refused = freshet(service, "replay")
    assert (refused.returncode, "no mark tells what the tables hold from before offset 50" in refused.stderr) == (
        1,
        True,
    ), refused
    assert [path.name for path in service.settings.data.glob("freshet-*.db")] == ["freshet-1.db"]


def test_what_the_log_no_longer_has_is_kept(service: Service) -> None:
    traffic = Traffic(12, NOW, service.edge, service.functions)
    service.start_api()
    service.start("worker")
    apply_old_and_new(service, traffic)
    before = oracle_of(service)
    cut_log(service, 50)
    replayed = freshet(service, "replay")
    assert replayed.returncode == 0, replayed
    assert [len(service.kafka.read_all(topic)) for topic in (service.edge, service.functions)] == [60, 60]
    project = traffic.projects[0]
    expected = before.logs_all(NOW, project, "PAYG")
    assert len(expected) == 100
    rows_agree(service.rows("logs.all", project=project, project_tier="PAYG"), expected)
    for interval in ("daily", "hourly"):
        rows_agree(
            service.rows("usage.api-counts", project=project, interval=interval),
            before.api_counts(NOW, project, interval),
        )
    rows_agree(
        service.rows("functions.invocation-stats", project=project, interval="7day"),
        before.invocation_stats(NOW, project, None, "7day"),
    )
    verified = freshet(service, "verify")
    assert verified.returncode == 0, verified


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "UPDATE invocations SET count = count + 1 WHERE rowid = (SELECT min(rowid) FROM invocations)",
            "only in the live database: invocations at",
        ),
        (
            "DELETE FROM entry_blocks WHERE id = (SELECT min(id) FROM entry_blocks)",
            "only in the rebuilt one: entry_blocks at",
        ),
        (
            """UPDATE origin_hits SET hits = hits + 1 WHERE (project, origin, grain, bucket, families) =
            (SELECT project, origin, grain, bucket, families FROM origin_hits LIMIT 1)""",
            "only in the live database: origin_hits at",
        ),
        (
            "UPDATE entry_blocks SET max_timestamp = max_timestamp - 3600000000 WHERE id = 1",
            "its times are not its entries'",
        ),
        (
            "UPDATE url_blocks SET min_timestamp = min_timestamp - 3600000000 WHERE id = 1",
            "its times or count are not its requests'",
        ),
        ("UPDATE url_blocks SET payload = zeroblob(20) WHERE id = 1", "ZstdError"),
    ],
    ids=["invocations", "entries", "origin_hits", "times of a block", "times of URLs", "damaged"],
)
def test_verify_finds_a_single_altered_row_and_a_replay_mends_it(service: Service, sql: str, told: str) -> None:
    traffic = Traffic(13, NOW, service.edge, service.functions)
    worker = service.start("worker")
    feed(service, traffic, 300)
    service.wait_until_applied()
    alter(store_path(service.settings.data, 1), sql)
    verified = freshet(service, "verify")
    assert verified.returncode == 3, verified
    assert told in verified.stdout
    refused = freshet(service, "replay")
    assert (refused.returncode, told in refused.stdout) == (3, True), refused
    feed(service, traffic, 100)
    service.wait_until_applied()  # the live one has gone on
    accepted = freshet(service, "replay", "--resume", "--accept-differences")
    assert accepted.returncode == 0, accepted
    feed(service, traffic, 100)
    service.wait_until_applied()
    assert worker.poll() is None
    assert freshet(service, "verify").returncode == 0
    service.start_api()
    assert_answers_equal(service, oracle_of(service), traffic)


class Interrupted(Exception):
    """A replay is left in the middle."""


@pytest.mark.parametrize("change", ["partition", "dictionary", "interruption"])
def test_what_changes_during_a_replay_is_in_the_new_generation(service: Service, change: str) -> None:
    """After the verification, when nothing would show any more what is missing."""
    traffic = Traffic(19, NOW, service.edge, service.functions)
    first, later = (
        [traffic.edge_at(NOW - number - 1, record_ms=NOW // 1000) for number in range(count)] for count in (1500, 700)
    )
    service.start_api()
    service.start("worker")

    def produce(messages: list[Message], partition: int) -> None:
        producer = Producer({"bootstrap.servers": service.kafka.bootstrap})  # an older one knows no new partition
        for m in messages:
            producer.produce(m.topic, m.value, m.key, partition, timestamp=m.timestamp_ms)
        assert producer.flush(PATIENCE) == 0
        service.wait_until_applied()

    def meanwhile() -> None:
        if change == "partition":
            service.kafka.add_partitions(service.edge, 5)
            produce(later, 4)
        elif change == "interruption":
            produce(later, 0)
            raise Interrupted
        else:
            produce(later[:600], 0)
            wait_for("a dictionary", lambda: service.ask_store("SELECT * FROM dictionaries"))
            produce(later[600:], 0)
            assert service.ask_store("SELECT * FROM entry_blocks WHERE dictionary = 1")

    produce(first, 0)
    steps: list[str] = []

    def step(name: str, _: int) -> None:
        steps.append(name)
        if steps[-2:-1] == ["verifying"]:
            meanwhile()

    async def replay(wish: Wish) -> None:
        async with LogReader(service.settings) as reader:
            replay = Replay(service.settings, system_clock, await prepare_topics(service.settings))
            await replay.begin(wish, reader)
            try:
                assert (await replay.run(reader, Watcher(step, lambda _: None), False)).same
            except Interrupted:
                assert (await replay.run(reader, Watcher(step, lambda _: None), False)).same
                assert steps.count("verifying") == 1

    before = content(store_path(service.settings.data, 1))
    with sole_replay(service.settings.data):
        asyncio.run(replay(Wish() if change == "partition" else Wish(topics=(service.functions,))))
    after = content(store_path(service.settings.data, 2))
    assert after == content(store_path(service.settings.data, 1)) != before
    assert_answers_equal(service, oracle_of(service), traffic)
    assert freshet(service, "verify").returncode == 0


def test_a_replay_of_a_topic_that_is_shorter_than_what_was_applied_is_refused(service: Service) -> None:
    worker = service.start("worker")
    feed(service, Traffic(20, NOW, service.edge, service.functions), 100)
    service.wait_until_applied()
    assert service.stop(worker) == 0
    service.kafka.delete_topic(service.edge)
    service.kafka.create_topic(service.edge, 4)
    for command in ("replay", "verify"):
        refused = freshet(service, command)
        assert (refused.returncode, f"freshet accept-recreated {service.edge}" in refused.stderr) == (1, True), refused


def test_a_log_that_is_cut_under_a_replay_ends_it(service: Service) -> None:
    service.start("worker")
    apply_old_and_new(service, Traffic(21, NOW, service.edge, service.functions))

    async def read() -> None:
        async with LogReader(service.settings) as reader:
            replay = Replay(service.settings, system_clock, await prepare_topics(service.settings))
            await replay.begin(Wish(), reader)
            await asyncio.to_thread(cut_log, service, 50)
            await replay.run(reader, Watcher(lambda *_: None, lambda _: None), False)

    with pytest.raises(LogError, match="no longer has what was to be read"):
        asyncio.run(read())
    assert freshet(service, "replay", "--discard").returncode == 0


def test_a_reader_that_is_left_at_once_raises_what_it_is_left_with(service: Service) -> None:
    async def leave() -> None:
        async with LogReader(service.settings):
            raise LogError("the cause")

    with pytest.raises(LogError, match="the cause"):
        asyncio.run(leave())


def test_an_interrupted_replay_leaves_the_live_one_and_can_be_resumed_or_thrown_away(service: Service) -> None:
    traffic = Traffic(14, NOW, service.edge, service.functions)
    service.start_api()
    service.start("worker")
    feed(service, traffic, 4000)
    service.wait_until_applied()
    for ending in ("--discard", "--resume"):
        running = subprocess.Popen(
            [sys.executable, "-m", "ops", "replay"],
            env={**os.environ, **to_environment(service.settings)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for("the new generation", (service.settings.data / "freshet-2.db").exists)
        running.send_signal(signal.SIGKILL)
        running.wait()
        feed(service, traffic, 100)
        service.wait_until_applied()
        again = freshet(service, "replay")
        assert (again.returncode, "--resume it or --discard it" in again.stderr) == (1, True), again
        ended = freshet(service, "replay", ending)
        assert ended.returncode == 0, ended
    feed(service, traffic, 100)
    service.wait_until_applied()
    assert_answers_equal(service, oracle_of(service), traffic)
    assert "replay" in freshet(service, "replay", "--resume").stderr


def test_what_a_replay_that_died_after_the_switch_left_is_removed_by_the_next(service: Service) -> None:
    service.start("worker")
    feed(service, Traffic(22, NOW, service.edge, service.functions), 100)
    service.wait_until_applied()
    data = service.settings.data
    running = subprocess.Popen(
        [sys.executable, "-m", "ops", "replay"],
        env={**os.environ, **to_environment(service.settings)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for("the switch", lambda: current_generation(data) == 2)
    running.kill()
    running.wait()
    assert not revive(data, 1)
    assert sorted(path.name for path in data.glob("freshet-*.db")) == ["freshet-1.db", "freshet-2.db"]
    assert freshet(service, "replay").returncode == 0
    assert [path.name for path in data.glob("freshet-*.db")] == ["freshet-3.db"]


def test_a_worker_revives_a_generation_whose_replay_died_in_the_middle(service: Service) -> None:
    traffic = Traffic(15, NOW, service.edge, service.functions)
    service.start("worker")
    feed(service, traffic, 100)
    service.wait_until_applied()
    alter(store_path(service.settings.data, 1), "UPDATE store SET retired = 1")
    feed(service, traffic, 100)
    service.wait_until_applied()
    assert "was retired by a replay that has died" in service.log(service.processes[0])


def test_a_backup_catches_up_to_the_same_answers(service: Service, tmp_path: Path) -> None:
    traffic = Traffic(16, NOW, service.edge, service.functions)
    worker = service.start("worker")
    feed(service, traffic, 1500)
    wait_for("some of it", lambda: any(service.applied().values()))
    copied = freshet(service, "backup", str(tmp_path / "copy"))
    assert (copied.returncode, copied.stderr) == (0, ""), copied
    assert freshet(service, "backup", str(tmp_path / "copy")).returncode == 1
    feed(service, traffic, 500)
    service.wait_until_applied()
    assert service.stop(worker) == 0
    service.settings = replace(service.settings, data=tmp_path / "copy", group="restored")
    service.start("worker")
    service.wait_until_applied()
    service.start_api()
    assert_answers_equal(service, oracle_of(service), traffic)
    databases = [str(tmp_path / folder / "freshet-1.db") for folder in ("data", "copy")]
    same = freshet(service, "verify", *databases)
    assert (same.returncode, "hold the same" in same.stdout) == (0, True), same
