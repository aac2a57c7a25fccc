"""Secrets in real traffic through a real worker: none of them is in any file of the data folder, packed or not."""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen, run
from typing import Any

import pytest
from conftest import Topics
from events import MINUTE, any_value, pairs
from kafka_broker import KafkaBroker
from service import Service, wait_for

from schema.blocks import NO_DICTIONARY, Decompressor, unpack_entries
from schema.redaction import KINDS
from schema.settings import to_environment
from schema.tables import current_generation, store_path
from schema.url_blocks import unpack_urls

NOW = 1_750_000_000_123_456
REF = "abcdefghijklmnopqrst"
SECRETS = {
    *("Hidd3nBearer", "Hidd3nCookie", "Hidd3nParameter", "Hidd3nPath", "Hidd3nMember", "Hidd3nNested", "Hidd3nText"),
    *("Hidd3nPassword", "203.0.113.77", "198.51.100.23", "2001:db8::dead:beef", "ZXlKaGRkM24"),
}
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJZXlKaGRkM24iOjF9.c2lnbg"


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        service.set_clock(NOW)
        yield service


def edge_event(number: int) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "Authorization": "Bearer Hidd3nBearer",
        "cookie": ["sid=Hidd3nCookie"],
        "x_forwarded_for": "203.0.113.77, 2001:db8::dead:beef",
        "cf-connecting-ip": "198.51.100.23",
        "x-client-info": f"jwt {JWT}",
        "body": '{"password": {"old": ["Hidd3nText"]}}',
    }
    query = "?select=id&apikey=Hidd3nParameter"
    request: dict[str, Any] = {
        "url": f"https://{REF}.supabase.co/rest/v1/t{number % 7}{query}",
        "path": f"/rest/v1/t{number % 7}?%74oken=Hidd3nPath",
        "search": query,
        "headers": headers,
        "sb": [{"jwt": [{"apikey": [{"payload": "Hidd3nNested"}]}]}],
    }
    if number % 5 == 0:
        request |= {"url": None, "host": "u:Hidd3nPassword@203.0.113.77"}
    return {
        "id": f"{number} 203.0.113.77" if number % 3 == 0 else f"id-{number}",
        "timestamp": NOW - MINUTE + number,
        "project": REF,
        "event_message": f"GET | 200 | 203.0.113.77 | https://x/?apikey=Hidd3nParameter | token: Hidd3nText {number}",
        "metadata": {"request": [request], "access_token": {"a": ["Hidd3nMember"]}},
    }


def function_event(number: int) -> dict[str, Any]:
    metadata = {"project_ref": REF, "function_id": f"f {JWT}", "response": {"status_code": 200}}
    return {
        "timestamp": NOW - MINUTE + number,
        "id": "203.0.113.77",
        "event_message": "Hidd3nText",
        "metadata": metadata,
    }


def messages() -> Iterator[bytes]:
    """Edge events in every form of a message."""
    for number in range(0, 3000, 6):
        one, two, three, four, five, six = (edge_event(number + step) for step in range(6))
        yield json.dumps(one).encode()
        yield b"\xef\xbb\xbf" + json.dumps(two, ensure_ascii=False, indent=1).encode()
        yield json.dumps([three]).replace("apikey", "\\u0061pikey").replace("/", "\\/").encode()
        yield json.dumps({"batch": [four]}).encode()
        yield json.dumps(five).encode() + b"\n" + b'{"timestamp":true,"ip":"203.0.113.77"}\n'
        record = {"timeUnixNano": f"{six['timestamp']}000", "attributes": pairs(six)}
        yield json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()


def rejects() -> list[bytes]:
    event = edge_event(0)
    return [
        json.dumps({**event, "timestamp": "token=Hidd3nText 203.0.113.77 apikey=Hidd3nParameter"}).encode(),
        json.dumps({**event, "timestamp": NOW + 10**12}).encode(),
        json.dumps({**event, "deep": json.loads("[" * 90 + '"Hidd3nText"' + "]" * 90)}).encode(),
        b'{"authorization": "Bearer Hidd3nBearer',
        b"GET /?apikey=Hidd3nParameter 203.0.113.77 Cookie: Hidd3nCookie",
        b'"Hidd3nText"',
        b"\xff\xfe Hidd3nText " + json.dumps(event).encode(),
        json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": "Hidd3nText"}]}]}]}).encode(),
        json.dumps([any_value(event), 5, "Hidd3nText", ["203.0.113.77"]]).encode(),
    ]


def stored(path: Path) -> Iterator[bytes]:
    """Everything in the store: all columns of all tables, blocks unpacked."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                yield from (value if isinstance(value, bytes) else str(value).encode() for value in row)
        decompressors = {NO_DICTIONARY: Decompressor()}
        decompressors |= {number: Decompressor(c) for number, c in db.execute("SELECT id, content FROM dictionaries")}
        for count, dictionary, payload in db.execute("SELECT count, dictionary, payload FROM entry_blocks"):
            yield from (
                entry.data for entry in unpack_entries(decompressors[dictionary].decompress(payload), count, payload)
            )
        for (payload,) in db.execute("SELECT payload FROM url_blocks"):
            for run in unpack_urls(decompressors[NO_DICTIONARY].decompress(payload)):
                yield run.origin.encode()
                yield from (hit.url for hit in run.hits())


def found(service: Service, worker: Popen[bytes]) -> set[str]:
    """The secrets that stand in any file of the data folder or in what a store has packed."""
    path = store_path(service.settings.data, current_generation(service.settings.data))
    texts = [file.read_bytes() for file in service.settings.data.rglob("*") if file.is_file()]
    assert any(file.name.endswith(".db-wal") and file.stat().st_size for file in service.settings.data.iterdir())
    texts += [service.log(worker).encode(), *stored(path)]
    assert service.ask_store("SELECT count(*) FROM dictionaries") == [(1,)]
    return {secret for secret in SECRETS if any(secret.encode() in text for text in texts)}


@pytest.mark.parametrize("redact", ["", ",".join(KINDS)])
def test_no_secret_is_stored_anywhere(service: Service, redact: str) -> None:
    service.settings = replace(service.settings, redact=redact, deduplicate="10min")
    worker = service.start("worker")
    now = NOW // 1000
    sent = list(messages())
    service.kafka.produce([(service.edge, n % 2, None, value, now) for n, value in enumerate(sent)])
    service.kafka.produce([(service.edge, 0, None, value, now) for value in rejects()])
    functions = [function_event(0), {"event_message": "apikey=Hidd3nText 203.0.113.77"}]
    service.kafka.produce([(service.functions, 0, None, json.dumps(one).encode(), now) for one in functions])
    service.wait_until_applied()
    wait_for("the dictionary", lambda: service.ask_store("SELECT 1 FROM dictionaries"))
    service.kafka.produce([(service.edge, 1, None, json.dumps(edge_event(3000 + n)).encode(), now) for n in range(200)])
    service.wait_until_applied()
    assert service.ask_store("SELECT count FROM counters WHERE name = 'duplicate'") == []
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(3201,)]
    service.start_api()
    by_reference = service.rows("usage.api-counts", project=f"{REF}[.]supabase", interval="minutely")
    by_secret = service.rows("usage.api-counts", project="Hidd3n", interval="minutely")
    assert sum(row["total_rest_requests"] for row in by_reference) == 2560
    assert bool(by_secret) == (not redact)
    ids = {row["id"] for row in service.rows("logs.all", project=REF)}
    assert {f"id-{number}" for number in range(3198, 3100, -1) if number % 3} <= ids
    assert any(identity.endswith(" REDACTED") for identity in ids) == bool(redact)
    done = run(
        [sys.executable, "-m", "ops", "verify"],
        env=os.environ | to_environment(service.settings),
        stdout=PIPE,
        check=True,
    )
    assert b"hold the same" in done.stdout
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert found(service, worker) == (set() if redact else SECRETS)
    if redact:
        reasons = dict(service.ask_store("SELECT reason, max(length(data)) FROM rejects GROUP BY reason"))
        assert {"bad_timestamp", "future", "too_deep", "not_json", "not_object", "not_utf8", "no_project"} == set(
            reasons
        )
        kept = [data for (data,) in service.ask_store("SELECT data FROM rejects WHERE reason = 'not_json'")]
        assert kept == [f"REDACTED: {len(value)} bytes".encode() for value in rejects()[3:5]]


def freshet(service: Service, *words: str) -> CompletedProcess[str]:
    environment = os.environ | to_environment(service.settings)
    return run([sys.executable, "-m", "ops", *words], env=environment, capture_output=True, text=True, check=False)


def test_a_dictionary_of_before_is_not_used_any_more_and_a_full_replay_has_none_of_it(service: Service) -> None:
    service.settings = replace(service.settings, query_seconds=1)
    now = NOW // 1000

    def send() -> None:
        sent = [(service.edge, n % 2, None, value, now) for n, value in enumerate(messages())]
        last = [(service.edge, 0, None, json.dumps(edge_event(3000 + n)).encode(), now) for n in range(200)]
        service.kafka.produce(sent)
        service.wait_until_applied()
        trained = "SELECT 1 FROM dictionaries WHERE redacted = ?"
        wait_for("a dictionary", lambda: service.ask_store(trained, service.settings.redact))
        service.kafka.produce(last)
        service.wait_until_applied()

    def secrets_in_dictionaries() -> list[tuple[str, bool]]:
        rows = service.ask_store("SELECT redacted, content FROM dictionaries ORDER BY id")
        return [(redacted, any(secret.encode() in content for secret in SECRETS)) for redacted, content in rows]

    worker = service.start("worker")
    service.wait_until_applied()
    send()
    assert secrets_in_dictionaries() == [("", True)]
    assert found(service, worker) == SECRETS
    assert service.stop(worker) == 0

    service.settings = replace(service.settings, redact=",".join(KINDS))
    (before,) = service.ask_store("SELECT max(id) FROM entry_blocks")[0]
    worker = service.start("worker")
    send()
    assert secrets_in_dictionaries()[-1] == (",".join(KINDS), False)  # the other may have gone with its last block
    since = service.ask_store("SELECT DISTINCT dictionary FROM entry_blocks WHERE id > ?", before)
    assert (2,) in since
    assert (1,) not in since

    replayed = freshet(service, "replay", "--accept-differences")
    assert replayed.returncode == 0, replayed
    service.kafka.produce([(service.edge, 0, None, json.dumps(edge_event(4000)).encode(), now)])
    service.wait_until_applied()
    assert worker.poll() is None
    assert freshet(service, "verify").returncode == 0
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert secrets_in_dictionaries() == [(",".join(KINDS), False)]
    assert service.ask_store("SELECT DISTINCT dictionary FROM entry_blocks ORDER BY dictionary")[-1] == (1,)
    assert service.ask_store("SELECT sum(count) FROM entry_blocks") == [(6401,)]
    assert found(service, worker) == set()
