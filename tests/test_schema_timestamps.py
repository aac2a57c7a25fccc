"""A time comes to the same microsecond in whatever form a producer writes it (contract section 4)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.numbers import Number
from schema.timestamps import DAY, HOUR, MINUTE, SECOND, datetime_text, floor_to, parse_event_time, parse_iso

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, END = 946_684_800 * SECOND, 4_133_980_800 * SECOND  # 2000-01-01 to 2101-01-01, the latter excluded
MOMENTS = st.integers(FIRST, END - 1)
NANOSECONDS = st.integers(FIRST * 1000, END * 1000 - 1)
SPACE = st.sampled_from(["", " ", "\t", "\r\n", "  "])


@st.composite
def iso_texts(draw: st.DrawFn) -> tuple[str, int]:
    """An ISO 8601 text, and the microsecond that it names."""
    nanoseconds = draw(NANOSECONDS)
    offset = draw(st.one_of(st.just(0), st.integers(-1439, 1439)))
    digits = draw(st.integers(0, 9))
    seconds, rest = divmod(nanoseconds, 10**9)
    local = EPOCH + timedelta(seconds=seconds, minutes=offset)
    date, clock = f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}"
    fraction = f"{rest:09d}"[:digits]
    hours, minutes = divmod(abs(offset), 60)
    sign = "-" if offset < 0 else "+"
    zones = [f"{sign}{hours:02d}:{minutes:02d}", f"{sign}{hours:02d}{minutes:02d}"]
    zones += [f"{sign}{hours:02d}"] if minutes == 0 else []
    zones += ["", "Z", "z", "-00:00"] if offset == 0 else []
    point = draw(st.sampled_from(".,")) if fraction else ""
    text = f"{date}{draw(st.sampled_from('Tt '))}{clock}{point}{fraction}{draw(st.sampled_from(['', ' ', '  ']))}"
    return text + draw(st.sampled_from(zones)), seconds * SECOND + int(fraction.ljust(9, "0")) // 1000


@st.composite
def number_texts(draw: st.DrawFn) -> tuple[str, int]:
    """A JSON number of seconds, milliseconds, microseconds or nanoseconds, and the microsecond that it names."""
    nanoseconds = draw(NANOSECONDS)
    places = draw(st.sampled_from([9, 6, 3, 0]))
    plain = format(Decimal(nanoseconds).scaleb(-places), "f")
    further = draw(st.text("0123456789", max_size=9))
    shift = draw(st.integers(1, 17))
    digits = str(nanoseconds)
    mark = draw(st.sampled_from(["e", "E"]))
    exponent = shift - places
    signed = f"{exponent:+d}" if draw(st.booleans()) else f"{exponent:d}"
    text = draw(
        st.sampled_from(
            [
                f"{plain}{further}" if "." in plain else plain,
                f"{plain}.{further}" if further and "." not in plain else plain,
                f"{digits}{mark}-{places}",
                f"{digits[:-shift]}.{digits[-shift:]}{further}{mark}{signed}",
            ]
        )
    )
    return text, nanoseconds // 1000


@given(iso_texts(), SPACE, SPACE)
@settings(max_examples=500)
def test_an_iso_time_with_any_offset_and_fraction_is_floored_to_its_microsecond(
    written: tuple[str, int], before: str, behind: str
) -> None:
    text, micros = written
    assert parse_iso(text) == micros
    assert parse_event_time(before + text + behind) == micros


@given(number_texts(), SPACE)
@settings(max_examples=500)
def test_a_number_in_any_unit_and_form_is_floored_to_its_microsecond(written: tuple[str, int], space: str) -> None:
    text, micros = written
    assert parse_event_time(Number(text)) == micros
    assert parse_event_time(space + text + space) == micros


@given(MOMENTS, st.sampled_from([1, 1000, 10**6, 10**9]))
def test_an_integer_tells_its_unit_by_its_magnitude(moment: int, units: int) -> None:
    written = moment * units // SECOND
    exact = written * SECOND // units
    if exact >= FIRST:
        assert parse_event_time(written) == parse_event_time(f"{written}") == exact


@pytest.mark.parametrize("units", [1, 1000, 10**6, 10**9])
def test_the_years_are_2000_to_2100_in_every_unit(units: int) -> None:
    first, end = FIRST * units // SECOND, END * units // SECOND
    assert parse_event_time(first) == FIRST
    assert parse_event_time(end - 1) == END - max(1, SECOND // units)
    assert [parse_event_time(value) for value in (first - 1, end, -first, Number(f"{first - 1}.9"))] == [None] * 4


def test_the_years_are_2000_to_2100_after_the_offset_and_the_floor() -> None:
    assert parse_event_time("1999-12-31T23:30:00-00:30") == FIRST
    assert parse_event_time("2101-01-01T05:44:59.999999999+05:45") == END - 1
    for text in ("2000-01-01T00:29:59.999999+00:30", "1999-12-31", "2101-01-01", "2100-12-31T23:59:59-00:01"):
        assert parse_event_time(text) is None


@pytest.mark.parametrize("bound", [10**11, 10**14, 10**17])
def test_on_either_side_of_a_magnitudes_bound_lies_no_time_of_these_years(bound: int) -> None:
    for value in (bound - 1, bound, bound + 1, Number(f"{bound - 1}.999"), Number(f"{bound}.0"), -bound):
        assert parse_event_time(value) is None


def test_parts_of_the_clock_may_be_missing() -> None:
    start = 1_699_920_000 * SECOND
    assert parse_event_time("2023-11-14") == start
    assert parse_event_time("2023-11-14T22:13") == start + 22 * HOUR + 13 * MINUTE
    assert parse_event_time("2023-11-14 22:13+0100") == start + 21 * HOUR + 13 * MINUTE


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 1.7e9, b"1700000000", [], ["2023-11-14"], {}, {"seconds": 1_700_000_000}, 0, -1, 10**400),
        *("", " ", "yesterday", "NaN", "Infinity", "-Infinity", "null", "0x6553F100", "1_700_000_000", "+1700000000"),
        *("1700000000.", ".17e10", "01700000000", "1700000000 s", "17e8e", "1e999", "1e-999", "1e99999999999", "--1"),
        *(
            "١٧٠٠٠٠٠٠٠٠",
            "２０２３-11-14",
            "2023-1-14",
            "20231114",
            "2023-318",
            "2023-W46-2",
            "0000-01-01",
            "2023-00-10",
        ),
        *("2023-02-29", "2023-13-01", "2023-11-31", "2023-11-14T", "2023-11-14T22", "2023-11-14T9:00"),
        *("2023-11-14T24:00", "2023-11-14T22:60", "2023-11-14T22:13:60", "2023-11-14T22:13:20.1234567890Z"),
        *("2023-11-14T22:13:20+24:00", "2023-11-14T22:13:20+05:60", "2023-11-14T22:13:20+5", "2023-11-14T22:13:20."),
        *("2023-11-14T22:13:20+05:", "2023-11-14T22:13:20ZZ", "2023-11-14T22:13:20 UTC", "2023-11-14  22:13:20"),
        *("2023-11-14T22:13.5", "2023-11-14/22:13:20", "2023-11-14T22:13:20\n2023-11-14", "9" * 401, "1." + "7" * 400),
    ],
)
def test_what_is_no_time_is_none(value: Any) -> None:
    assert parse_event_time(value) is None


@given(st.one_of(st.text(), st.text("0123456789-+:.,eETZ ", max_size=40), st.integers(), st.floats(), st.booleans()))
def test_no_value_raises_and_every_answer_is_within_the_years(value: object) -> None:
    micros = parse_event_time(value)
    assert micros is None or FIRST <= micros < END


@given(MOMENTS, st.sampled_from([SECOND, MINUTE, HOUR, DAY]))
def test_a_bucket_starts_on_a_multiple_of_its_size_at_or_before_the_time(moment: int, size: int) -> None:
    start = floor_to(moment, size)
    assert start % size == 0
    assert start <= moment < start + size


@given(MOMENTS)
def test_a_datetime_is_written_to_the_second_without_zone(moment: int) -> None:
    text = datetime_text(moment)
    assert len(text) == 19
    assert parse_iso(text) == floor_to(moment, SECOND)
