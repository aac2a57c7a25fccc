"""HTTP ingest on a real gunicorn and a real Kafka: body forms, ids, refusals, limits, keys."""

import gzip
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from service import Service, wait_for

from ops.keys import add_key
from schema.timestamps import DAY

LARGEST = 12_000_000
LOGGED = {"message": "Logged!"}


@dataclass
class Door:
    """A running API whose topics are this module's own."""

    service: Service
    kafka: KafkaBroker

    def post(
        self,
        body: Any,
        source: str | None = "cloudflare.logs.prod",
        path: str = "/api/logs",
        key: str | None = None,
        word: str = "source_name",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON of the answer; a body that is an iterator is sent in chunks."""
        connection = http.client.HTTPConnection(self.service.settings.listen, timeout=60)
        target = path if source is None else f"{path}?{word}={source}"
        with closing(connection):
            connection.request("POST", target, body, {"X-API-KEY": key or self.service.key, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def logged(self, topic: str) -> list[Any]:
        """What is in a topic."""
        return [json.loads(record.value or b"") for record in self.kafka.read_all(topic)]

    def key(self, allow: list[str], projects: list[str] | None = None) -> str:
        """A new key with scopes."""
        return add_key(self.service.settings.data, uuid.uuid4().hex, projects=projects or (), allow=allow)


def allow_ingest(service: Service) -> None:
    """Let the service's key do both."""
    service.key = add_key(service.settings.data, "both", allow=("query", "ingest"))


@pytest.fixture(scope="module")
def door(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    edge, functions = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in ("edge", "functions"))
    kafka.create_topic(edge, 4, {"retention.ms": "-1", "max.message.bytes": "200000"})
    kafka.create_topic(functions, 4, {"retention.ms": "-1"})
    with Service(tmp_path_factory.mktemp("door"), kafka, edge, functions) as service:
        allow_ingest(service)
        service.start("worker")
        service.start_api()
        wait_for("the worker", service.applied)
        yield Door(service, kafka)


def ref() -> str:
    """A project of a test's own."""
    return uuid.uuid4().hex[:20]


def event(project: str, **fields: Any) -> dict[str, Any]:
    url = f"https://{project}.supabase.co/rest/v1/x"
    return {"project": project, "event_message": "said", "metadata": {"request": {"url": url}}} | fields


def of(door: Door, project: str) -> list[Any]:
    return [entry for entry in door.logged(door.service.edge) if "project" in entry and entry["project"] == project]


def lines(*entries: Any) -> bytes:
    return b"\n".join(json.dumps(entry).encode() for entry in entries)


def test_what_curl_posts_is_in_the_answers_a_moment_later(door: Door) -> None:
    project = ref()
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what `curl -d` says of any body
    assert door.post(json.dumps(event(project, id="a")), headers=form) == (200, LOGGED)
    run = {"project_ref": project, "function_id": "f", "execution_time_ms": 7, "response": {"status_code": 500}}
    assert door.post(json.dumps({"metadata": run}), "deno-relay-logs") == (200, LOGGED)
    service = door.service
    service.wait_until_applied()
    (row,) = service.rows("logs.all", project=project)
    assert (row["id"], row["event_message"]) == ("a", "said")
    (counts,) = service.rows("usage.api-counts", project=project, interval="hourly")
    assert counts["total_rest_requests"] == 1
    (statistics,) = service.rows("functions.invocation-stats", project=project, interval="15min")
    assert (statistics["count"], statistics["error_count"], statistics["max_execution_time"]) == (1, 1, 7)


@pytest.mark.parametrize("path", ["/api/logs", "/logs", "/api/events"])
@pytest.mark.parametrize("word", ["source_name", "source"])
def test_every_path_and_word_leads_to_the_topic(door: Door, path: str, word: str) -> None:
    for source in ("cloudflare.logs.prod", door.service.edge):
        project = ref()
        assert door.post(json.dumps(event(project)), source, path, word=word) == (200, LOGGED)
        assert len(of(door, project)) == 1


def test_every_form_of_body_becomes_one_message_an_element(door: Door) -> None:
    forms: dict[str, Callable[[Any, Any], Any]] = {
        "object": lambda first, second: json.dumps(first),
        "array": lambda first, second: json.dumps([first, second]),
        "batch": lambda first, second: json.dumps({"batch": [first, second]}, indent=1),
        "lines": lambda first, second: lines(first, second) + b"\n",
        "with a byte order mark": lambda first, second: b"\xef\xbb\xbf \n" + lines(first, second),
        "in chunks": lambda first, second: iter([lines(first, second)[:30], lines(first, second)[30:]]),
    }
    for form, make in forms.items():
        project = ref()
        sent = [event(project, id=f"{form} {number}") for number in range(2)]
        assert door.post(make(*sent)) == (200, LOGGED), form
        assert of(door, project) == (sent[:1] if form == "object" else sent), form


def test_gzip_is_unpacked_in_one_member_or_several(door: Door) -> None:
    project = ref()
    sent = [event(project, id=str(number), event_message=os.urandom(2000).hex()) for number in range(30)]
    body = json.dumps(sent).encode()
    for packed in (gzip.compress(body), gzip.compress(body[:999]) + gzip.compress(body[999:])):
        assert door.post(packed, headers={"Content-Encoding": "gzip"}) == (200, LOGGED)
    assert sorted(of(door, project), key=str) == sorted(sent * 2, key=str)


def test_opentelemetry_json_is_taken_record_by_record(door: Door) -> None:
    project = ref()
    attributes = [{"key": "project", "value": {"stringValue": project}}]
    record = {"body": {"stringValue": "said"}, "timeUnixNano": "1795247451236000000", "attributes": attributes}
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, record]}]}]}
    assert door.post(json.dumps(body)) == (200, LOGGED)
    assert [entry["event_message"] for entry in of(door, project)] == ["said"] * 2


def test_bytes_are_kept_and_an_absent_id_is_given(door: Door) -> None:
    project = ref()
    start = f'{{ "project" : "{project}", "n": 1.50e0, "é": "\\u00e9"'
    kept = [f'{start}, "id": "x" }}', f'{start}, "id" : 17}}', f'{start},"id":-1.5}}']
    given = [
        f"{start}}}",
        f'{start}, "id": null}}',
        f'{start},"id":""}}',
        f'{start}, "id": {{}}}}',
        f'{start},"id":true}}',
    ]
    body = "[" + " , ".join(kept + given) + "]"
    assert door.post(body.encode()) == (200, LOGGED)
    values = [
        record.value.decode()
        for record in door.kafka.read_all(door.service.edge)
        if record.value and project.encode() in record.value
    ]
    assert values[:3] == kept
    assert len(values) == 8
    identities = set()
    for value, sent in zip(values[3:], given, strict=True):
        assert value.startswith(sent[:-1])
        identities.add(uuid.UUID(json.loads(value)["id"]))
        assert value.endswith(f',"id":"{json.loads(value)["id"]}"}}')
    assert len(identities) == 5
    assert {identity.version for identity in identities} == {4}
    door.service.wait_until_applied()
    assert {str(identity) for identity in identities} <= {
        row["id"] for row in door.service.rows("logs.all", project=project)
    }


def test_an_element_without_a_member_can_be_given_an_id(door: Door) -> None:
    before = len(door.logged(door.service.edge))
    assert door.post(b"[{ }]") == (200, LOGGED)
    after = door.logged(door.service.edge)
    assert len(after) == before + 1
    assert ["id"] in [list(entry) for entry in after]


def test_what_is_refused_is_told_by_place_and_reason_and_the_others_are_kept(door: Door) -> None:
    project = ref()
    deep = json.loads("[" * 70 + "]" * 70)
    bad = {
        1: (event(project, timestamp=True), "bad_timestamp"),
        2: (17, "not_object"),
        4: (event(project, timestamp="2099-01-01"), "future"),
        5: (event(project, deep=deep), "too_deep"),
        6: (event(project, event_message="x" * 200_000), "too_large"),
    }
    sent = [bad[number][0] if number in bad else event(project, id=str(number)) for number in range(8)]
    status, answer = door.post(json.dumps(sent))
    assert status == 406
    assert answer["error"]["message"] == "5 of 8 events were not taken, 3 were logged"
    assert {detail["index"]: detail["reason"] for detail in answer["error"]["errors"]} == {
        number: reason for number, (_, reason) in bad.items()
    }
    assert all(detail["message"] for detail in answer["error"]["errors"])
    assert [entry["id"] for entry in of(door, project)] == ["0", "3", "7"]
    status, answer = door.post(lines(event(project, id="line")) + b"\nno json\n\n[1]")
    assert (status, [detail["index"] for detail in answer["error"]["errors"]]) == (406, [1, 3])
    assert [detail["reason"] for detail in answer["error"]["errors"]] == ["not_json", "not_object"]
    assert [entry["id"] for entry in of(door, project)] == ["0", "3", "7", "line"]
    status, answer = door.post(
        json.dumps([{"metadata": {"project_ref": project}}, {"metadata": {}}]), "deno-relay-logs"
    )
    assert (status, answer["error"]["errors"][0]["reason"]) == (406, "no_project")
    door.service.wait_until_applied()
    assert door.service.ask_store("SELECT count(*) FROM rejects") == [(0,)]


def test_the_largest_element_that_the_topic_takes_is_taken(door: Door) -> None:
    project = ref()
    empty = len(json.dumps(event(project, id="x", event_message="")))
    fits = 200_000 - 100 - len(project) - empty
    assert door.post(json.dumps(event(project, id="x", event_message="y" * fits))) == (200, LOGGED)
    assert door.post(json.dumps(event(project, id="x", event_message="y" * (fits + 1))))[0] == 406
    many = [event(project, id=str(number), event_message="z" * 90_000) for number in range(20)]
    assert door.post(json.dumps(many)) == (200, LOGGED)
    assert len(of(door, project)) == 21


def test_an_element_that_holds_a_batch_is_one_element(door: Door) -> None:
    project, other = ref(), ref()
    inner = [event(other, id="inner")]
    sent = [event(project, id="a", batch=inner), event(project, resourceLogs=inner), event(project, batch=3, id="c")]
    assert door.post(json.dumps(sent)) == (200, LOGGED)
    door.service.wait_until_applied()
    assert len(door.service.rows("logs.all", project=project)) == 3
    assert door.service.rows("logs.all", project=other) == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b" \n", {}, 400),
        (b"no json", {}, 400),
        (b'{"a":', {}, 400),
        (b"17", {}, 400),
        (b'{"event_message":"\xff"}', {}, 400),
        (b"{}", {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"{}")[:-3], {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"{}") + b"rest", {"Content-Encoding": "gzip"}, 400),
        (gzip.compress(b"[]") + gzip.compress(b"") * 999, {"Content-Encoding": "gzip"}, 200),
        (gzip.compress(b"[]") + gzip.compress(b"") * 1000, {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Content-Encoding": "br"}, 415),
        (b"[" + b"{}," * 100_000 + b"{}]", {}, 413),
        (b"[]", {}, 200),
        (b'{"batch":[]}', {}, 200),
    ],
    ids=range(15),
)
def test_a_body_that_is_none_is_told_so_and_nothing_is_taken(
    door: Door, body: bytes, headers: dict[str, str], status: int
) -> None:
    before = len(door.logged(door.service.edge))
    answer = door.post(body, headers=headers)
    assert answer[0] == status
    assert answer[1] == LOGGED or answer[1]["error"]["message"]
    assert len(door.logged(door.service.edge)) == before


@pytest.mark.parametrize("source", [None, "", "postgres.logs", "cloudflare.logs.prod&source=deno-relay-logs"])
def test_a_source_that_is_none_is_a_400_that_lists_those_there_are(door: Door, source: str | None) -> None:
    status, answer = door.post(b"{}", source)
    assert status == 400
    assert "deno-relay-logs" in answer["error"]["errors"][0]["allowed"]


def test_a_body_over_12_mb_is_a_413_however_it_is_sent(door: Door) -> None:
    project = ref()
    body = json.dumps([event(project)]).encode()
    large = body + b" " * (LARGEST + 1 - len(body))
    assert door.post(large[:-1]) == (200, LOGGED)
    assert door.post(large)[0] == 413
    assert door.post(iter([large]))[0] == 413
    assert door.post(gzip.compress(large), headers={"Content-Encoding": "gzip"})[0] == 413
    assert door.post(iter([large[:65_536]] * 190))[0] == 413
    assert len(of(door, project)) == 1


def test_a_gzip_bomb_costs_neither_memory_nor_the_others_time(door: Door) -> None:
    bomb = gzip.compress(bytes(300_000_000), 1)
    assert len(bomb) < LARGEST
    master = door.service.processes[1].pid
    (child,) = Path(f"/proc/{master}/task/{master}/children").read_text().split()

    def peak() -> int:
        (line,) = [line for line in Path(f"/proc/{child}/status").read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) << 10

    door.post(b" " * LARGEST)
    before = peak()
    assert door.post(bomb, headers={"Content-Encoding": "gzip"})[0] == 413
    assert peak() < before + 3 * LARGEST
    assert door.post(json.dumps(event(ref()))) == (200, LOGGED)


def test_a_body_that_breaks_off_takes_nothing(door: Door) -> None:
    project = ref()
    body = lines(event(project), event(project))
    connection = http.client.HTTPConnection(door.service.settings.listen, timeout=60)
    connection.putrequest("POST", "/api/logs?source=cloudflare.logs.prod")
    connection.putheader("X-API-KEY", door.service.key)
    connection.putheader("Content-Length", str(len(body) + 1))
    connection.endheaders(body)
    connection.close()
    assert door.post(json.dumps(event(ref()))) == (200, LOGGED)
    assert of(door, project) == []


def test_a_key_needs_to_be_allowed_to_ingest(door: Door) -> None:
    project = ref()
    body = json.dumps(event(project))
    assert door.post(body, key="fr_nobody_secret")[0] == 401
    assert door.post(body, key=door.key(["query"]))[0] == 403
    writer = door.key(["ingest"])
    assert door.post(body, key=writer) == (200, LOGGED)
    assert len(of(door, project)) == 1


def test_a_key_of_a_project_writes_to_no_other(door: Door) -> None:
    mine, other = ref(), ref()
    key = door.key(["ingest"], [mine])
    sent = [event(mine, id="a"), event(other, id="b"), {"id": "no project"}, event(mine, id="d")]
    status, answer = door.post(json.dumps(sent), key=key)
    assert status == 406
    assert [(detail["index"], detail["reason"]) for detail in answer["error"]["errors"]] == [
        (1, "forbidden"),
        (2, "forbidden"),
    ]
    assert [entry["id"] for entry in of(door, mine)] == ["a", "d"]
    assert door.post(json.dumps(event(other)), key=key)[0] == 403
    hidden = f'[{{"project":"{mine}","\\u0062atch":[{{"project":"{other}","id":"hidden"}}]}}]'
    assert door.post(hidden, key=key) == (200, LOGGED)
    twice = f'[{{"project":"{mine}","project":"{other}"}}]'
    assert door.post(twice, key=key)[0] == 403
    door.service.wait_until_applied()
    assert door.service.rows("logs.all", project=other) == []
    for record, status in (({"project_ref": mine}, 200), ({"project_ref": other}, 403)):
        for response in ({}, {"response": {"status_code": 200}}):
            assert door.post(json.dumps({"metadata": record | response}), "deno-relay-logs", key=key)[0] == status


def test_other_methods_are_a_405(door: Door) -> None:
    reply = door.service.get("/api/logs")
    assert (reply.status, reply.body["error"]["status"]) == (405, "METHOD_NOT_ALLOWED")


def test_a_late_event_is_taken_and_an_event_a_day_ahead_is_not(door: Door) -> None:
    project, now = ref(), time.time_ns() // 1000
    times = [now - 80 * DAY, now + DAY - 60_000_000, now + DAY + 60_000_000]
    status, answer = door.post(json.dumps([event(project, timestamp=moment) for moment in times]))
    assert (status, answer["error"]["errors"][0]["index"], len(answer["error"]["errors"])) == (406, 2, 1)


@pytest.mark.parametrize("ending", ["closed", "half closed", "reset"])
def test_a_chunked_body_that_breaks_off_at_the_end_of_a_line_takes_nothing(door: Door, ending: str) -> None:
    """What has come is whole lines, and looks complete: that the last chunk, which is empty, has not come tells."""
    project = ref()
    line = json.dumps(event(project)).encode() + b"\n"
    host, _, port = door.service.settings.listen.rpartition(":")
    head = "POST /api/logs?source=cloudflare.logs.prod HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    head += f"X-API-KEY: {door.service.key}\r\n\r\n"
    for pieces, last, expected in ((3, b"", 0), (2, b"0\r\n\r\n", 2)):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(head.encode())
            for _ in range(pieces):
                connection.sendall(b"%x\r\n%b\r\n" % (len(line), line))
                time.sleep(0.2)
            connection.sendall(last)
            if last:
                assert connection.recv(15) == b"HTTP/1.1 200 OK"
            elif ending == "half closed":
                connection.shutdown(socket.SHUT_WR)
                assert not connection.recv(15).startswith(b"HTTP/1.1 200")
            elif ending == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert door.post(json.dumps(event(ref()))) == (200, LOGGED)
        assert len(of(door, project)) == expected


def test_schemathesis_finds_nothing_in_ingest(door: Door, tmp_path: Path) -> None:
    """Bodies that keep to the description and others against a real Kafka."""
    (tmp_path / "schemathesis.toml").write_text(
        '[checks]\npositive_data_acceptance.expected-statuses = ["200", "400", "401", "406"]\n'
    )
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(tmp_path / "schemathesis.toml")),
        *("run", f"http://{door.service.settings.listen}/openapi.json", "--header", f"X-API-KEY: {door.service.key}"),
        *("--checks", "all", "--phases", "examples,coverage,fuzzing", "--max-examples", "100"),
        *("--include-path", "/api/logs", "--continue-on-failure", "--no-color", "--seed", "20261121"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "1 selected / " in done.stdout
