"""The API as clients meet it: a real gunicorn process over a data folder that the test has filled."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_from_bytes
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Record
from service import free_port, wait_for
from test_api_reader import NOW, fill

from ops.keys import add_key
from schema.saved_queries import load_saved_queries
from schema.tables import migrate
from schema.timestamps import MINUTE

CLOCKED = Path(__file__).with_name("clocked.py")
QUERIES = load_saved_queries()
NAMES = ("functions.invocation-stats", "logs.all", "usage.api-counts")
FORMS = ("/api/endpoints/query/%s", "/api/endpoints/%s", "/api/endpoints/query/name/%s", "/endpoints/query/%s")
LOGS = "/api/endpoints/logs.all?project=p"
COUNTS = "/api/endpoints/usage.api-counts?project=p"
WORDS = ["minutely", "hourly", "daily", "15min", "30min", "1hr", "3hr", "1day", "3day", "7day"]
URL = "https://p.supabase.co/rest/v1/x"
ENTRY = {"id": "an id", "timestamp": NOW - MINUTE, "event_message": "said", "metadata": {"request": {"url": URL}}}
RUN = {"project_ref": "p", "function_id": "f", "execution_time_ms": 12, "response": {"status_code": 500}}
EDGE = Record("edge", 0, 0, 0, json.dumps({**ENTRY, "project": "p"}).encode())
INVOCATION = Record("functions", 0, 0, 0, json.dumps({"timestamp": NOW - MINUTE, "metadata": RUN}).encode())
STATISTICS = dict.fromkeys(("min_execution_time", "max_execution_time", "p95_execution_time", "p99_execution_time"), 12)
STATISTICS |= {"timestamp": 1_749_999_600_000_000, "avg_execution_time": 12, "count": 1, "error_count": 1}
TOTALS = {f"total_{family}_requests": int(family == "rest") for family in ("rest", "storage", "auth", "realtime")}
ROWS = {"functions.invocation-stats": STATISTICS, "logs.all": ENTRY}
ROWS |= {"usage.api-counts": {"timestamp": "2025-06-15T15:00:00", **TOTALS}}


@dataclass
class Reply:
    """An HTTP answer; `body` is what its JSON says."""

    status: int
    headers: Message
    content: bytes

    @property
    def body(self) -> Any:
        assert self.headers["Content-Type"] == "application/json"
        return json.loads(self.content)


class Api:
    """A gunicorn process on a data folder, with settings by their variables' names. Killed when left."""

    def __init__(self, folder: Path, script: Path = CLOCKED, **variables: str) -> None:
        self.data, self.log, self.port = folder / "data", folder / "api.log", free_port()
        self._clock = folder / "clock"
        self.set_clock(NOW)
        environment = {"FRESHET_DATA": str(self.data), "FRESHET_LISTEN": f"127.0.0.1:{self.port}", **variables}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(script), "api", str(folder / "clock")],
                cwd=folder,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        try:
            wait_for("the API", self._is_up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def set_clock(self, micros: int) -> None:
        """Give it this time."""
        new = self._clock.with_suffix(".new")
        new.write_text(str(micros))
        new.rename(self._clock)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/health").status == 200
        except OSError:
            return False

    def logged(self, act: Callable[[], object]) -> str:
        """What the log gets while something is done."""
        start, marker = self.log.stat().st_size, f"/{uuid4()}"
        act()
        self.get(marker)
        return str(wait_for("the log", lambda: marker in (text := self._log_from(start)) and text))

    def _log_from(self, start: int) -> str:
        return self.log.read_bytes()[start:].decode(errors="replace")

    def get(self, target: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Reply:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, target, headers=dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def send(self, request: bytes) -> Reply:
        """Raw bytes, and the answer to them; the server has to close the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return Reply(response.status, response.headers, response.read())


@dataclass
class Filled:
    """An API whose data folder holds one entry and one invocation, and a key to it."""

    api: Api
    key: str

    def get(self, target: str, method: str = "GET", **headers: str) -> Reply:
        return self.api.get(target, {"X-API-KEY": self.key, **headers}, method)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("api")
    fill(folder / "data", [[EDGE], [INVOCATION]])
    key = add_key(folder / "data", "test")
    with Api(folder) as api:
        yield Filled(api, key)


def error_in(reply: Reply, status: int) -> dict[str, Any]:
    """What an answer's error says; its shape is always the same."""
    assert reply.status == status, reply
    error: dict[str, Any] = reply.body["error"]
    assert set(reply.body) == {"error"}
    assert set(error) == {"code", "status", "message", "errors"}
    assert error["code"] == status
    assert error["status"] == error["status"].upper()
    assert error["message"]
    return error


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["name", "id"])
def test_every_endpoint_answers_on_every_path_by_name_and_by_id(filled: Filled, name: str, form: str, by: str) -> None:
    word = name if by == "name" else str(QUERIES[name].id)
    reply = filled.get(form % word + "?project=p&interval=hourly")
    assert reply.status == 200
    assert reply.body == {"result": [ROWS[name]]}
    assert reply.headers["Content-Length"] == str(len(reply.content))


@pytest.mark.parametrize("name", NAMES)
def test_an_id_is_the_same_in_upper_case(filled: Filled, name: str) -> None:
    identifier = str(QUERIES[name].id)
    for word in (identifier.upper(), identifier[:18].upper() + identifier[18:]):
        assert filled.get(f"/api/endpoints/{word}?project=p&interval=hourly").body == {"result": [ROWS[name]]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/plain", ""])
def test_a_content_type_without_a_body_is_no_fault(filled: Filled, name: str, content_type: str) -> None:
    headers = {"Content-Type": content_type, "Accept": "application/json"}
    assert filled.get(f"/api/endpoints/query/{name}?project=p&interval=hourly", **headers).body == {
        "result": [ROWS[name]]
    }
    headers["Content-Length"] = "0"
    assert filled.get(f"/api/endpoints/query/{name}?project=p&interval=hourly", **headers).status == 200


def test_unknown_and_empty_parameters_change_nothing(filled: Filled) -> None:
    extra = "&sql=SELECT+1&now=5&limit=1&limit=2&iso_timestamp_start=&iso_timestamp_end=&project_tier=&%FF=%FF&=&&"
    assert filled.get(LOGS + extra).body == {"result": [ENTRY]}


def test_head_answers_like_get_without_a_body_and_the_connection_goes_on(filled: Filled) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", filled.api.port, timeout=30)
    for target in (LOGS, "/health", "/nowhere", "/api/endpoints/logs.all"):
        answers = []
        for method in ("HEAD", "GET"):
            connection.request(method, target, headers={"X-API-KEY": filled.key})
            answers.append(connection.getresponse())
            content = answers[-1].read()
            assert bool(content) == (method == "GET")
        head, get = answers
        assert head.status == get.status
        assert head.headers["Content-Type"] == get.headers["Content-Type"] == "application/json"
        assert head.headers["Content-Length"] in (None, get.headers["Content-Length"])
    connection.close()


def test_the_key_is_taken_from_each_of_its_three_places(filled: Filled) -> None:
    get, key = filled.api.get, filled.key
    assert get(LOGS, {"Authorization": f"Bearer {key}"}).status == 200
    assert get(LOGS, {"authorization": f"bearer  {key} "}).status == 200
    assert get(LOGS, {"x-api-key": key}).status == 200
    assert get(f"{LOGS}&api_key={key}").status == 200
    assert get(LOGS, {"Authorization": "Basic dTpw", "X-API-KEY": key}).status == 200


def test_the_first_place_with_a_key_counts(filled: Filled) -> None:
    get, key = filled.api.get, filled.key
    assert get(LOGS, {"Authorization": f"Bearer {key}", "X-API-KEY": "bad"}).status == 200
    assert get(LOGS, {"Authorization": "Bearer bad", "X-API-KEY": key}).status == 401
    assert get(f"{LOGS}&api_key=bad", {"X-API-KEY": key}).status == 200
    assert get(f"{LOGS}&api_key={key}", {"X-API-KEY": "bad"}).status == 401


@pytest.mark.parametrize(
    "kind", ["", "x", "fr__", "fr_0_0", "unknown", "id only", "other secret", "other id", "longer"]
)
@pytest.mark.parametrize("place", ["Authorization", "X-API-KEY", "api_key"])
def test_a_bad_key_is_a_401_that_does_not_tell_it(filled: Filled, kind: str, place: str) -> None:
    _, identifier, secret = filled.key.split("_", 2)
    made = {
        "id only": f"fr_{identifier}",
        "other secret": f"fr_{identifier}_{secret[::-1]}",
        "longer": filled.key + "x",
    }
    made |= {"other id": f"fr_{identifier[::-1]}_{secret}", "unknown": "fr_0123456789ab_c2VjcmV0c2VjcmV0"}
    bad = made.get(kind, kind)
    headers = {"Authorization": f"Bearer {bad}"} if place == "Authorization" else {place: bad}
    reply = filled.api.get(f"{LOGS}&api_key={bad}") if place == "api_key" else filled.api.get(LOGS, headers)
    assert error_in(reply, 401)["status"] == "UNAUTHENTICATED"
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert len(bad) < 3 or bad.encode() not in reply.content


def test_without_a_key_there_is_a_401_whatever_else_is_wrong(filled: Filled) -> None:
    for target in (LOGS, "/api/endpoints/nothing", "/api/endpoints/usage.api-counts?interval=x"):
        assert "X-API-KEY" in error_in(filled.api.get(target), 401)["message"]


def test_the_access_log_holds_neither_keys_nor_query_strings(filled: Filled) -> None:
    path, bad = "/api/endpoints/logs.all", "fr_0123456789ab_never-to-be-logged"

    def ask() -> None:
        filled.api.get(f"{path}?api_key={filled.key}&project=query-in-the-log")
        filled.api.get(f"{path}?api_key={bad}&project=query-in-the-log")
        filled.api.get(path, {"X-API-KEY": bad, "Authorization": f"Bearer {bad}", "Referer": f"/?{bad}"})
        filled.api.send(b"GET /?api_key=%b query-in-the-log HTTP/1.1\r\nHost: x\r\n\r\n" % bad.encode())

    log = filled.api.logged(ask)
    lines = [json.loads(line) for line in log.splitlines()][-5:]  # a line comes a moment after its answer
    assert [line["status"] for line in lines] == [200, 401, 401, 400, 404]
    assert [line["path"] for line in lines[:4]] == [path, path, path, None]
    assert [line["key"] for line in lines[:4]] == ["test", None, None, None]
    for secret in (filled.key, filled.key.split("_", 2)[2], "never-to-be-logged", "query-in-the-log", "?"):
        assert secret not in log


@pytest.mark.parametrize(
    ("target", "parameter", "value", "allowed"),
    [
        *((f"{name}?interval=daily", "project", None, None) for name in NAMES),
        *((f"{name}?interval=daily&project=", "project", None, None) for name in NAMES),
        *((f"{name}?interval=daily&project=p&project=q", "project", "p, q", None) for name in NAMES),
        ("usage.api-counts?project=p", "interval", None, WORDS),
        ("usage.api-counts?project=p&interval=", "interval", None, WORDS),
        ("usage.api-counts?project=p&interval=weekly", "interval", "weekly", WORDS),
        ("usage.api-counts?project=p&interval=daily&interval=daily", "interval", "daily, daily", None),
        ("usage.api-counts?project=%28%3Fbad%E9&interval=daily", "project", "(?bad\ufffd", None),
        ("logs.all?project=p&iso_timestamp_start=soon", "iso_timestamp_start", "soon", None),
        ("logs.all?project=p&iso_timestamp_end=2025-06-15T%2B2", "iso_timestamp_end", "2025-06-15T+2", None),
    ],
)
def test_a_bad_parameter_is_a_400_that_names_it_its_value_and_what_is_allowed(
    filled: Filled, target: str, parameter: str, value: str | None, allowed: list[str] | None
) -> None:
    error = error_in(filled.get(f"/api/endpoints/{target}"), 400)
    (detail,) = error["errors"]
    assert error["message"] == f"{parameter}: {detail['message']}"
    assert (detail["parameter"], detail["value"], detail.get("allowed")) == (parameter, value, allowed)


def test_an_unencoded_plus_in_an_offset_is_understood(filled: Filled) -> None:
    moment = "2025-06-15T17:05:40.123456+02:00"
    assert filled.get(f"{LOGS}&iso_timestamp_end={moment}").body == {"result": [ENTRY]}
    assert filled.get(f"{LOGS}&iso_timestamp_start={moment}").body == {"result": []}


@pytest.mark.parametrize("form", FORMS)
def test_an_unknown_endpoint_is_a_404_that_lists_those_that_there_are(filled: Filled, form: str) -> None:
    for word in ("logs", "LOGS.ALL", "logs.ALL", "8f2c1d64-7b0e-4c55-9a6f-000000000000", "%00", "logs.all%20"):
        message = error_in(filled.get(form % word + "?project=p"), 404)["message"]
        assert all(name in message for name in NAMES)


def test_what_is_nowhere_is_a_404(filled: Filled) -> None:
    for target in (
        "/nowhere",
        "/api",
        "/api/endpoints/",
        "/api/endpoints/logs.all/",
        "http://x/nowhere",
    ):
        assert error_in(filled.get(target), 404)["status"] == "NOT_FOUND"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE"])
def test_another_method_is_a_405_that_says_which_are_allowed(filled: Filled, method: str) -> None:
    for target in (LOGS, "/health"):
        reply = filled.get(target, method)
        assert error_in(reply, 405)["status"] == "METHOD_NOT_ALLOWED"
        assert {"GET", "HEAD"} <= set(reply.headers["Allow"].split(", "))


@pytest.mark.parametrize("method", ["FOO", "GETT", "BREW", "X-Y"])
def test_a_method_that_http_does_not_know_is_a_501(filled: Filled, method: str) -> None:
    for target in (LOGS, "/health", "/nowhere"):
        assert error_in(filled.get(target, method), 501)["status"] == "NOT_IMPLEMENTED"


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_has_a_thousand_characters_at_most(filled: Filled, name: str) -> None:
    target = f"/api/endpoints/{name}?interval=hourly&project="
    assert filled.get(target + "x" * 1_000).body == {"result": []}
    assert filled.get(target + "%C3%A9" * 1_000).body == {"result": []}
    assert "1,000 are allowed" in error_in(filled.get(target + "x" * 1_001), 400)["message"]


def test_a_long_url_is_a_414(filled: Filled) -> None:
    assert filled.get(f"{LOGS}&unknown=" + "x" * 8_000).body == {"result": [ENTRY]}
    for length in (8_200, 20_000):
        assert error_in(filled.get(LOGS + "x" * length), 414)["status"] == "URI_TOO_LONG"


HOSTILE = (
    *(
        "%",
        "%zz",
        "%E0%A0",
        "%ED%A0%80",
        "%FF%FE",
        "%F4%90%80%80",
        "%00",
        "%u1234",
        "%0d%0aSet-Cookie:a=b",
        "+",
        "&&=&",
    ),
    *("a=b;c=d", "?", "x" * 7_000, "&".join(f"p{number}" for number in range(1_200)), "project=q&" * 700, "=" * 7_000),
    *("%F0%9F%98%80" * 500, "(" * 2_000, "%28" * 2_000, "a%7B1000%7D%7B1000%7D", "%28a*%29*b" * 300, "%5B%5E%5D" * 700),
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_anywhere_in_a_url_never_ends_in_a_500(filled: Filled, text: str) -> None:
    targets = [f"{LOGS}&{text}", f"{LOGS}&iso_timestamp_start={text}", f"{COUNTS}&interval={text}", f"/-{text}"]
    targets += [f"/api/endpoints/{name}?interval=hourly&project={text}&function_id={text[:99]}" for name in NAMES]
    targets += [f"{LOGS}&api_key={text}", f"/api/endpoints/{text.replace('?', '')}"]
    for target in targets:
        reply = filled.get(target)
        assert reply.status in (200, 400, 404)
        assert "result" in reply.body or error_in(reply, reply.status)
        assert "Set-Cookie" not in reply.headers


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from(("", "/", "&=%")))
def test_no_bytes_in_a_url_end_in_a_500(filled: Filled, name: bytes, value: bytes, safe: str) -> None:
    key, text = quote_from_bytes(name, safe), quote_from_bytes(value, safe)
    for target in (f"{LOGS}&{key}={text}", f"/api/endpoints/usage.api-counts?interval=1hr&project={text}"):
        assert filled.get(target).status in (200, 400)
    assert filled.get(f"/api/endpoints/{key}").status in (200, 404)
    assert filled.api.get(f"{LOGS}&api_key={text}").status == 401


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (200, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Weird: \xff\xfe\x80\r\n"),
        (401, b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-KEY: \xff\xed\xa0\x80\r\n" % LOGS.encode()),
        (401, b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-KEY: fr_\xff_\xed\xa0\r\n" % LOGS.encode()),
        (
            401,
            b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer fr_\x80_\x80\r\n"
            % LOGS.encode(),
        ),
        (400, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Nul: a\0b\r\n"),
        (400, b"GET /health HTTP/1.1\r\nHost: x\r\nNo colon\r\n"),
        (400, b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n"),
        (400, b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
        (400, b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        (400, b"GET /api/endpoints/\xff\xfe HTTP/1.1\r\nHost: x\r\n"),
        (400, b"GET /health HTTP/9.9\r\nHost: x\r\n"),
        (400, b"GET /health\r\n"),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n"),
        (431, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: %b\r\n" % (b"y" * 10_000)),
        (431, b"GET /health HTTP/1.1\r\nHost: x\r\n%b" % b"".join(b"X%d: y\r\n" % number for number in range(300))),
    ],
    ids=range(15),
)
def test_weird_bytes_in_a_request_head_get_an_answer(filled: Filled, status: int, head: bytes) -> None:
    reply = filled.api.send(head + b"\r\n")
    assert reply.status == status
    assert reply.body == {"status": "ok"} or error_in(reply, status)


def test_a_malformed_request_is_answered_without_telling_its_key(filled: Filled) -> None:
    reply = filled.api.send(b"GET /?project=a b&api_key=%b HTTP/1.1\r\nHost: x\r\n\r\n" % filled.key.encode())
    error_in(reply, 400)
    assert filled.key.encode() not in reply.content


def test_an_offer_to_speak_websocket_is_passed_over(filled: Filled) -> None:
    head = b"Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

    def ask() -> None:
        for target, status in ((b"/health", 200), (b"/nowhere", 404), (LOGS.encode(), 401)):
            assert filled.api.send(b"GET %b HTTP/1.1\r\n%b" % (target, head)).status == status

    assert "Traceback" not in filled.api.logged(ask)


def test_no_request_writes_a_log_line_of_its_own_making(filled: Filled) -> None:
    log = filled.api.logged(lambda: filled.get("/forged%0Aforged%1B[31m%00"))
    assert not [line for line in log.splitlines() if line.startswith("forged")]
    assert not {"\x1b", "\0"} & set(log)


def test_before_the_first_worker_queries_are_a_503_while_health_is_fine(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Api(tmp_path) as api:
        assert not list(data.glob("*.db"))
        unknown = {"X-API-KEY": "fr_0123456789ab_c2VjcmV0"}
        assert error_in(api.get(LOGS, unknown), 503)["status"] == "UNAVAILABLE"
        key = {"X-API-KEY": add_key(data, "test")}
        for name in NAMES:
            reply = api.get(f"/api/endpoints/{name}?project=p&interval=daily", key)
            assert "start a worker" in error_in(reply, 503)["message"]
            assert int(reply.headers["Retry-After"]) > 0
        error_in(api.get(LOGS, unknown), 401)
        error_in(api.get("/api/endpoints/logs.all", key), 400)
        assert api.get("/health").body == {"status": "ok"}
        migrate(data)
        for name in NAMES:
            assert api.get(f"/api/endpoints/{name}?project=p&interval=daily", key).body == {"result": []}


@pytest.mark.parametrize("idle", [False, True], ids=["with nobody connected", "with an idle connection"])
def test_sigterm_ends_it_within_seconds_with_exit_code_0(tmp_path: Path, idle: bool) -> None:
    with Api(tmp_path) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
        if idle:
            connection.request("GET", "/health")
            connection.getresponse().read()
        api.process.terminate()
        assert api.process.wait(10) == 0
        connection.close()
        with pytest.raises(ConnectionRefusedError):
            api.get("/health")
