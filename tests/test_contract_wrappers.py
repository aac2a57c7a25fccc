"""The rules of the Wrappers foreign data wrapper for Logflare (contract section 1), on a real gunicorn process."""

import json
import threading
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from service import wait_for
from test_api_http import NAMES, Api, Filled, Reply
from test_api_http import filled as filled  # the fixture

from ops.keys import add_key
from schema.tables import migrate

COLUMNS = {
    "functions.invocation-stats": {
        "timestamp": "bigint", "min_execution_time": "bigint", "max_execution_time": "bigint",
        "avg_execution_time": "double precision", "p95_execution_time": "bigint", "p99_execution_time": "bigint",
        "count": "bigint", "error_count": "bigint",
    },
    "logs.all": {"id": "text", "timestamp": "bigint", "event_message": "text"},
    "usage.api-counts": {
        "timestamp": "timestamp", "total_rest_requests": "bigint", "total_storage_requests": "bigint",
        "total_auth_requests": "bigint", "total_realtime_requests": "bigint",
    },
}  # fmt: skip
TRIES, PAUSE = 4, 0.2


class SqlError(Exception):
    """What the wrapper raises in the database that queries through it."""


def request(api: Api, key: str, target: str) -> Reply:
    """Its request: failures that may pass are tried again three times."""
    for attempt in range(TRIES):
        reply = api.get(target, {"x-api-key": key})
        if reply.status < 500 and reply.status not in (408, 429):
            break
        if attempt < TRIES - 1:
            time.sleep(PAUSE * 2**attempt)
    return reply


def scan(reply: Reply, columns: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of a foreign table. Raises SqlError as the wrapper does."""
    if reply.status == 404:
        return []
    if not 200 <= reply.status < 300:
        raise SqlError(f"HTTP {reply.status}")
    if not reply.content.strip():
        return []
    document = json.loads(reply.content, parse_float=Decimal)
    if document is None:
        return []
    rows = document.get("result")
    if not isinstance(rows, list):
        raise SqlError("no result array")
    return [{name: cell(row.get(name), kind) for name, kind in columns.items()} for row in rows]


def cell(value: Any, kind: str) -> Any:
    """A value as a column's type; an integer written as a float is none, and text has to be a string."""
    if value is None:
        return None
    if kind == "bigint" and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if kind == "double precision" and type(value) in (int, Decimal):
        return float(value)
    if kind == "text" and isinstance(value, str):
        return value
    if kind == "timestamp" and isinstance(value, str):
        return datetime.fromisoformat(value)
    raise SqlError(f"{value!r} is no {kind}")


@pytest.mark.parametrize("name", NAMES)
def test_every_column_of_every_endpoint_can_be_selected(filled: Filled, name: str) -> None:
    rows = scan(filled.get(f"/api/endpoints/query/{name}?project=p&interval=1hr"), COLUMNS[name])
    assert len(rows) == 1
    assert None not in rows[0].values()


def test_the_wrappers_rules_tell_good_answers_from_bad_ones() -> None:
    assert cell(5, "bigint") == 5
    for value, kind in ((Decimal("5.0"), "bigint"), ("5", "bigint"), (5, "text"), (5, "timestamp"), (True, "bigint")):
        with pytest.raises(SqlError):
            cell(value, kind)


@pytest.mark.parametrize("name", NAMES)
def test_where_there_is_nothing_there_are_no_rows_and_no_error(filled: Filled, name: str) -> None:
    assert scan(filled.get(f"/api/endpoints/query/{name}?project=zzz&interval=1hr"), COLUMNS[name]) == []
    assert scan(filled.get("/api/endpoints/query/nothing?project=p"), COLUMNS[name]) == []


@pytest.mark.parametrize(
    "target", ["logs.all", "usage.api-counts?project=p", "usage.api-counts?project=(&interval=1hr", "logs.all?project="]
)
def test_a_request_that_is_wrong_is_an_sql_error_never_no_rows(filled: Filled, target: str) -> None:
    with pytest.raises(SqlError, match="400"):
        scan(filled.get(f"/api/endpoints/query/{target}"), {})
    with pytest.raises(SqlError, match="401"):
        scan(filled.api.get(f"/api/endpoints/query/{target}"), {})


def test_what_passes_is_tried_again_and_answers_in_the_end(tmp_path: Path) -> None:
    with Api(tmp_path) as api:
        key = add_key(api.data, "wrappers")
        target = "/api/endpoints/query/logs.all?project=p"
        first = api.get(target, {"x-api-key": key})
        assert first.status == 503
        assert int(first.headers["Retry-After"]) > 0
        worker = threading.Timer(PAUSE, migrate, (api.data,))
        worker.start()
        assert scan(request(api, key, target), COLUMNS["logs.all"]) == []
        worker.join()
        wait_for("the timer", lambda: not worker.is_alive())
