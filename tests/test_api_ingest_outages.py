"""What HTTP ingest answers while Kafka is away, slow, or dies, and what is in the log afterwards."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from service import Service, wait_for
from test_api_ingest import LOGGED, Door, allow_ingest, event

from api import ingest_producer
from api.ingest_producer import IngestProducer
from schema.errors import NotTaken
from schema.tables import migrate

NOTHING_TAKEN = "nothing was taken"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """A broker of the test's own."""
    with KafkaBroker(tmp_path / "kafka") as kafka:
        for topic in ("edge", "functions"):
            kafka.create_topic(topic, 2, {"retention.ms": "-1"})
        with Service(tmp_path, kafka, "edge", "functions") as service:
            allow_ingest(service)
            service.start_api()
            yield Door(service, kafka)


def pid(kafka: KafkaBroker) -> int:
    assert kafka._process is not None
    return kafka._process.pid


def until_logged(door: Door, body: Any) -> None:
    wait_for("ingest to go on", lambda: door.post(body) == (200, LOGGED))


def test_without_a_broker_queries_are_answered_and_ingest_is_a_429(tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path / "kafka")
    with Service(tmp_path, kafka, "edge", "functions") as service:
        allow_ingest(service)
        migrate(service.settings.data)
        service.start_api()
        door = Door(service, kafka)
        start = time.monotonic()
        status, answer = door.post(json.dumps(event("p")))
        assert (status, answer["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert NOTHING_TAKEN in answer["error"]["message"]
        assert time.monotonic() - start < 5
        assert service.rows("logs.all", project="p") == []
        with kafka:
            assert "start a worker" in wait_for(
                "the topics to be missed", lambda: "start a worker" in (text := str(door.post(b"{}"))) and text
            )
            for topic in ("edge", "functions"):
                kafka.create_topic(topic, 1)
            until_logged(door, json.dumps(event("p")))
            assert len(door.logged("edge")) == 1
        assert service.stop(service.processes[0]) == 0


def test_the_embedded_broker_without_freshet_up_is_a_429_that_says_so(tmp_path: Path) -> None:
    with Service(tmp_path, KafkaBroker(tmp_path / "kafka"), "edge", "functions") as service:
        allow_ingest(service)
        service.start("api", broker="embedded", listen=service.settings.listen)
        wait_for("the API", service._answers)
        status, answer = Door(service, service.kafka).post(b"{}")
        assert status == 429
        assert "FRESHET_BROKER" in answer["error"]["message"]


def test_a_frozen_broker_takes_nothing_and_what_was_under_way_is_a_503(door: Door) -> None:
    until_logged(door, json.dumps(event("p", id="before")))
    time.sleep(1)
    os.kill(pid(door.kafka), signal.SIGSTOP)
    status, answer = door.post(json.dumps(event("p", id="asked first")))
    assert status == 429, answer
    assert NOTHING_TAKEN in answer["error"]["message"]
    os.kill(pid(door.kafka), signal.SIGCONT)
    until_logged(door, json.dumps(event("p", id="between")))
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(_post_until_refused, door)
        time.sleep(1)
        os.kill(pid(door.kafka), signal.SIGSTOP)
        time.sleep(3.5)
        refused = door.post(json.dumps(event("p", id="while one waits")))
        assert refused[0] == 429
        assert NOTHING_TAKEN in refused[1]["error"]["message"]
        answers = stream.result()
    os.kill(pid(door.kafka), signal.SIGCONT)
    until_logged(door, json.dumps(event("p", id="after")))
    ids = Counter(entry["id"] for entry in door.logged("edge"))
    assert "asked first" not in ids
    assert "while one waits" not in ids
    assert set(answers.values()) <= {200, 429, 503}
    for identity, status in answers.items():
        assert ids[identity] == {200: 1, 429: 0}.get(status, 1), (identity, status)  # this producer goes on trying


def _post_until_refused(door: Door) -> dict[str, int]:
    answers: dict[str, int] = {}
    status = 200
    while status == 200:
        identity = f"stream {len(answers)}"
        status, _ = door.post(json.dumps(event("p", id=identity)))
        answers[identity] = status
    return answers


def test_a_broker_killed_under_load_loses_nothing_that_was_acknowledged(door: Door) -> None:
    door.service.start("worker")
    wait_for("the worker", door.service.applied)
    answers: dict[str, int] = {}
    stop = time.monotonic() + 30

    def produce(number: int) -> None:
        count = 0
        while time.monotonic() < stop:
            identity = f"{number}/{count}"
            sent = [event(f"p{part}", id=f"{identity}/{part}") for part in range(10)]
            answers[identity], _ = door.post(json.dumps(sent))
            count += 1
            if answers[identity] != 200:
                time.sleep(0.3)

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(produce, number) for number in range(4)]
        time.sleep(3)
        door.kafka.kill()
        time.sleep(12)  # longer than a request waits
        door.kafka.start()
        for run in runs:
            run.result()
    until_logged(door, json.dumps(event("p", id="after")))
    ids = Counter(entry["id"] for entry in door.logged("edge"))
    assert set(answers.values()) == {200, 429, 503}
    for identity, status in answers.items():
        for part in range(10):
            found = ids[f"{identity}/{part}"]
            assert found == {200: 1, 429: 0}.get(status, found), (identity, status)
            assert found <= 1
    door.service.wait_until_applied()
    (count,) = door.service.ask_store("SELECT sum(count) FROM counters WHERE name = 'events' AND topic = 'edge'")[0]
    assert count == sum(ids.values())


def test_a_start_that_takes_longer_than_a_request_waits_is_there_for_the_next(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_producer, "ASK_SECONDS", 0.001)

    async def ask() -> None:
        producer = IngestProducer(door.service.settings)
        with pytest.raises(NotTaken):
            await producer.session()
        assert producer._starting is not None
        started = await producer._starting
        assert await producer.session() is started
        await producer.close()

    asyncio.run(ask())


def test_a_session_that_fails_while_a_request_asks_whether_kafka_is_there_is_no_error(door: Door) -> None:
    async def ask() -> None:
        producer = IngestProducer(door.service.settings)
        first = await producer.session()
        await asyncio.sleep(0.2)  # after which Kafka is asked
        asking = asyncio.create_task(producer.session())
        await asyncio.sleep(0)
        first.failure = OSError()
        renewed = await producer.session()
        with suppress(NotTaken):  # the session may be closed before Kafka has answered
            assert await asking is first
        assert renewed is not first
        await producer.close()

    asyncio.run(ask())


def test_a_stop_lets_what_is_under_way_arrive(door: Door) -> None:
    until_logged(door, json.dumps(event("p", id="before")))
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(door.post, json.dumps(event("p", id=str(number)))) for number in range(200)]
        time.sleep(0.2)
        assert door.service.stop(door.service.processes[0]) == 0
        logged = 0
        for post in sent:
            try:
                logged += post.result()[0] == 200
            except OSError:
                continue
    ids = Counter(entry["id"] for entry in door.logged("edge"))
    assert set(ids.values()) == {1}
    assert len(ids) - 1 >= logged > 0


def test_a_topic_made_anew_or_with_a_smaller_limit_is_found_out(door: Door) -> None:
    until_logged(door, json.dumps(event("p", id="before")))
    door.kafka.delete_topic("edge")
    door.kafka.create_topic("edge", 1, {"max.message.bytes": "5000"})
    large = json.dumps(event("p", event_message="x" * 50_000))
    assert wait_for("the limit to be learnt", lambda: door.post(large)[0] == 406)
    until_logged(door, json.dumps(event("p", id="after")))
    assert [entry["id"] for entry in door.logged("edge")] == ["after"]
