"""Requests that came before are answered as Falcon answered them, as long as nothing about them has changed."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from falcon.asgi import App, Request, Response
from test_api_caching import COUNTS, KEPT, LOGS, STATISTICS, Kept, edge, invocation
from test_api_http import Api, Reply
from test_api_reader import NOW, fill, in_another_process

from api.access_log import Noted
from api.auth import Caller, Gate
from api.cache import Cache
from api.databases import ControlReader, Key
from api.errors import install_errors
from api.key_uses import KeyUses
from api.meters import IN_FLIGHT
from api.queries import QueryResource
from api.questions import Kept as KeptAnswer
from api.questions import Question
from api.rates import Rates
from api.repeated import Repeated
from ops.keys import add_key, revoke_key
from schema.errors import FreshetError, Overloaded, QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.tables import control_path, migrate
from schema.timestamps import MINUTE

TARGETS = (STATISTICS, COUNTS, LOGS)
PASSING = {"age", "cache-status", "date"}


@pytest.fixture(scope="module", params=["", "*", "https://a.example https://b.example"])
def kept(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("repeated")
    fill(folder / "data", [[edge(offset=0)], [invocation(0)]])
    with Api(folder, FRESHET_CORS_ORIGINS=request.param) as api:
        yield Kept(api, add_key(folder / "data", "one"), 1)


def lasting(reply: Reply) -> dict[str, str]:
    """The header fields of an answer that do not change from one moment to the next."""
    return {name.lower(): value for name, value in reply.headers.items() if name.lower() not in PASSING}


def logged(kept: Kept, target: str, **headers: str) -> dict[str, Any]:
    """What the access log tells of a request."""
    text = kept.api.logged(lambda: kept.get(target, **headers))
    lines = [json.loads(line) for line in text.splitlines() if '"endpoint"' in line]
    (line,) = [line for line in lines if line["path"] == target.partition("?")[0]][-1:]  # others may come late
    found: dict[str, Any] = line
    return found


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://a.example"}, {"Cache-Control": "no-cache"}])
@pytest.mark.parametrize("target", TARGETS)
def test_a_repeated_request_gets_the_same_answer_and_fields(kept: Kept, target: str, headers: dict[str, str]) -> None:
    first, *others = [kept.get(target, **headers) for _ in range(4)]
    assert first.status == 200
    for reply in others:
        assert (reply.status, reply.body) == (200, first.body)
        assert lasting(reply) == lasting(first)
        assert {name.lower() for name in reply.headers} >= PASSING


def test_the_access_log_tells_of_it_as_of_the_first(kept: Kept) -> None:
    first, second = (logged(kept, f"{STATISTICS}&unknown=1") for _ in range(2))
    for line in (first, second):
        del line["time"], line["ms"], line["cache"]
    assert first == second
    assert (first["endpoint"], first["key"], first["status"]) == ("functions.invocation-stats", "one", 200)


@pytest.mark.parametrize("target", KEPT)
def test_conditions_and_other_methods_are_heard_in_between(kept: Kept, target: str) -> None:
    tag = [kept.get(target) for _ in range(3)][-1].headers["ETag"]
    unchanged = kept.get(target, **{"If-None-Match": tag})
    assert (unchanged.status, unchanged.content) == (304, b"")
    head = kept.get(target, "HEAD")
    assert (head.status, head.content, head.headers["ETag"]) == (200, b"", tag)
    assert kept.get(target, "POST").status == 405
    assert kept.get(target).status == 200


def test_a_key_counts_as_it_is_stored_now(kept: Kept) -> None:
    data = kept.api.data
    key = add_key(data, "passing")
    asked = {"X-API-KEY": key}
    assert [kept.get(STATISTICS, **asked).status for _ in range(3)] == [200] * 3
    with closing(sqlite3.connect(control_path(data))) as db:
        db.execute("UPDATE keys SET projects = '[\"other\"]' WHERE name = 'passing'")
        db.commit()
        assert kept.get(STATISTICS, **asked).status == 403
        db.execute("UPDATE keys SET projects = NULL WHERE name = 'passing'")
        db.commit()
    assert [kept.get(STATISTICS, **asked).status for _ in range(3)] == [200] * 3
    revoke_key(data, "passing")
    assert kept.get(STATISTICS, **asked).status == 401
    short = {"X-API-KEY": add_key(data, "short", expires_at=NOW + MINUTE)}
    assert [kept.get(STATISTICS, **short).status for _ in range(3)] == [200] * 3
    kept.api.set_clock(NOW + MINUTE)
    try:
        assert kept.get(STATISTICS, **short).status == 401
    finally:
        kept.api.set_clock(NOW)


def test_a_request_that_differs_anywhere_is_another_one(kept: Kept) -> None:
    assert [kept.get(LOGS).status for _ in range(2)] == [200] * 2
    assert kept.get(LOGS.replace("project=p", "project=q")).body == {"result": []}
    assert kept.get(LOGS, **{"X-API-KEY": f"{kept.key}x"}).status == 401
    redacted = [kept.get(LOGS, **{"LF-Endpoint-Redact-PII": "true"}).content for _ in range(2)]
    assert redacted[0] == redacted[1]
    assert b"1.2.3.4" not in redacted[0]
    assert b"1.2.3.4" in kept.get(LOGS).content


ONLY_Q = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute("UPDATE keys SET projects = '[\\"q\\"]'")
"""
REVOKE = (
    "import sys; from pathlib import Path; from ops.keys import revoke_key; revoke_key(Path(sys.argv[1]), sys.argv[2])"
)


class Failing:
    """Computes answers, until it is told how to fail; the application around it, without a server."""

    def __init__(self, data: Path) -> None:
        migrate(data)
        self.key, self.asked = add_key(data, "one"), 0
        self.error: FreshetError | None = None
        control, clock = ControlReader(data), lambda: NOW
        cache, uses = Cache(self.compute, clock, 1 << 20), KeyUses(data)
        behind: App[Request, Response] = App(middleware=[Noted(), Gate(control, clock, uses, Rates(0))])
        install_errors(behind)
        behind.add_route("/{endpoint}", QueryResource(load_saved_queries(), cache, clock))
        self.app = Repeated(behind, control, cache, clock, uses)
        self.scope: dict[str, Any] = {}

    async def compute(self, question: Question) -> KeptAnswer:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return KeptAnswer(b"{}", '"tag"', NOW, {"content-type": "application/json", "etag": '"tag"'}, 0)

    async def ask(self, query: bytes = b"project=p") -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, fields and body of an answer."""
        sent: list[dict[str, Any]] = []
        path = "/logs.all"
        headers = [(b"host", b"x"), (b"x-api-key", self.key.encode())]
        self.scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path}
        self.scope |= {"raw_path": path.encode(), "query_string": query, "headers": headers, "scheme": "http"}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(self.scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.mark.parametrize("error", [QueryTimeout("too slow"), Overloaded("too many")])
def test_what_fails_is_told_once_and_as_ever(tmp_path: Path, error: FreshetError) -> None:
    failing = Failing(tmp_path)

    async def act() -> None:
        for _ in range(2):
            assert (await failing.ask())[0] == 200
        in_flight, asked = IN_FLIGHT.count, failing.asked
        failing.error = error
        status, fields, body = await failing.ask()
        assert (status, fields[b"retry-after"], fields[b"content-type"]) == (503, b"2", b"application/json")
        assert json.loads(body)["error"]["message"] == str(error)
        assert fields[b"content-length"] == str(len(body)).encode()
        assert failing.asked == asked + 1
        assert IN_FLIGHT.count == in_flight + 1, "the access log takes one away for each"
        failing.error = None
        assert (await failing.ask())[0] == 200

    asyncio.run(act())


def test_a_key_is_looked_at_once_a_round_of_the_loop_and_anew_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(tmp_path)
    looked: list[str] = []
    has = ControlReader.has

    def looking(self: ControlReader, identifier: str, key: Key) -> bool:
        looked.append(identifier)
        return has(self, identifier, key)

    async def statuses() -> list[int]:
        return [status for status, _, _ in await asyncio.gather(*(failing.ask() for _ in range(5)))]

    async def act() -> None:
        assert (await failing.ask())[0] == 200
        monkeypatch.setattr(ControlReader, "has", looking)
        assert await statuses() == [200] * 5
        assert len(looked) == 1
        assert await statuses() == [200] * 5
        assert len(looked) == 2
        in_another_process(REVOKE, tmp_path, "one")
        assert await statuses() == [401] * 5

    asyncio.run(act())


def test_a_key_that_was_looked_at_for_another_request_has_to_be_the_same(tmp_path: Path) -> None:
    failing = Failing(tmp_path)

    async def act() -> None:
        assert [(await failing.ask())[0] for _ in range(2)] == [200] * 2
        in_another_process(ONLY_Q, control_path(tmp_path))
        assert [(await failing.ask(b"project=q"))[0] for _ in range(2)] == [200] * 2
        await asyncio.sleep(0)
        both = await asyncio.gather(failing.ask(b"project=q"), failing.ask(b"project=p"))
        assert [status for status, _, _ in both] == [200, 403]

    asyncio.run(act())


def test_no_key_is_kept_in_memory(tmp_path: Path) -> None:
    failing = Failing(tmp_path)

    async def act() -> None:
        for _ in range(3):
            assert (await failing.ask())[0] == 200

    asyncio.run(act())
    known = failing.app._known
    assert len(known) == 1
    ((head, (understood, fields)),) = known.items()
    secret = failing.key.split("_", 2)[2]
    assert isinstance(understood.caller, Caller)
    assert secret.encode() not in head
    assert secret not in repr((understood, fields))


def test_keys_that_can_not_be_read_are_told_as_ever(tmp_path: Path) -> None:
    fill(tmp_path / "data", [[edge(offset=0)]])
    key = add_key(tmp_path / "data", "one")
    with Api(tmp_path) as api:
        for _ in range(2):
            assert api.get(LOGS, {"X-API-KEY": key}).status == 200
        add_key(tmp_path / "data", "two")  # so that the pages are read again
        for name in ("control.db", "control.db-wal"):
            with (tmp_path / "data" / name).open("r+b") as file:
                file.write(b"\xff" * 65536)
        repeated, other = (api.get(target, {"X-API-KEY": key}) for target in (LOGS, f"{LOGS}&unknown=1"))
        assert (repeated.status, repeated.body) == (other.status, other.body)
        assert lasting(repeated) == lasting(other)
        assert repeated.status == 500
