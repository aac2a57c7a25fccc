"""What a key may see and do, and how soon that counts: on a real process, with keys as `freshet keys` makes them."""

import hashlib
import hmac
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import falcon
import pytest
from falcon.testing import create_asgi_req
from oracle import Record
from service import wait_for
from test_api_http import FORMS, NAMES, QUERIES, Api, error_in
from test_api_reader import NOW, fill

from api.auth import authenticate
from api.databases import ControlReader
from ops.keys import add_key, list_keys, revoke_key
from schema.keys import NOBODY
from schema.tables import control_path
from schema.timestamps import MINUTE

PROJECTS = ("one", "two", "three")
COUNTS = "/api/endpoints/usage.api-counts?interval=hourly&project="


def records() -> list[list[Record]]:
    """An entry and an invocation of each project."""
    edge, functions = [], []
    for offset, project in enumerate(PROJECTS):
        url = f"https://{project}.supabase.co/rest/v1/x"
        entry = {"id": project, "timestamp": NOW - MINUTE, "project": project, "metadata": {"request": {"url": url}}}
        run = {"project_ref": project, "function_id": "f", "execution_time_ms": 12, "response": {"status_code": 200}}
        edge.append(Record("edge", 0, offset, 0, json.dumps(entry).encode()))
        invocation = {"timestamp": NOW - MINUTE, "metadata": run}
        functions.append(Record("functions", 0, offset, 0, json.dumps(invocation).encode()))
    return [edge, functions]


class Asked:
    """An API over three projects' events."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def key(self, name: str, **scope: Any) -> str:
        return add_key(self.api.data, name, replace=True, **scope)

    def get(self, key: str, target: str) -> Any:
        return self.api.get(target, {"X-API-KEY": key})

    def status(self, key: str, target: str = "/api/endpoints/logs.all?project=one") -> int:
        return int(self.get(key, target).status)

    def hits(self, key: str, pattern: str) -> int:
        reply = self.get(key, COUNTS + pattern)
        assert reply.status == 200, reply
        return sum(row["total_rest_requests"] for row in reply.body["result"])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("auth")
    fill(folder / "data", records())
    with Api(folder) as api:
        yield Asked(api)


def test_a_key_without_a_scope_sees_all(asked: Asked) -> None:
    key = asked.key("all")
    for project in PROJECTS:
        for name in ("logs.all", "functions.invocation-stats"):
            reply = asked.get(key, f"/api/endpoints/{name}?project={project}&interval=hourly")
            assert len(reply.body["result"]) == 1
    assert asked.hits(key, "supabase") == 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["name", "id"])
@pytest.mark.parametrize("name", ["logs.all", "functions.invocation-stats"])
def test_a_project_has_to_be_in_a_keys_scope(asked: Asked, form: str, by: str, name: str) -> None:
    key = asked.key("two of three", projects=["one", "two"])
    target = form % (name if by == "name" else str(QUERIES[name].id))
    for project in ("one", "two"):
        assert len(asked.get(key, f"{target}?project={project}").body["result"]) == 1
    for project in ("three", "ONE", "one%20", "o", "nobody", "one%00", ".*"):
        error = error_in(asked.get(key, f"{target}?project={project}"), 403)
        assert error["status"] == "PERMISSION_DENIED"
    error_in(asked.get(key, target), 400)


@pytest.mark.parametrize(
    "pattern",
    ["", ".", ".*", "supabase", "three%7Cone", "three%7Ctwo%7Cone", "%5Ehttps", "x%24", "%28%3Fi%29SUPABASE", "%5Cbx"],
)
def test_a_pattern_finds_the_scopes_projects_alone(asked: Asked, pattern: str) -> None:
    some, one, none = (asked.key(name, projects=refs) for name, refs in SCOPES.items())
    if not pattern:
        error_in(asked.get(some, COUNTS), 400)
        return
    assert asked.hits(asked.key("all"), pattern) in (2, 3)
    assert asked.hits(some, pattern) in (1, 2)
    assert asked.hits(one, pattern) == 1
    assert asked.hits(none, pattern) == 0


SCOPES = {"some": ["one", "two"], "one": ["one"], "none": ["fourth"]}


def test_a_pattern_that_names_another_project_finds_nothing(asked: Asked) -> None:
    key = asked.key("one", projects=["one"])
    assert [asked.hits(key, pattern) for pattern in ("one", "two", "three", "t")] == [1, 0, 0, 1]
    assert [asked.hits(asked.key("all"), pattern) for pattern in ("one", "two", "three", "t")] == [1, 1, 1, 3]


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_has_to_be_in_a_keys_scope(asked: Asked, name: str) -> None:
    for scope in (name, str(QUERIES[name].id)):
        key = asked.key("endpoints", endpoints=[scope])
        for other in NAMES:
            for word in (other, str(QUERIES[other].id), str(QUERIES[other].id).upper()):
                reply = asked.get(key, f"/api/endpoints/{word}?project=one&interval=hourly")
                assert reply.status == (200 if other == name else 403)


def test_a_key_to_send_with_may_not_ask(asked: Asked) -> None:
    assert asked.status(asked.key("ingest", allow=["ingest"])) == 403
    assert asked.status(asked.key("both", allow=["ingest", "query"])) == 200


def test_a_key_is_taken_until_it_expires_and_revoked_at_once(asked: Asked) -> None:
    expired = asked.get(asked.key("expired", expires_at=NOW), "/api/endpoints/logs.all?project=one")
    assert "expired" in error_in(expired, 401)["message"]
    assert asked.status(asked.key("not yet", expires_at=NOW + 1)) == 200
    key = asked.key("revoked")
    assert asked.status(key) == 200
    revoke_key(asked.api.data, "revoked")
    assert asked.status(key) == 401
    assert asked.status(asked.key("revoked")) == 200
    assert asked.status(key) == 401


@pytest.mark.parametrize("id_known", [True, False])
def test_a_secret_is_compared_in_constant_time_whether_the_id_is_known_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_known: bool
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", compare)
    key = add_key(tmp_path, "one")
    sent = key[:-1] + "~" if id_known else "fr_0123456789ab_secret"
    request = create_asgi_req(headers={"X-API-KEY": sent})
    with closing(ControlReader(tmp_path)) as control, pytest.raises(falcon.HTTPUnauthorized):
        authenticate(request, control)
    ((left, right),) = compared
    assert left == hashlib.sha256(sent.split("_", 2)[2].encode()).digest()
    assert (right == NOBODY) != id_known


def test_a_change_counts_in_every_process_within_a_second(tmp_path: Path) -> None:
    fill(tmp_path / "data", [])
    with Api(tmp_path, FRESHET_API_PROCESSES="3") as api:
        asked = Asked(api)
        for _ in range(3):
            key = asked.key("changing")
            assert {asked.status(key) for _ in range(60)} == {200}
            begun = time.monotonic()
            revoke_key(api.data, "changing")
            assert {asked.status(key) for _ in range(60)} == {401}
            assert time.monotonic() - begun < 5


def test_the_last_use_is_noted_and_only_of_those_who_were_let_in(tmp_path: Path) -> None:
    fill(tmp_path / "data", [])
    with Api(tmp_path) as api:
        asked = Asked(api)
        used, unused = asked.key("used"), asked.key("unused")
        asked.status(used)
        asked.status(unused[:-1] + ("A" if unused[-1] != "A" else "B"))
        api.process.terminate()
        assert api.process.wait(10) == 0
        assert {key.name: key.last_used_at for key in list_keys(api.data)} == {"used": NOW, "unused": None}


def test_a_rate_is_kept_by_key_and_told_in_the_headers(tmp_path: Path) -> None:
    fill(tmp_path / "data", [])
    with Api(tmp_path, FRESHET_RATE_LIMIT="20") as api:
        asked = Asked(api)
        key, other = asked.key("eager"), asked.key("other")
        target = "/api/endpoints/logs.all?project=one"
        begun = time.monotonic()
        replies = [asked.get(key, target) for _ in range(60)]
        seconds = time.monotonic() - begun
        counts = Counter(reply.status for reply in replies)
        assert set(counts) == {200, 429}
        assert 20 <= counts[200] <= 20 + 20 * seconds + 1
        assert replies[0].headers["RateLimit-Policy"] == '"key";q=20;w=1'
        assert replies[0].headers["RateLimit"] == '"key";r=19;t=1'
        refused = next(reply for reply in replies if reply.status == 429)
        assert error_in(refused, 429)["status"] == "RESOURCE_EXHAUSTED"
        assert int(refused.headers["Retry-After"]) == 1
        assert asked.status(other) == 200
        assert api.get("/health").headers["RateLimit"] is None
        time.sleep(int(refused.headers["Retry-After"]))
        assert asked.status(key) == 200


def test_without_a_limit_there_are_no_such_headers(asked: Asked) -> None:
    reply = asked.get(asked.key("all"), "/api/endpoints/logs.all?project=one")
    assert reply.headers["RateLimit"] is None


def test_on_an_ipv6_address_it_answers_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "FRESHET_LISTEN": f"[::1]:{port}", "FRESHET_DATA": str(tmp_path / "data")}
    command = [sys.executable, "-m", "ops", "up"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        wait_for("the welcome", lambda: f"answers at http://[::1]:{port}" in (tmp_path / "log").read_text())
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_keys_of_an_older_freshet_are_a_503_that_says_so_until_they_are_brought_up_to_date(tmp_path: Path) -> None:
    fill(tmp_path / "data", [])
    key = add_key(tmp_path / "data", "test")
    with closing(sqlite3.connect(control_path(tmp_path / "data"))) as db, db:
        for column in ("projects", "endpoints", "allow", "expires_at", "last_used_at"):
            db.execute(f"ALTER TABLE keys DROP COLUMN {column}")
        db.execute("DELETE FROM _sqlite_migrations WHERE name = '0002_key_scopes'")
    with Api(tmp_path) as api:
        asked = Asked(api)
        reply = asked.get(key, "/api/endpoints/logs.all?project=one")
        assert "older Freshet" in error_in(reply, 503)["message"]
        list_keys(api.data)
        assert asked.status(key) == 200
