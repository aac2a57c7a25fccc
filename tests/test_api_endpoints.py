"""Endpoints of one's own over HTTP, the listing of all, and the two that come beside the specification's."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from events import Traffic
from oracle import STATS_INTERVALS, Invocation, Oracle, Record, _milliseconds, _percentile, percentile_agrees
from oracle import _whole as whole_milliseconds
from test_api_http import EDGE, INVOCATION, Api, Filled, error_in
from test_api_reader import LOG, NOW, fill, reading

from api.bodies import body
from api.endpoints import by_name, load_endpoints
from ops.keys import add_key
from schema.errors import SavedQueryError
from schema.saved_queries import load_saved_queries
from schema.settings import Settings
from schema.tables import control_path

OWN = """\
-- name: invocations.by-day
-- about: Invocations of a project by day.
-- cache_seconds: 60
-- parameter: project string required -- The project's reference.
-- parameter: days integer: 1..9 = 7
-- column: day string
-- column: count integer

SELECT datetime_text(bucket) AS day, count
FROM invocations
WHERE project = @project AND function = '' AND grain = 86400 AND bucket > @now - @days * 86400000000
ORDER BY bucket DESC
"""


def scoped_key(data: Path, name: str, *endpoints: str) -> str:
    """A key that may ask these endpoints alone. Made before an API runs."""
    key = add_key(data, name)
    with closing(sqlite3.connect(control_path(data))) as db, db:
        db.execute("UPDATE keys SET endpoints = ? WHERE name = ?", (json.dumps(endpoints), name))
    return key


@dataclass
class Own(Filled):
    """An API with an endpoint of one's own, and a key that may ask two endpoints alone."""

    scoped: str


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    folder = tmp_path_factory.mktemp("own")
    fill(folder / "data", [[EDGE], [INVOCATION]])
    (folder / "data" / "endpoints").mkdir()
    (folder / "data" / "endpoints" / "by-day.sql").write_text(OWN)
    key = add_key(folder / "data", "test")
    search = str(load_saved_queries()["logs.search"].id)  # an endpoint may be named by its id too
    scoped = scoped_key(folder / "data", "scoped", search, "invocations.by-day")
    with Api(folder) as api:
        yield Own(api, key, scoped)


def test_a_file_in_the_folder_is_an_endpoint_with_its_parameters_checked(own: Own) -> None:
    path = "/api/endpoints/invocations.by-day"
    assert own.get(f"{path}?project=p").body == {"result": [{"day": "2025-06-15T00:00:00", "count": 1}]}
    assert own.get(f"{path}?project=q&days=").body == {"result": []}
    assert own.get(f"{path}?project=p&days=9").body["result"]
    for days in ("0", "10", "1.0", "x", "1e1", "٣", "-", " 1", "9" * 30):
        detail = error_in(own.get(f"{path}?project=p&days={quote(days)}"), 400)
        assert detail["errors"] == [{"parameter": "days", "value": days, "message": "not a whole number from 1 to 9"}]
    assert error_in(own.get(path), 400)["errors"][0]["parameter"] == "project"
    assert error_in(own.api.get(f"{path}?project=p"), 401)


def test_the_listing_has_every_endpoint_with_the_fields_of_the_specification(own: Own) -> None:
    reply = own.get("/api/endpoints")
    assert reply.status == 200
    listed = {endpoint["name"]: endpoint for endpoint in reply.body["result"]}
    assert list(listed) == sorted([*by_name(load_saved_queries()), "invocations.by-day"])
    for name, query in by_name(load_saved_queries()).items():
        fields = listed[name]
        assert (fields["id"], fields["language"], fields["max_rows"]) == (str(query.id), "sql", 1000)
        assert (fields["cache_seconds"], fields["warming_seconds"]) == (query.cache_seconds, query.warming_seconds)
        assert fields["sandboxed"] is False
        assert [parameter["name"] for parameter in fields["parameters"]] == [one.name for one in query.parameters]
    assert listed["invocations.by-day"]["parameters"] == [
        {"name": "project", "type": "string", "required": True, "about": "The project's reference."},
        {
            "name": "days",
            "type": "integer",
            "required": False,
            "about": "",
            "minimum": 1,
            "maximum": 9,
            "default": 7,
        },
    ]
    assert {name for name, fields in listed.items() if fields["cache_seconds"] is None} == {"logs.all", "logs.search"}
    reply = own.api.get("/api/endpoints", {"X-API-KEY": own.scoped})
    assert [endpoint["name"] for endpoint in reply.body["result"]] == ["invocations.by-day", "logs.search"]
    message = error_in(own.api.get("/api/endpoints/nope", {"X-API-KEY": own.scoped}), 404)["message"]
    assert message.endswith("there are invocations.by-day, logs.search")
    error_in(own.api.get("/api/endpoints"), 401)
    error_in(own.get("/api/endpoints", "POST"), 405)


def test_an_empty_folder_or_none_at_all_is_no_fault_but_one_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    assert load_endpoints(Settings(data=tmp_path)).keys() == load_saved_queries().keys()
    (tmp_path / "endpoints").mkdir()
    assert load_endpoints(Settings(data=tmp_path)).keys() == load_saved_queries().keys()
    (tmp_path / "endpoints" / "own.sql").write_text(OWN)
    assert "invocations.by-day" in load_endpoints(Settings(data=tmp_path))
    assert "invocations.by-day" in load_endpoints(Settings(endpoints=str(tmp_path / "endpoints")))
    with pytest.raises(SavedQueryError, match="nowhere is no folder: FRESHET_ENDPOINTS"):
        load_endpoints(Settings(data=tmp_path, endpoints=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN.replace("count\nFROM", "nope\nFROM"), "by-day.sql:9: no such column: nope"),
        (OWN.replace("days integer", "days number"), "by-day.sql:5: a parameter is NAME TYPE"),
        (OWN.replace("invocations.by-day", "logs.all"), "logs.all is the name or id of another endpoint already"),
    ],
)
@pytest.mark.parametrize("command", ["api", "up"])
def test_a_wrong_file_ends_the_start_with_its_name_and_line(tmp_path: Path, text: str, said: str, command: str) -> None:
    (tmp_path / "by-day.sql").write_text(text)
    environment = {**os.environ, "FRESHET_DATA": str(tmp_path / "data"), "FRESHET_ENDPOINTS": str(tmp_path)}
    arguments = [sys.executable, "-m", "ops", command]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_logs_search_goes_on_from_the_cursor_over_http(own: Own) -> None:
    path = "/api/endpoints/logs.search"
    reply = own.get(f"{path}?project=p&limit=1&path=/rest")
    assert (reply.status, set(reply.body), len(reply.body["result"]), reply.body["next"]) == (
        200,
        {"result", "next"},
        1,
        None,
    )
    assert own.get(f"{path}?project=p&limit=1&cursor=1").body == {"result": [], "next": None}
    for cursor in ("x", "-1", "1-2", "1-2-a", "1-2-AA", "12345678901234567", "1-2-" + "00" * 129, "1\n"):
        reply = own.get(f"{path}?project=p&cursor={quote(cursor)}")
        assert error_in(reply, 400)["errors"][0]["parameter"] == "cursor"
    for limit in (0, 101, -1):
        assert error_in(own.get(f"{path}?project=p&limit={limit}"), 400)["errors"][0]["parameter"] == "limit"


def statistics(function: str | None, found: list[Invocation]) -> dict[str, Any]:
    """The row of a function, from its invocations one by one."""
    times = sorted(one.execution_time for one in found if one.execution_time is not None)
    classes = {
        f"count_{n}xx": sum(one.status is not None and one.status // 100 == n for one in found) for n in range(1, 6)
    }
    return {
        "function_id": function,
        "count": len(found),
        "error_count": sum(one.status is not None and one.status >= 400 for one in found),
        **classes,
        "min_execution_time": _milliseconds(times[0]) if times else None,
        "max_execution_time": _milliseconds(times[-1]) if times else None,
        "avg_execution_time": sum(times) / (len(times) * 1000) if times else None,
        **{f"p{percent}_execution_time": _percentile(times, percent) for percent in (50, 75, 90, 95, 99)},
    }


def agree(answered: dict[str, Any], exact: dict[str, Any]) -> None:
    assert list(answered) == list(exact)
    smallest, largest = (
        None if exact[name] is None else whole_milliseconds(round(exact[name] * 1000))
        for name in ("min_execution_time", "max_execution_time")
    )
    for column, value in exact.items():
        if column[0] == "p":
            assert percentile_agrees(answered[column], value, smallest, largest), column
        else:
            assert json.dumps(answered[column]) == json.dumps(value), column


def test_function_statistics_equal_every_invocation_counted_in_turn(tmp_path: Path) -> None:
    traffic = Traffic(7, NOW, "edge", "functions")
    messages = [message for message in traffic.messages(4000) + traffic.window_edges() if message.topic == "functions"]
    records = [Record("functions", 0, at, one.timestamp_ms, one.value) for at, one in enumerate(messages)]
    Random(1).shuffle(records)
    records = [Record("functions", 0, at, one.timestamp_ms, one.value) for at, one in enumerate(records)]
    oracle = Oracle(LOG, "edge", "functions")
    oracle.feed(records)
    fill(tmp_path, [records[at : at + 300] for at in range(0, len(records), 300)])
    query = load_saved_queries()["functions.statistics"]
    rows = 0
    with reading(tmp_path) as reader:
        for project in [*traffic.projects, traffic.default, traffic.quiet, "never-heard-of"]:
            for interval, (span, size) in STATS_INTERVALS.items():
                found: dict[str | None, list[Invocation]] = {}
                for one in oracle.invocations:
                    if one.project == project and one.timestamp >= NOW // size * size - span:
                        found.setdefault(None, []).append(one)
                        if one.function:
                            found.setdefault(one.function, []).append(one)
                order = sorted(found, key=lambda name: (name is not None, -len(found[name]), name or ""))
                functions = [None, *order[1:2], "no-such-function"]
                for function in functions:
                    parameters = {"project": project, "function_id": function, "interval": interval}
                    answer = json.loads(body(query, reader.run(query, parameters, None, NOW, 10)))["result"]
                    names = [name for name in order if function in (None, name)]
                    assert [row["function_id"] for row in answer] == names
                    for row in answer:
                        agree(row, statistics(row["function_id"], found[row["function_id"]]))
                    rows += len(answer)
    assert rows > 200
