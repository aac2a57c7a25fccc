"""usage.api-counts as the reader computes it, against the oracle, on small stores cut in every way."""

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import COUNTS_INTERVALS, DAY, HOUR, MINUTE, SECOND, Oracle, Record, rows_agree
from test_api_reader import LOG, fill, reading

from api.bodies import body, row_count
from api.deadline import Deadline
from api.reader import Reader
from api.remembered import Remembered, Subject
from api.request_counts import RequestCounts
from schema.blocks import Decompressor
from schema.errors import ParameterError, QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.tables import store_path
from schema.timestamps import datetime_text

QUERY = load_saved_queries()["usage.api-counts"]
NOW = 1_750_000_000_123_456
"""2025-06-15T15:06:40.123456Z"""

PROJECTS = ("aaa", "bbb", "")
ORIGINS = ("https://aaa.supabase.co", "https://bbb.supabase.co", "http://aaa.supabase.co:8443", "wss://bbb", "")
TAILS = ("", "/", "/rest/v1/x", "/auth?to=https://aaa.supabase.co/", "/storage\naaa", "/bbb$", "?/rest", "/rest/auth")
PATTERNS = (
    *("aaa", "bbb", ".*", "^https://aaa", "co$", r"bbb\b", "(?i)AAA", "/rest", "aaa|/rest", "^aaa", "a{0}", "zzz"),
    *(r"\z", "co/?$", r"supabase\.co(:\d+)?/rest", "(?m)^aaa", "aaa.supabase.co", "//b", r"\bhttps", "^$", "$", r"\B"),
)
SPANS = sorted({span for span, _ in COUNTS_INTERVALS.values()})


class Request(NamedTuple):
    """An edge request: how long ago it was in µs, what it asked for, and the batch that brings it."""

    age: int
    project: str = "aaa"
    url: str = "https://aaa.supabase.co/rest/v1/x"
    path: str | None = None
    batch: int = 0


@st.composite
def moments(draw: st.DrawFn) -> int:
    """A now on or beside the turn of a second, a minute, an hour, a day, or within one."""
    grain = draw(st.sampled_from((SECOND, MINUTE, HOUR, DAY, 7 * DAY)))
    return NOW - NOW % grain + draw(st.sampled_from((-1, 0, 1, 59 * SECOND, MINUTE - 1, 17 * MINUTE + 123_456)))


@st.composite
def ages(draw: st.DrawFn, now: int) -> int:
    """The age of a request at or near a window's start or now, at or near the turn of a bucket there, or later."""
    edge = now - draw(st.sampled_from((0, *SPANS)))
    grain = draw(st.sampled_from((1, MINUTE, HOUR, DAY)))
    edge += draw(st.sampled_from((0, grain))) - edge % grain
    later = draw(st.sampled_from((0, 0, 0, 30 * SECOND, MINUTE, 5 * HOUR, 3 * DAY)))
    return now - edge - later - draw(st.sampled_from((-1, 0, 0, 1)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Request]]:
    now = draw(moments())
    urls = st.builds(str.__add__, st.sampled_from(ORIGINS), st.sampled_from(TAILS))
    paths = st.sampled_from((None, None, "/realtime/v1", ""))
    requests = st.builds(Request, ages(now), st.sampled_from(PROJECTS), urls, paths, st.integers(0, 3))
    return now, draw(st.lists(requests, max_size=30))


def stored(data: Path, now: int, requests: list[Request]) -> Oracle:
    """Fill a store with requests, batch by batch, and an oracle with the same."""
    fill(data, _batches(now, requests))
    return oracle_of(now, requests)


def oracle_of(now: int, requests: list[Request]) -> Oracle:
    """An oracle that has been told these requests."""
    oracle = Oracle(LOG, "edge", "functions")
    for records in _batches(now, requests):
        oracle.feed(records)
    return oracle


def _batches(now: int, requests: list[Request]) -> list[list[Record]]:
    batches: dict[int, list[Record]] = {}
    for offset, request in enumerate(requests):
        fields = {"url": request.url} | ({} if request.path is None else {"path": request.path})
        event = {"timestamp": now - request.age, "project": request.project, "metadata": {"request": fields}}
        batches.setdefault(request.batch, []).append(Record("edge", 0, offset, 0, json.dumps(event).encode()))
    return [*batches.values()]


def answered(
    reader: Reader, now: int, pattern: str, interval: str, projects: frozenset[str] | None = None
) -> list[dict[str, Any]]:
    """The rows as a client reads them."""
    answer = reader.run(QUERY, {"project": pattern, "interval": interval}, projects, now, 10)
    rows: list[dict[str, Any]] = json.loads(body(QUERY, answer))["result"]
    return rows


@settings(max_examples=150, deadline=None)
@given(histories(), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=5, unique=True))
def test_counts_equal_the_oracle_however_requests_are_cut_into_batches(
    history: tuple[int, list[Request]], patterns: list[str]
) -> None:
    now, requests = history
    with tempfile.TemporaryDirectory() as folder:
        oracle = stored(Path(folder), now, requests)
        with reading(Path(folder)) as reader:
            for pattern, interval in product(patterns, COUNTS_INTERVALS):
                rows_agree(answered(reader, now, pattern, interval), oracle.api_counts(now, pattern, interval))


@settings(max_examples=50, deadline=None)
@given(histories(), st.sampled_from(PATTERNS), st.frozensets(st.sampled_from((*PROJECTS, "unknown"))))
def test_a_scope_counts_its_projects_events_alone(
    history: tuple[int, list[Request]], pattern: str, projects: frozenset[str]
) -> None:
    now, requests = history
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        stored(Path(folder), now, requests)
        oracle = stored(Path(other), now, [one for one in requests if one.project in projects])
        with reading(Path(folder)) as reader:
            for interval in COUNTS_INTERVALS:
                rows = answered(reader, now, pattern, interval, projects)
                rows_agree(rows, oracle.api_counts(now, pattern, interval))


@pytest.mark.parametrize("pattern", ["aaa", "/rest/v1/x$"], ids=["by origin", "by URL"])
def test_in_the_first_partial_minute_too_a_scope_counts_its_events_alone(tmp_path: Path, pattern: str) -> None:
    now = NOW - NOW % MINUTE + SECOND
    stored(tmp_path, now, [Request(HOUR, project) for project in ("aaa", "bbb", "aaa")])
    reader = Reader(tmp_path)
    for projects, hits in ((None, 3), (frozenset({"aaa"}), 2), (frozenset({"bbb"}), 1), (frozenset({"ccc"}), 0)):
        rows = answered(reader, now, pattern, "1hr", projects)
        assert sum(row["total_rest_requests"] for row in rows) == hits


@pytest.mark.parametrize("grain", [1, SECOND, MINUTE, HOUR, DAY])
@pytest.mark.parametrize("step", [-1, 0, 1])
@pytest.mark.parametrize("pattern", ["aaa", "/rest/v1/x$"], ids=["by origin", "by URL"])
def test_a_request_at_the_window_start_is_counted_and_one_a_microsecond_older_is_not(
    tmp_path: Path, grain: int, step: int, pattern: str
) -> None:
    now = NOW - NOW % grain + step
    stored(tmp_path, now, [Request(span + older) for span in SPANS for older in (0, 1)])
    reader = Reader(tmp_path)
    for interval, (span, size) in COUNTS_INTERVALS.items():
        rows = answered(reader, now, pattern, interval)
        assert sum(row["total_rest_requests"] for row in rows) == 2 * SPANS.index(span) + 1
        first = now - span
        assert rows[0]["timestamp"] == datetime_text(first - first % size)


def test_a_bucket_whose_matches_are_of_no_family_is_a_row_of_zeros(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [Request(MINUTE, url="https://aaa.supabase.co/graphql/v1")])
    (row,) = answered(Reader(tmp_path), NOW, "aaa", "minutely")
    assert row == {
        "timestamp": "2025-06-15T15:05:00",
        "total_rest_requests": 0,
        "total_storage_requests": 0,
        "total_auth_requests": 0,
        "total_realtime_requests": 0,
    }


def test_a_path_with_several_families_counts_in_each(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [Request(MINUTE, path="/rest/storage/auth/realtime"), Request(MINUTE, path="/auth/v1")])
    (row,) = answered(Reader(tmp_path), NOW, "aaa", "hourly")
    assert list(row.values()) == ["2025-06-15T15:00:00", 1, 1, 2, 1]


def test_nothing_is_counted_of_a_project_that_no_url_names(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [Request(MINUTE)])
    reader = Reader(tmp_path)
    for interval in COUNTS_INTERVALS:
        assert answered(reader, NOW, "never-heard-of", interval) == []


def test_a_refused_pattern_is_refused_by_the_reader_too(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [])
    with pytest.raises(ParameterError, match="missing"):
        answered(Reader(tmp_path), NOW, "(", "daily")


class Looks(Deadline):
    """A deadline that comes after so many looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(0)
        self._left = looks

    def passed(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize(("pattern", "looks"), [("aaa", 0), ("/rest", 0), ("/rest", 50)])
def test_counting_past_the_time_limit_is_given_up(tmp_path: Path, pattern: str, looks: int) -> None:
    stored(tmp_path, NOW, [Request(HOUR * hours, batch=hours) for hours in range(100)])
    reader = Reader(tmp_path)
    with pytest.raises(QueryTimeout):
        reader.run(QUERY, {"project": pattern, "interval": "7day"}, None, NOW, 0)
    assert len(answered(reader, NOW, pattern, "7day")) == 5
    db = apsw.Connection(str(store_path(tmp_path, 1)), flags=apsw.SQLITE_OPEN_READONLY)
    look, subject = Looks(looks).check, Subject(1, pattern, None)
    with pytest.raises(QueryTimeout, match="longer than 0 s"):
        RequestCounts(db, Decompressor().decompress, look, Remembered(0), subject, 0, 60).rows()
    db.close()


@pytest.mark.parametrize("buckets", [999, 1000, 1001])
@pytest.mark.parametrize("first", [(), (3 * HOUR - SECOND,)])
def test_the_first_minute_counts_among_the_rows_that_may_be(
    tmp_path: Path, buckets: int, first: tuple[int, ...]
) -> None:
    now = NOW - NOW % MINUTE + 30 * SECOND
    ages = [3 * HOUR - 30 * SECOND - number * MINUTE for number in range(buckets)]
    oracle = stored(tmp_path, now, [Request(age) for age in (*ages, *first)])
    with reading(tmp_path) as reader:
        for _ in range(2):
            answer = reader.run(QUERY, {"project": "aaa", "interval": "3hr"}, None, now, 10)
            rows = json.loads(body(QUERY, answer))["result"]
            assert row_count(QUERY, answer) == len(rows) == min(1000, buckets + len(first))
            rows_agree(rows, oracle.api_counts(now, "aaa", "3hr"))


def test_no_more_rows_are_answered_than_a_saved_query_may(tmp_path: Path) -> None:
    events = [
        {"timestamp": NOW + (n - 170) * MINUTE, "project": "p", "metadata": {"request": {"url": "https://p.co/rest"}}}
        for n in range(1200)  # up to a day ahead of the record's own time
    ]
    record = Record("edge", 0, 0, NOW // 1000, json.dumps(events).encode())
    fill(tmp_path, [[record]])
    oracle = Oracle("log", "edge", "functions")
    oracle.feed([record])
    query = load_saved_queries()["usage.api-counts"]
    with reading(tmp_path) as reader:
        answer = reader.run(query, {"project": "p", "interval": "3hr"}, None, NOW, 30)
    assert row_count(query, answer) == query.max_rows == 1000
    rows_agree(json.loads(body(query, answer))["result"], oracle.api_counts(NOW, "p", "3hr"))
