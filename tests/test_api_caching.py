"""Kept answers as clients meet them: a real gunicorn process on a clock that the test sets."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from oracle import Record
from service import wait_for
from test_api_http import Api, Reply
from test_api_reader import NOW, fill

from ops.keys import add_key
from schema.tables import control_path, make_store, store_path
from schema.timestamps import MINUTE, SECOND, parse_iso

STATISTICS = "/api/endpoints/functions.invocation-stats?project=p&interval=1hr"
COUNTS = "/api/endpoints/usage.api-counts?project=supabase&interval=minutely"
LOGS = "/api/endpoints/logs.all?project=p"
KEPT = (STATISTICS, COUNTS)


def edge(project: str = "p", offset: int = 0) -> Record:
    url = f"https://{project}.supabase.co/rest/v1/x"
    event = {"id": "i", "timestamp": NOW - MINUTE, "project": project, "event_message": "from 1.2.3.4"}
    return Record("edge", 0, offset, NOW // 1000, json.dumps({**event, "metadata": {"request": {"url": url}}}).encode())


def invocation(offset: int = 0) -> Record:
    metadata = {"project_ref": "p", "function_id": "f", "response": {"status_code": 200}}
    value = json.dumps({"timestamp": NOW - MINUTE, "metadata": metadata}).encode()
    return Record("functions", 0, offset, NOW // 1000, value)


def count(reply: Reply) -> int:
    """How many events an answer counts."""
    assert reply.status == 200, reply
    rows: list[dict[str, Any]] = reply.body["result"]
    return sum(row.get("count", row.get("total_rest_requests", 1)) for row in rows)


@dataclass
class Kept:
    """An API with a key, whose tables a test adds to."""

    api: Api
    key: str
    added: int = 0

    def get(self, target: str, method: str = "GET", **headers: str) -> Reply:
        return self.api.get(target, {"X-API-KEY": self.key, **headers}, method)

    def add(self) -> None:
        """One more event for each endpoint."""
        fill(self.api.data, [[edge(offset=self.added)], [invocation(self.added)]])
        self.added += 1


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with Api(tmp_path) as api:
        made = Kept(api, add_key(api.data, "test"))
        made.add()
        yield made


@pytest.mark.parametrize("target", KEPT)
def test_an_answer_is_kept_for_its_lifetime_and_tells_its_age(kept: Kept, target: str) -> None:
    first = kept.get(target)
    assert (count(first), first.headers["Age"], first.headers["Cache-Status"]) == (1, "0", "Freshet; fwd=miss")
    kept.add()
    for seconds in (1, 299):
        kept.api.set_clock(NOW + seconds * SECOND)
        reply = kept.get(target)
        assert (count(reply), reply.headers["Age"], reply.headers["Cache-Status"]) == (1, str(seconds), "Freshet; hit")
        date = parsedate_to_datetime(reply.headers["Date"]).timestamp()
        assert date - int(reply.headers["Age"]) == NOW // SECOND
        assert reply.headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize("target", KEPT)
@pytest.mark.parametrize("refusal", ["no-cache", "max-age=0"])
def test_a_client_that_refuses_older_answers_gets_a_fresh_one_for_all(kept: Kept, target: str, refusal: str) -> None:
    first = kept.get(target)
    kept.add()
    assert count(kept.get(target)) == 1
    fresh = kept.get(target, **{"Cache-Control": refusal})
    assert (count(fresh), fresh.headers["Cache-Status"]) == (2, "Freshet; fwd=request")
    assert fresh.headers["ETag"] != first.headers["ETag"]
    later = kept.get(target)
    assert (count(later), later.headers["Cache-Status"]) == (2, "Freshet; hit")


def test_what_is_used_is_computed_anew_every_300_seconds_by_itself(kept: Kept) -> None:
    for target in KEPT:
        kept.get(target)
    kept.add()
    kept.api.set_clock(NOW + 300 * SECOND - 1)
    assert [count(kept.get(target)) for target in KEPT] == [1, 1]
    for periods in (1, 2, 3, 4):
        kept.api.set_clock(NOW + periods * 300 * SECOND)
        for target in KEPT:
            wait_for("the warmer", lambda: kept.get(target).headers["Age"] == "0")  # noqa: B023
            reply = kept.get(target)
            assert (count(reply), reply.headers["Cache-Status"]) == (2, "Freshet; hit")


def test_what_nobody_used_for_its_lifetime_is_computed_when_it_is_asked_for(kept: Kept) -> None:
    kept.get(STATISTICS)
    kept.add()
    kept.api.set_clock(NOW + 1801 * SECOND)
    reply = kept.get(STATISTICS)
    assert (count(reply), reply.headers["Cache-Status"]) == (2, "Freshet; fwd=miss")


def test_nothing_is_kept_of_logs_all(kept: Kept) -> None:
    for expected in (1, 2, 3):
        reply = kept.get(LOGS)
        assert (count(reply), reply.headers["Age"]) == (expected, "0")
        assert reply.headers["Cache-Status"] == "Freshet; fwd=bypass"
        kept.add()


@pytest.mark.parametrize("target", [*KEPT, LOGS])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_that_has_an_answer_is_not_sent_it_again(kept: Kept, target: str, method: str) -> None:
    first = kept.get(target)
    tag = first.headers["ETag"]
    for tags in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        reply = kept.get(target, method, **{"If-None-Match": tags})
        assert (reply.status, reply.content) == (304, b"")
        for name in ("ETag", "Cache-Control", "Vary", "Age", "Date", "Freshet-Complete-Until"):
            assert reply.headers[name], name
    for tags in ('"other"', tag.strip('"'), ""):
        assert kept.get(target, method, **{"If-None-Match": tags}).status == 200
    kept.add()
    reply = kept.get(target, method, **{"If-None-Match": tag, "Cache-Control": "no-cache"})
    assert (reply.status, reply.headers["ETag"] == tag) == (200, False)


@pytest.mark.parametrize("target", [*KEPT, LOGS])
def test_an_answer_says_who_may_keep_it_and_how_complete_it_is(kept: Kept, target: str) -> None:
    with closing(sqlite3.connect(store_path(kept.api.data, 1))) as db, db:
        db.execute("UPDATE positions SET applied_at = ?, end_offset = next_offset", (NOW - 1,))
        db.execute("UPDATE positions SET applied_at = ? WHERE topic = 'functions'", (NOW - 5 * SECOND,))
        db.execute(  # the log of a topic before it was created anew
            """INSERT INTO positions (log, topic, partition, next_offset, end_offset, applied_at)
            SELECT 'former', topic, partition, 1, 9, 1 FROM positions"""
        )
    reply = kept.get(target)
    assert reply.headers["Cache-Control"] == "private, max-age=0, must-revalidate"
    assert {"Authorization", "X-API-KEY"} <= set(reply.headers["Vary"].split(", "))
    assert parse_iso(reply.headers["Freshet-Complete-Until"]) == NOW - 5 * SECOND
    head = kept.get(target, "HEAD")
    assert head.headers["Content-Length"] == str(len(reply.content))
    for name in ("ETag", "Vary", "Cache-Control", "Freshet-Complete-Until", "Content-Type"):
        assert head.headers[name] == reply.headers[name]


def test_errors_are_neither_kept_nor_tagged(kept: Kept) -> None:
    for target in (COUNTS + "&interval=x", "/api/endpoints/nothing"):
        reply = kept.get(target)
        assert reply.status in (400, 404)
        assert "ETag" not in reply.headers
        assert "Age" not in reply.headers


def test_another_generation_answers_from_its_own_tables(kept: Kept) -> None:
    data = kept.api.data
    assert [count(kept.get(target)) for target in KEPT] == [1, 1]
    make_store(store_path(data, 2))
    with closing(sqlite3.connect(control_path(data))) as db, db:
        db.execute("UPDATE generation SET current = 2")
    assert [kept.get(target).body for target in KEPT] == [{"result": []}] * 2
    with closing(sqlite3.connect(control_path(data))) as db, db:
        db.execute("UPDATE generation SET current = 1")
    assert [count(kept.get(target)) for target in KEPT] == [1, 1]


def test_keys_of_other_scopes_never_share_answers(kept: Kept) -> None:
    fill(kept.api.data, [[edge("q", kept.added)]])
    keys = {name: add_key(kept.api.data, name) for name in ("p", "q", "r")}
    with closing(sqlite3.connect(control_path(kept.api.data))) as db, db:
        for name in keys:
            db.execute("UPDATE keys SET projects = ? WHERE name = ?", (json.dumps([name]), name))
    for _ in range(2):
        assert count(kept.get(COUNTS)) == 2
        assert [count(kept.api.get(COUNTS, {"X-API-KEY": key})) for key in keys.values()] == [1, 1, 0]


def test_addresses_are_taken_out_for_those_alone_who_ask(kept: Kept) -> None:
    header = "LF-ENDPOINT-REDACT-PII"
    messages = {"true": "from REDACTED", "TRUE": "from REDACTED", "false": "from 1.2.3.4", "": "from 1.2.3.4"}
    for value, message in [*messages.items(), *messages.items()]:
        reply = kept.get(LOGS, **{header: value})
        assert reply.body["result"][0]["event_message"] == message
        assert header.lower() in reply.headers["Vary"].lower()
    for target in KEPT:
        assert kept.get(target).headers["Cache-Status"] == "Freshet; fwd=miss"
        assert kept.get(target, **{header: "true"}).headers["Cache-Status"] == "Freshet; fwd=miss"


def test_every_process_warms_what_it_keeps(tmp_path: Path) -> None:
    with Api(tmp_path, FRESHET_API_PROCESSES="2") as api:
        kept = Kept(api, add_key(api.data, "test"))
        kept.add()

        def replies() -> list[Reply]:
            return [kept.get(STATISTICS) for _ in range(20)]

        wait_for("both to have it", lambda: [r for r in replies() if "miss" in r.headers["Cache-Status"]])
        wait_for("all hits", lambda: all("hit" in reply.headers["Cache-Status"] for reply in replies()))
        kept.add()
        assert 1 in {count(reply) for reply in replies()}
        api.set_clock(NOW + 300 * SECOND)
        wait_for("both warmers", lambda: {count(reply) for reply in replies()} == {2})
        assert {reply.headers["Cache-Status"] for reply in replies()} == {"Freshet; hit"}
        api.process.terminate()
        assert api.process.wait(10) == 0
        assert "Traceback" not in api.log.read_text()
