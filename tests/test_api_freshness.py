"""What is told about an answer's age and completeness, and what clients say about the answers they take."""

from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_api_reader import NOW

from api.freshness import Progress, age, complete_until, has_already, http_date, time_text, wants_fresh
from schema.timestamps import DAY, SECOND, parse_iso

MILLIS = NOW // 1000


def at(next_offset: int, end: int, last: int | None, applied: int) -> Progress:
    return Progress(next_offset, end, last, applied)


def test_nothing_is_known_before_anything_was_applied() -> None:
    assert complete_until([]) is None


def test_a_partition_at_its_end_is_complete_up_to_when_it_was_applied() -> None:
    assert complete_until([at(5, 5, MILLIS - 60_000, NOW)]) == NOW
    assert complete_until([at(0, 0, None, NOW)]) == NOW


def test_a_partition_behind_its_end_is_complete_up_to_its_last_record() -> None:
    assert complete_until([at(5, 6, MILLIS - 60_000, NOW)]) == (MILLIS - 60_000) * 1000
    assert complete_until([at(5, 6, MILLIS + 60_000, NOW)]) == NOW  # a producer's clock that runs ahead


def test_a_partition_behind_its_end_without_a_time_leaves_it_open() -> None:
    for last in (None, 0, -1):
        assert complete_until([at(5, 6, last, NOW), at(5, 5, MILLIS, NOW)]) is None


def test_the_slowest_partition_decides() -> None:
    partitions = [at(5, 5, MILLIS, NOW), at(5, 6, MILLIS - 9, NOW), at(5, 5, MILLIS, NOW - 5)]
    assert complete_until(partitions) == (MILLIS - 9) * 1000
    assert complete_until([partitions[0], partitions[2]]) == NOW - 5


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_a_time_is_written_to_the_microsecond(micros: int) -> None:
    text = time_text(micros)
    assert parse_iso(text) == micros
    assert len(text) == len("2026-01-31T12:00:00.000000Z")


@given(st.integers(NOW, NOW + DAY), st.integers(0, DAY))
def test_date_less_age_is_the_second_in_which_an_answer_is_exact(now: int, since: int) -> None:
    date = int(parsedate_to_datetime(http_date(now // SECOND)).timestamp())
    assert date - age(now, now - since) == (now - since) // SECOND


def test_an_age_is_never_negative() -> None:
    assert age(NOW, NOW + 5 * SECOND) == 0


@pytest.mark.parametrize(
    ("header", "fresh"),
    [
        *(("no-cache", True), ("No-Cache", True), ("max-age=0", True), ('max-age="0"', True)),
        *(("max-stale, max-age=0 , x", True), ("", False), ("max-age=00", False), ("max-age=10", False)),
        *(("no-store", False), ("x-no-cache", False), ("only-if-cached", False), ("no-transform,no-cache", True)),
    ],
)
def test_a_request_refuses_older_answers_by_no_cache_and_max_age_0(header: str, fresh: bool) -> None:
    assert wants_fresh(header) is fresh


@pytest.mark.parametrize(
    ("header", "has"),
    [
        *(('"a"', True), ('W/"a"', True), ('"b", W/"a" ,"c"', True), ("*", True), (" * ", True)),
        *(("", False), ('"b"', False), ("a", False), ('"A"', False), ('"a', False), ('"b, "a"x', False)),
    ],
)
def test_a_tag_is_found_in_a_list_weakly(header: str, has: bool) -> None:
    assert has_already(header, '"a"') is has
