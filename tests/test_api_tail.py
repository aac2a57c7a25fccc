"""The tail over HTTP: a real gunicorn process streams what another process writes."""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from service import wait_for
from test_api_arrivals import Log
from test_api_http import Api

from api.tail import BEAT_SECONDS, MOST_TAILS
from ops.keys import add_key, revoke_key

PATIENCE = 30.0


class Event(NamedTuple):
    """One that was sent."""

    name: str
    id: str
    data: Any


class Tail:
    """A connection that follows. Closed when left."""

    def __init__(self, api: Api, key: str, query: str = "project=p", **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=PATIENCE)
        self.connection.request("GET", f"/api/tail?{query}", headers={"X-API-KEY": key, **headers})
        self.answer = self.connection.getresponse()

    def __enter__(self) -> "Tail":
        assert self.answer.status == 200, self.answer.read()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def next(self) -> Event:
        """The next event; one named `eof` at the stream's end."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            field, _, fields[field] = [*line.partition(": ")]
        return Event(fields["event"], fields["id"], json.loads(fields["data"])) if fields else Event("eof", "", None)

    def numbers(self, count: int) -> tuple[list[int], str]:
        """The ids of the next entries, and the place behind them."""
        found: list[int] = []
        place = ""
        while len(found) < count:
            event = self.next()
            assert event.name in ("entries", "place"), event
            found += [int(row["id"]) for row in event.data.get("result", ())]
            place = event.id
        return found, place


class Served(NamedTuple):
    """A store, an API over it, and a key."""

    log: Log
    api: Api
    key: str


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    log = Log(tmp_path / "data")
    with Api(tmp_path) as api:
        yield Served(log, api, add_key(log.data, "follower"))


def test_entries_come_as_they_are_applied_in_the_form_of_logs_all(served: Served) -> None:
    with Tail(served.api, served.key) as tail:
        assert tail.answer.headers["Content-Type"] == "text/event-stream"
        assert tail.answer.headers["Cache-Control"] == "no-store"
        assert tail.next()[::2] == ("place", {})
        served.log.send(1, metadata={"big": 9_007_199_254_740_993, "text": "a\nb\r\u2028"})
        event = tail.next()
    assert event.name == "entries"
    (row,) = event.data["result"]
    assert set(row) == {"id", "timestamp", "event_message", "metadata"}
    assert row["metadata"] == {"big": 9_007_199_254_740_993, "text": "a\nb\r\u2028"}


def test_a_cut_stream_goes_on_behind_the_last_event_in_whichever_process(served: Served, tmp_path: Path) -> None:
    with Tail(served.api, served.key) as tail:
        tail.next()
        served.log.send(3, 2)
        numbers, place = tail.numbers(5)
        assert sorted(numbers) == [*range(5)]
    served.log.send(*[1] * 40)
    served.log.seal(closing_too=True)
    os.kill(served.api.process.pid, signal.SIGHUP)  # the next process answers
    time.sleep(1)
    with Tail(served.api, served.key, **{"Last-Event-ID": place}) as tail:
        assert tail.numbers(40)[0] == [*range(5, 45)]
    with Tail(served.api, served.key, f"project=p&cursor={place}") as tail:
        assert tail.numbers(40)[0] == [*range(5, 45)]


def test_what_the_client_does_not_read_is_not_kept_for_it(served: Served) -> None:
    def resident() -> int:
        children = Path(f"/proc/{served.api.process.pid}/task/{served.api.process.pid}/children").read_text().split()
        return max(int(Path(f"/proc/{child}/statm").read_text().split()[1]) * 4096 for child in children)

    with Tail(served.api, served.key) as tail:
        tail.next()
        served.log.send(1)
        tail.next()
        before = resident()
        for _ in range(6):
            served.log.send(*[8] * 8, event_message="x" * 60_000)  # 4 MB each
            time.sleep(0.6)
        assert resident() - before < 16 << 20
        assert len(set(tail.numbers(6 * 64)[0])) == 6 * 64


def test_only_who_may_query_a_project_may_follow_it(served: Served) -> None:
    scoped = add_key(served.log.data, "scoped", projects=("p",))
    ingest = add_key(served.log.data, "ingest", allow=("ingest",))
    counts = add_key(served.log.data, "counts", endpoints=("usage.api-counts",))
    with Tail(served.api, scoped) as tail:
        assert tail.next().name == "place"
    for key, query, status, said in (
        ("", "project=p", 401, "no API key"),
        ("fr_0_0", "project=p", 401, "not known"),
        (scoped, "project=q", 403, "scope"),
        (ingest, "project=p", 403, "not allowed to query"),
        (counts, "project=p", 403, "may not ask"),
        (served.key, "", 400, "project"),
        (served.key, "project=p&cursor=there", 400, "place"),
        (served.key, "project=p&min_status=x", 400, "min_status"),
    ):
        reply = served.api.get(f"/api/tail?{query}", {"X-API-KEY": key})
        assert (reply.status, said in reply.body["error"]["message"]) == (status, True), reply.body


def test_a_key_tells_its_holder_what_it_may(served: Served) -> None:
    scoped = add_key(served.log.data, "scoped", projects=("q", "p"), allow=("ingest",))
    assert served.api.get("/api/key", {"X-API-KEY": scoped}).body == {
        "name": "scoped",
        "projects": ["p", "q"],
        "endpoints": None,
        "allow": ["ingest"],
    }
    assert served.api.get("/api/key", {"X-API-KEY": "fr_0_0"}).status == 401


def test_followers_are_few_and_make_room_when_they_leave(served: Served) -> None:
    tails = [Tail(served.api, served.key) for _ in range(MOST_TAILS)]
    for tail in tails:
        assert tail.answer.status == 200
    refused = served.api.get("/api/tail?project=p", {"X-API-KEY": served.key})
    assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
    for tail in tails:
        tail.__exit__()

    def room() -> bool:
        tail = Tail(served.api, served.key)
        tail.answer.close()
        tail.connection.close()
        return tail.answer.status == 200

    wait_for("room", room)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stream_ends_in_order_when_its_process_does(served: Served, number: signal.Signals) -> None:
    with Tail(served.api, served.key) as tail:
        tail.next()
        begun = time.monotonic()
        threading.Timer(0.3, os.kill, (served.api.process.pid, number)).start()
        event = tail.next()
        assert (event.name, "stops" in event.data["message"]) == ("end", True)
        assert tail.next().name == "eof"
        assert time.monotonic() - begun < 6
    if number == signal.SIGTERM:
        assert served.api.process.wait(10) == 0


def test_where_nothing_comes_a_place_does_and_a_revoked_key_ends_it(served: Served) -> None:
    with Tail(served.api, served.key) as tail:
        place = tail.next().id
        served.log.send(5, project="another")
        begun = time.monotonic()
        event = tail.next()
        assert event.name == "place"
        assert event.id != place
        assert time.monotonic() - begun > BEAT_SECONDS - 2
        revoke_key(served.log.data, "follower")
        while (event := tail.next()).name == "place":
            pass
        assert (event.name, "not known" in event.data["message"]) == ("end", True)
    with Tail(served.api, add_key(served.log.data, "other"), **{"Last-Event-ID": "7-1"}) as tail:
        assert [tail.next().name for _ in range(2)] == ["place", "missed"]
