"""What Supabase Studio sends and how it reads the answers (contract section 1), on a real gunicorn process."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from oracle import Record
from test_api_http import NAMES, Api, Filled, Reply
from test_api_http import filled as filled  # the fixture
from test_api_reader import NOW, fill

from ops.keys import add_key
from schema.timestamps import MINUTE, SECOND

REQUEST = {
    "method": "GET",
    "path": "/rest/v1/x",
    "search": "?a=1",
    "headers": {"x_real_ip": "1.2.3.4"},
    "cf": {"botManagement": {"score": 99}},
}
SENT = {"request": REQUEST, "response": {"status_code": 200, "headers": {"content_type": "json"}}}
REPEATED = [{**SENT, "request": [{**REQUEST, "headers": [REQUEST["headers"]]}], "response": [SENT["response"]]}]
BIG = 9_007_199_254_740_993  # not exact as a float
METADATA: list[Any] = [SENT, REPEATED, {**SENT, "big": BIG, "huge": 2**70, "n": 1.0, "list": [{"a": {}}, [{}], 1]}]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """An API that answers in arrays, with an entry for each metadata above, the last one newest."""
    folder = tmp_path_factory.mktemp("studio")
    records = [
        Record(
            "edge",
            0,
            offset,
            0,
            json.dumps({"timestamp": NOW - MINUTE + offset, "project": "p", "metadata": sent}).encode(),
        )
        for offset, sent in enumerate(METADATA)
    ]
    fill(folder / "data", [records])
    with Api(folder, FRESHET_METADATA_SHAPE="arrays") as api:
        yield Filled(api, add_key(folder / "data", "studio"))


def proxy(filled: Filled, name: str, query: str, **headers: str) -> Reply:
    """The request of Studio's server: a name on the `/query/` path, a content type and no body."""
    sent = {"Accept": "application/json", "Content-Type": "application/json", **headers}
    return filled.get(f"/api/endpoints/query/{name}?{query}", **sent)


def shown(reply: Reply) -> str | None:
    """What Studio shows of an answer that is no 2xx: `error.message`; a string `error` is lost."""
    if reply.status < 300:
        return None
    error = json.loads(reply.content)["error"]
    assert isinstance(error, dict)
    return str(error["message"])


def numbers(reply: Reply) -> list[str]:
    """All numbers of an answer, as they are written."""
    found: list[str] = []
    json.loads(reply.content, parse_int=found.append, parse_float=found.append)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_studios_request_is_answered_with_json(filled: Filled, name: str) -> None:
    reply = proxy(
        filled, name, "project=p&interval=1hr&iso_timestamp_start=&iso_timestamp_end=&project_tier=FREE&sql=x"
    )
    assert reply.status == 200
    assert len(reply.body["result"]) == 1


def test_studio_has_a_message_to_show_for_every_failure(filled: Filled) -> None:
    assert "interval" in str(shown(proxy(filled, "usage.api-counts", "project=p&interval=2hr")))
    assert "project" in str(shown(proxy(filled, "logs.all", "")))
    assert "nothing" in str(shown(proxy(filled, "nothing", "project=p")))
    bad = filled.api.get("/api/endpoints/query/logs.all?project=p", {"x-api-key": "bad"})
    assert "key" in str(shown(bad))
    assert bad.status == 401
    assert "long" in str(shown(proxy(filled, "logs.all", "project=" + "x" * 9000)))


def test_the_log_view_finds_its_fields(filled: Filled) -> None:
    (row,) = proxy(filled, "logs.all", "project=p").body["result"]
    assert isinstance(row["id"], str)
    assert isinstance(row["event_message"], str)
    assert isinstance(row["timestamp"], int)
    assert re.fullmatch("[0-9]{16}", str(row["timestamp"]))
    assert row["timestamp"] == NOW - MINUTE


def test_the_log_view_digs_through_arrays_of_one(studio: Filled) -> None:
    for row in proxy(studio, "logs.all", "project=p").body["result"]:
        (metadata,) = row["metadata"]
        (request,), (response,) = metadata["request"], metadata["response"]
        assert (request["method"], request["path"], response["status_code"]) == ("GET", "/rest/v1/x", 200)
        assert request["headers"][0]["x_real_ip"] == "1.2.3.4"
        assert request["cf"][0]["botManagement"][0]["score"] == 99


def test_numbers_in_metadata_stay_as_they_were_sent(studio: Filled, filled: Filled) -> None:
    reply = proxy(studio, "logs.all", "project=p")
    written = numbers(reply)
    assert str(BIG) in written
    assert str(2**70) in written
    assert "1.0" in written
    newest = reply.body["result"][0]["metadata"][0]
    assert newest["list"] == [{"a": [{}]}, [{}], 1]
    assert proxy(filled, "logs.all", "project=p").body["result"][0]["metadata"]["request"]  # as sent by default


def test_redaction_and_arrays_go_together(studio: Filled) -> None:
    for row in proxy(studio, "logs.all", "project=p", **{"LF-ENDPOINT-REDACT-PII": "true"}).body["result"]:
        assert row["metadata"][0]["request"][0]["headers"][0]["x_real_ip"] == "REDACTED"


@pytest.mark.parametrize(
    "interval", ["15min", "30min", "1hr", "3hr", "1day", "3day", "7day", "minutely", "hourly", "daily"]
)
def test_the_usage_chart_gets_texts_for_times_and_integers_for_totals(filled: Filled, interval: str) -> None:
    (row,) = proxy(filled, "usage.api-counts", f"project=p&interval={interval}").body["result"]
    assert isinstance(row["timestamp"], str)
    start = datetime.fromisoformat(row.pop("timestamp"))
    assert start.tzinfo is None
    assert 0 <= NOW / SECOND - start.replace(tzinfo=UTC).timestamp() <= 86_400
    families = ("rest", "storage", "auth", "realtime")
    assert row == {f"total_{family}_requests": int(family == "rest") for family in families}
    assert all(type(total) is int for total in row.values())


@pytest.mark.parametrize("name", NAMES)
def test_integers_are_never_written_as_floats(filled: Filled, name: str) -> None:
    reply = proxy(filled, name, "project=p&interval=1hr")
    floats = [number for number in numbers(reply) if not number.lstrip("-").isdecimal()]
    assert floats == (["12.0"] if name == "functions.invocation-stats" else [])  # the average
