"""logs.search as the reader computes it, against every entry looked at in turn, page by page and cut in every way."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DAY, HOUR, MINUTE, TIERS, Entry, Oracle, Record, _object, rows_agree
from test_api_reader import LOG, fill, reading

from api import matching_entries
from api.bodies import body
from api.cursors import parse_cursor
from api.parameters import typed_parameters
from api.reader import Reader
from api.recent_entries import EntryRow
from schema.errors import QueryTimeout
from schema.saved_queries import load_saved_queries

QUERY = load_saved_queries()["logs.search"]
NOW = 1_750_000_000_123_456
IDS = ("a", "b", "B", "é", "10", 9, None, "", "long" * 60, "long" * 60 + "b", "long" * 60 + "a")
MESSAGES = ("", "GET | 200", "zwei\nZeilen STRASSE", "straße", None, {"as": ["an", "object"]}, 1.5)
METHODS = ("GET", "get", "POST", None, 5)
STATUSES: tuple[Any, ...] = (200, "404", 500.0, 99, 599, None, "abc", True, {}, 2**70)
REQUESTS: tuple[Any, ...] = (
    {"path": "/rest/v1/é"},
    {"path": "", "url": "https://h/rest"},
    {"url": "https://h/rest/v1?x=/auth"},
    {"url": "9x://auth/storage"},
    {"host": "rest", "protocol": "https"},
    {"path": 5, "url": "/rest"},
    {"path": None},
    {},
)
FILTERS: dict[str, tuple[Any, ...]] = {
    "min_status": (0, 99, 200, 404, 500, 999),
    "max_status": (0, 199, 200, 404, 599, 999),
    "method": ("GET", "Post", "X"),
    "path": ("/rest", "/v1", "é", "/auth", "rest"),
    "text": ("get", "STRASSE", "object", "1.5", " | ", "\n"),
}


@st.composite
def entries(draw: st.DrawFn) -> list[Record]:
    """Entries of two projects, some with the same time and id, some the very same."""
    chance = Random(draw(st.integers(0, 999)))
    ages = draw(st.lists(st.sampled_from((0, 0, 1, 1, 2, MINUTE, HOUR, HOUR + 1, DAY - 1, DAY, 8 * DAY)), min_size=1))
    records: list[Record] = []
    for age in ages * draw(st.integers(1, 12)):
        request, status = chance.choice(REQUESTS), chance.choice(STATUSES)
        metadata: Any = {"request": {**request, "method": chance.choice(METHODS)}, "response": {"status_code": status}}
        metadata = chance.choice(
            (metadata, metadata, [{name: [value] for name, value in metadata.items()}], None, [{}])
        )
        event = {"timestamp": NOW - age, "project": chance.choice("pppq"), "metadata": metadata}
        event |= {"id": chance.choice(IDS), "event_message": chance.choice(MESSAGES)}
        records.append(
            Record("edge", 0, len(records), 0, json.dumps(event, ensure_ascii=chance.random() < 0.5).encode())
        )
        if chance.random() < 0.3:
            last = records[-1]
            records.append(Record("edge", 0, len(records), 0, last.value))
    return records


def stored(data: Path, records: list[Record], size: int) -> Oracle:
    """Fill a store in batches of a size, and an oracle."""
    oracle = Oracle(LOG, "edge", "functions")
    oracle.feed(records)
    fill(data, [records[at : at + size] for at in range(0, len(records), size)])
    return oracle


def page(reader: Reader, **given: Any) -> tuple[list[dict[str, Any]], str | None]:
    """One answer as a client reads it, asked with a client's parameters."""
    texts = {name: [str(value)] for name, value in given.items() if value is not None}
    answer = json.loads(body(QUERY, reader.run(QUERY, typed_parameters(QUERY, texts), None, NOW, 10)))
    assert set(answer) == {"result", "next"}
    return answer["result"], answer["next"]


def pages(reader: Reader, **given: Any) -> Iterator[list[dict[str, Any]]]:
    """All answers, each asked with the cursor of the one before. No cursor comes twice."""
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(5000):
        rows, cursor = page(reader, **given, cursor=cursor)
        yield rows
        if cursor is None:
            return
        assert cursor not in cursors
        parse_cursor("cursor", cursor)
        cursors.add(cursor)
    raise AssertionError("there is no end of pages")


def passes(entry: Entry, filters: dict[str, Any]) -> bool:
    """Whether an entry passes, told from its row alone."""
    metadata = _object(entry.row["metadata"]) or {}
    request, response = _object(metadata.get("request")), _object(metadata.get("response")) or {}
    status = _whole(response.get("status_code"))
    if "min_status" in filters and (status is None or status < filters["min_status"]):
        return False
    if "max_status" in filters and (status is None or status > filters["max_status"]):
        return False
    method = (request or {}).get("method")
    if "method" in filters and (not isinstance(method, str) or method.upper() != filters["method"].upper()):
        return False
    if "text" in filters and filters["text"].casefold() not in entry.row["event_message"].casefold():
        return False
    return "path" not in filters or filters["path"] in _path(request)


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value
    if not isinstance(value, float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() and number < 1e19 else None


def _path(request: dict[str, Any] | None) -> str:
    if request is None:
        return ""
    if isinstance(request.get("path"), str):
        return str(request["path"])
    url = request.get("url") or (f"https://{request['host']}" if "host" in request else "p")
    _, found, behind = url.partition("://")
    if found:
        return behind[len(behind.split("/")[0].split("?")[0]) :].split("?")[0].split("#")[0]
    return str(url)


def expected(oracle: Oracle, tier: str, filters: dict[str, Any]) -> list[dict[str, Any]]:
    """All entries of the project p that pass, in the order of logs.all."""
    found = [
        entry
        for entry in oracle.entries
        if entry.project == "p" and entry.timestamp > NOW - TIERS[tier] and passes(entry, filters)
    ]
    found.sort(key=lambda entry: (entry.timestamp, entry.row["id"], entry.raw), reverse=True)
    return [entry.row for entry in found]


some_filters = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FILTERS.items()})


@settings(max_examples=120, deadline=None)
@given(entries(), some_filters, st.sampled_from((1, 2, 7, 100)), st.sampled_from((1, 5, 400)), st.sampled_from((0, 9)))
def test_the_pages_together_are_all_entries_that_pass_once_each(
    records: list[Record], filters: dict[str, Any], limit: int, batch: int, seconds: float
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(matching_entries, "SEARCH_SECONDS", seconds)
        oracle = stored(Path(folder), records, batch)
        with reading(Path(folder)) as reader:
            for tier in ("PAYG", "FREE"):
                found = list(pages(reader, project="p", project_tier=tier, limit=limit, **filters))
                assert all(len(rows) <= limit for rows in found)
                rows_agree([row for rows in found for row in rows], expected(oracle, tier, filters))


def test_a_call_looks_for_its_time_and_then_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare text in many blocks: each call ends soon, empty or not, and the pages come to it."""
    records = [
        Record(
            "edge", 0, age, 0, json.dumps({"timestamp": NOW - age * MINUTE, "project": "p", "id": str(age)}).encode()
        )
        for age in range(40)
    ]
    rare = {"timestamp": NOW - 40 * MINUTE, "project": "p", "id": "rare", "event_message": "needle"}
    records.append(Record("edge", 0, 40, 0, json.dumps(rare).encode()))
    stored(tmp_path, records, 1)
    monkeypatch.setattr(matching_entries, "SEARCH_SECONDS", 0)
    with reading(tmp_path) as reader:
        rows, cursor = page(reader, project="p", text="needle")
        assert (rows, cursor) == ([], str(NOW))
        found = list(pages(reader, project="p", text="needle"))
        assert [len(rows) for rows in found] == [0] * 41 + [1]
        monkeypatch.setattr(matching_entries, "SEARCH_SECONDS", 9)
        assert [row["id"] for rows in pages(reader, project="p", text="needle") for row in rows] == ["rare"]


def test_reading_past_the_query_s_own_limit_is_given_up(tmp_path: Path) -> None:
    record = Record("edge", 0, 0, 0, json.dumps({"timestamp": NOW, "project": "p", "id": "a"}).encode())
    stored(tmp_path, [record], 1)
    with reading(tmp_path) as reader:
        with pytest.raises(QueryTimeout):
            reader.run(QUERY, typed_parameters(QUERY, {"project": ["p"]}), None, NOW, 0)
        assert page(reader, project="p")[0]


def test_no_more_entries_are_gathered_than_can_be_answered() -> None:
    rows = [EntryRow(time, str(number), "", "{}", b"") for number, time in enumerate([5, 9, 7, 7, 7, 1] * 50)]
    matching_entries._keep_newest(rows, 60)
    assert [row.timestamp for row in rows] == [9] * 50 + [7] * 150
