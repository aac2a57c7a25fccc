"""Real producers, on the configurations of docs/producers, write to a real Kafka, and it shows over HTTP."""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Topics
from events import SECOND
from kafka_broker import KafkaBroker
from producers import (
    configured,
    log4j,
    nginx,
    otel_collector,
    post_logpush,
    post_logs,
    program,
    rsyslog,
    running,
    syslog_ng,
    telegraf,
)
from service import Service, free_port, wait_for

from ops.keys import add_key

NOW = 1_750_000_000_123_456
"""2025-06-15T15:06:40.123456Z"""
STAMP, STAMPED = "2025-06-15T17:06:30.250001+02:00", NOW - 9_873_455
ACCESS = '203.0.113.7 - - [15/Jun/2025:17:06:30 +0200] "%s %s HTTP/1.1" %d 312 "-" "curl/8 \\"x\\" é"'
REQUESTS = [("GET", "/rest/v1/todos?select=*", 200), ("POST", "/auth/v1/token", 401), ("PUT", "/storage/v1/a", 503)]
TOTALS = {"total_rest_requests": 1, "total_storage_requests": 1, "total_auth_requests": 1, "total_realtime_requests": 0}


@pytest.fixture(scope="module")
def serving(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("producers")
    topics = Topics(f"edge-{folder.name}", f"functions-{folder.name}")
    for name in topics:
        kafka.create_topic(name, 2, {"retention.ms": "-1"})
    with Service(folder, kafka, *topics) as service:
        service.set_clock(NOW)
        service.wait_for_log(service.start("worker"), "reading on from")
        service.start_api()
        yield service


@pytest.fixture
def places(serving: Service) -> dict[str, str]:
    """What the tests have elsewhere than the configurations say."""
    return {
        "localhost:9092": serving.kafka.bootstrap,
        "cloudflare.logs.prod": serving.edge,
        "deno-relay-logs": serving.functions,
    }


def rows_of(service: Service, project: str, count: int) -> list[dict[str, Any]]:
    """A project's entries, oldest first, once there are so many."""
    rows: list[dict[str, Any]] = wait_for(
        f"{count} entries of {project}",
        lambda: rows if len(rows := service.rows("logs.all", project=project, project_tier="PRO")) >= count else None,
    )
    assert len(rows) == count
    return rows[::-1]


def invocation(project: str) -> str:
    return json.dumps(
        {
            "timestamp": STAMP,
            "metadata": {
                "project_ref": project,
                "function_id": "f",
                "execution_time_ms": "12.5",
                "response": {"status_code": "500"},
            },
        }
    )


def statistics(service: Service, project: str) -> dict[str, Any]:
    """A project's one row of statistics, once it is there."""
    (row,) = wait_for(
        f"invocations of {project}",
        lambda: service.rows("functions.invocation-stats", project=project, interval="5min"),
    )
    return dict(row)


def syslog_lines(host: str, functions_project: str) -> list[bytes]:
    """RFC 5424 messages: an access line for each request, and a function's invocation."""
    lines = [f"<134>1 {STAMP} {host} edge - - - {ACCESS % request}" for request in REQUESTS]
    return [
        *(line.encode() for line in lines),
        f"<134>1 {STAMP} h functions - - - {invocation(functions_project)}".encode(),
    ]


def hold_syslog_rows(service: Service, project: str, host: str, functions_project: str) -> None:
    """The three access lines are entries with all their parts, counted, and the invocation is in the statistics."""
    rows = rows_of(service, project, 3)
    assert {row["timestamp"] for row in rows} == {STAMPED}
    assert sorted(row["event_message"] for row in rows) == sorted(ACCESS % request for request in REQUESTS)
    assert all(row["metadata"]["request"]["host"] == host for row in rows)
    seen = [
        (row["metadata"]["request"]["method"], row["metadata"]["request"]["path"], row["metadata"]["response"])
        for row in rows
    ]
    key = str
    assert sorted(seen, key=key) == sorted(((m, p, {"status_code": str(s)}) for m, p, s in REQUESTS), key=key)
    (counts,) = service.rows("usage.api-counts", project=f"^https://{host}/", interval="minutely")
    assert counts == {"timestamp": "2025-06-15T15:06:00", **TOTALS}
    stats = statistics(service, functions_project)
    assert (stats["count"], stats["error_count"], stats["min_execution_time"]) == (1, 1, 12.5)
    assert stats["timestamp"] == STAMPED // SECOND * SECOND


def test_rsyslog(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    port, host = free_port(), "rsyslog.example"
    project = {'\\"default\\"': '\\"rsyslog-project\\"'}
    configuration = configured("rsyslog.conf", tmp_path, **places, **{"5514": str(port)}, **project)
    with running(rsyslog(configuration), tmp_path), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        wait_for("rsyslog to listen", lambda: listens(port))
        for line in syslog_lines(host, "rsyslog-functions"):
            sender.sendto(line, ("127.0.0.1", port))
        hold_syslog_rows(serving, "rsyslog-project", host, "rsyslog-functions")


def test_syslog_ng(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    port, host = free_port(), "syslog-ng.example"
    configuration = configured(
        "syslog-ng.conf", tmp_path, **places, **{"5515": str(port), "project=default": "project=syslog-ng-project"}
    )
    with running(syslog_ng(configuration), tmp_path) as process:

        def send() -> bool:
            assert process.poll() is None
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as connection:
                    for line in syslog_lines(host, "syslog-ng-functions"):
                        connection.sendall(b"%d %s" % (len(line), line))
            except ConnectionRefusedError:
                return False
            return True

        wait_for("syslog-ng to listen", send)
        hold_syslog_rows(serving, "syslog-ng-project", host, "syslog-ng-functions")


@pytest.mark.parametrize("relay", ["rsyslog", "syslog-ng"])
def test_nginx_over_syslog(serving: Service, places: dict[str, str], tmp_path: Path, relay: str) -> None:
    """What nginx itself sends: RFC 3164 over UDP, without a hostname or with its machine's."""
    port, syslog_port, project, host = free_port(), free_port(), f"nginx-{relay}", f"nginx-{relay}.example"
    marks = {
        "rsyslog": {"5514": str(syslog_port), '\\"default\\"': f'\\"{project}\\"'},
        "syslog-ng": {"5515": str(syslog_port), "project=default": f"project={project}"},
    }
    configuration = configured(f"{relay}.conf", tmp_path, **places, **marks[relay])
    access_log = configured(
        "nginx-access-json.conf",
        tmp_path,
        **{"/var/log/nginx/access.json": str(tmp_path / "access.json"), "# access_log": "access_log"},
        **{"127.0.0.1:5514": f"127.0.0.1:{syslog_port}"},
    )
    relays, began = {"rsyslog": rsyslog, "syslog-ng": syslog_ng}, int(time.time())
    with (
        running(relays[relay](configuration), tmp_path),
        running(nginx(access_log, tmp_path, port, syslog_port), tmp_path),
    ):
        wait_for(f"{relay} to listen", lambda: listens(syslog_port))
        wait_for("nginx to listen", lambda: answers(port))
        requests = [("GET", '/rest/v1/todos?select="\\a"', 200), *REQUESTS[1:]]
        for method, path, _ in requests:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(method, path, headers={"Host": host, "Connection": "close"})
            connection.getresponse().read()
        rows = rows_of(serving, project, 3)
    hosts = [host, socket.gethostbyaddr("127.0.0.1")[0], socket.gethostname().lower()]
    for (method, path, status), its_host in zip(requests, hosts, strict=True):
        (row,) = (row for row in rows if row["metadata"]["request"]["path"] == path)
        assert row["metadata"] == {
            "request": {"method": method, "path": path, "host": its_host},
            "response": {"status_code": str(status)},
        }
        assert began <= row["timestamp"] / SECOND <= time.time()
        start = f"127.0.0.1 {method} " if its_host == host else "127.0.0.1 - - ["
        assert row["event_message"].startswith(start)
    counts = serving.rows("usage.api-counts", project=f"^https://{host}/", interval="hourly")
    assert sum(row["total_rest_requests"] for row in counts) == 1
    line = json.loads((tmp_path / "access.json").read_text())
    assert datetime.fromisoformat(line.pop("time")).tzinfo
    method, path, status = requests[0]
    assert line == {
        **{"method": method, "path": path, "host": host, "status": status},
        "line": f"127.0.0.1 {method} {path} HTTP/1.1",
    }


def test_kcat(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    configuration = configured("kcat.conf", tmp_path, **{"localhost:9092": places["localhost:9092"]})
    events = [{"timestamp": NOW - number, "project": "kcat", "event_message": f"line {number}"} for number in range(5)]
    lines, whole = tmp_path / "edge.ndjson", tmp_path / "edge.json"
    lines.write_text("".join(f"{json.dumps(event)}\n" for event in events[:3]))
    whole.write_text(json.dumps(events[3:], indent=1))
    produce = [program("kcat"), "-F", str(configuration), "-P", "-t", serving.edge]
    for arguments in (["-l", str(lines)], [str(whole)]):
        subprocess.run([*produce, *arguments], check=True, timeout=60, capture_output=True)
    rows = rows_of(serving, "kcat", 5)
    assert [row["event_message"] for row in rows] == [f"line {number}" for number in range(4, -1, -1)]


def request_metadata(host: str) -> list[dict[str, Any]]:
    """What the metadata of the requests are, the status a number."""
    return [{"request": {"method": m, "path": p, "host": host}, "response": {"status_code": s}} for m, p, s in REQUESTS]


def hold_requests(service: Service, project: str, metadata: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The project's rows: the requests, each once and with its line and its metadata."""
    rows = rows_of(service, project, 3)
    assert {row["event_message"]: row["metadata"] for row in rows} == dict(
        zip((ACCESS % request for request in REQUESTS), metadata, strict=True)
    )
    return rows


def hold_requests_at_their_time(service: Service, project: str, host: str) -> None:
    """The requests, with the time of their lines, are counted in its minute."""
    rows = hold_requests(service, project, request_metadata(host))
    assert {row["timestamp"] for row in rows} == {STAMPED}
    (counts,) = service.rows("usage.api-counts", project=f"^https://{host}/", interval="minutely")
    assert counts == {"timestamp": "2025-06-15T15:06:00", **TOTALS}


def test_log4j(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    """Its time is the program's own clock's; the ThreadContext has text alone."""
    host, project = "log4j.example", "log4j-project"
    edge = {name: places[name] for name in ("localhost:9092", "cloudflare.logs.prod")}
    configuration = configured("log4j2.xml", tmp_path, **edge, **{'"default"': f'"{project}"'})
    lines = "".join(f"{m}\t{p}\t{s}\t{ACCESS % (m, p, s)}\n" for m, p, s in REQUESTS)
    began = time.time_ns() // 1000
    ran = subprocess.run(
        log4j(configuration, host), input=lines.encode(), timeout=120, capture_output=True, check=True, cwd=tmp_path
    )
    assert not ran.stdout, ran.stdout
    metadata = request_metadata(host)
    for part in metadata:
        part["response"]["status_code"] = str(part["response"]["status_code"])
    rows = hold_requests(serving, project, metadata)
    assert all(began <= row["timestamp"] <= time.time_ns() // 1000 for row in rows)
    counts = serving.rows("usage.api-counts", project=f"^https://{host}/", interval="hourly")
    assert {name: sum(row[name] for row in counts) for name in TOTALS} == TOTALS


def write_access_log(log: Path, host: str) -> None:
    """The requests as nginx-access-json.conf has them written."""
    lines = [
        {"time": STAMP, "method": m, "path": p, "host": host, "status": s, "line": ACCESS % (m, p, s)}
        for m, p, s in REQUESTS
    ]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_telegraf(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    host, project, log = "telegraf.example", "telegraf-project", tmp_path / "access.json"
    edge = {name: places[name] for name in ("localhost:9092", "cloudflare.logs.prod")}
    files = {"/var/log/nginx/access.json": str(log), "/var/lib/telegraf/state": str(tmp_path / "state")}
    configuration = configured("telegraf.conf", tmp_path, **edge, **files, **{'"default"': f'"{project}"'})
    write_access_log(log, host)
    with running(telegraf(configuration), tmp_path):
        hold_requests_at_their_time(serving, project, host)


def test_telegraf_posts_to_the_api(serving: Service, tmp_path: Path) -> None:
    """With a key that may write to its project alone."""
    host, project, log = "telegraf-http.example", "telegraf-http-project", tmp_path / "access.json"
    configuration = configured(
        "telegraf-http.conf",
        tmp_path,
        **{"localhost:4000": serving.settings.listen, '"default"': f'"{project}"'},
        **{"/var/log/nginx/access.json": str(log), "/var/lib/telegraf/state": str(tmp_path / "state")},
    )
    write_access_log(log, host)
    key = add_key(serving.settings.data, "telegraf", projects=[project], allow=["ingest"])
    with running(telegraf(configuration), tmp_path, FRESHET_KEY=key):
        hold_requests_at_their_time(serving, project, host)


def test_logpush_through_telegraf(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    port, project, password = free_port(), "logpush-project", "secret"
    edge = {name: places[name] for name in ("localhost:9092", "cloudflare.logs.prod")}
    configuration = configured(
        "logpush-telegraf.conf",
        tmp_path,
        **edge,
        **{"localhost:8443": f"localhost:{port}", '"default"': f'"{project}"'},
    )
    lines = (Path(__file__).with_name("samples") / "logpush.ndjson").read_bytes()
    with running(telegraf(configuration), tmp_path, LOGPUSH_PASSWORD=password):
        check = b'{"content":"tests"}'
        assert wait_for("Telegraf to listen", lambda: post_logpush(port, password, check)) == 204
        assert post_logpush(port, "guessed", lines) == 401
        assert post_logpush(port, password, lines) == 204
        rows = rows_of(serving, project, 3)
    assert [row["timestamp"] for row in rows] == [STAMPED // SECOND * SECOND] * 2 + [STAMPED]
    for row in rows:
        assert row["event_message"] == "GET | 200 | 203.0.113.7 | 41ddf1740f67442d | /rest/v1/todos"
        assert row["metadata"] == {
            "request": {"protocol": "", "method": "GET", "host": "logpush.example", "path": "/rest/v1/todos"},
            "response": {"status_code": 200},
        }
    (counts,) = serving.rows("usage.api-counts", project="^https://logpush.example/", interval="minutely")
    assert counts == {"timestamp": "2025-06-15T15:06:00", **dict.fromkeys(TOTALS, 0), "total_rest_requests": 3}


def otlp(value: Any) -> dict[str, Any]:
    """A text, a whole number or a map in OTLP's JSON."""
    if isinstance(value, dict):
        return {"kvlistValue": {"values": otlp_attributes(value)}}
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def otlp_attributes(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": otlp(value)} for key, value in fields.items()]


def test_otel_collector(serving: Service, places: dict[str, str], tmp_path: Path) -> None:
    port, project, host = free_port(), "otel-project", "otel.example"
    topic = {name: places[name] for name in ("cloudflare.logs.prod",)}
    configuration = configured("otel-collector.yaml", tmp_path, **topic, **{"localhost:4318": f"localhost:{port}"})
    records = [
        {
            "timeUnixNano": f"{STAMPED}999",
            "body": otlp(ACCESS % request),
            "attributes": otlp_attributes({"metadata": each}),
        }
        for request, each in zip(REQUESTS, request_metadata(host), strict=True)
    ]
    resource = {"resource": {"attributes": otlp_attributes({"project": project})}}
    logs = {"resourceLogs": [{**resource, "scopeLogs": [{"logRecords": records}]}]}
    with running(otel_collector(configuration), tmp_path, KAFKA_BROKER=serving.kafka.bootstrap):
        wait_for("the collector to listen", lambda: post_logs(port, logs))
        hold_requests_at_their_time(serving, project, host)


def listens(port: int) -> bool:
    """Whether a program takes datagrams at a port; to bind it for a try would take it from the program."""
    return f":{port:04X} " in Path("/proc/net/udp").read_text()


def answers(port: int) -> bool:
    """Whether a program takes connections at a port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return False
    return True
