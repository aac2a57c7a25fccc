"""Times in all their written forms, as integer microseconds since the epoch, UTC (contract section 4).

Fractions are taken from the decimal text and floored; no binary floating point takes part.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

from schema.numbers import exact, scaled_floor

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_EARLIEST = 946_684_800 * SECOND  # 2000-01-01
_LATEST = 4_133_980_800 * SECOND  # 2101-01-01, excluded: the year 2100 still counts
_WIDEST = 30  # decimal digits before or behind the point
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r" *(?:([Zz])|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)


def parse_iso(text: str) -> int | None:
    """Microseconds of an ISO 8601 time, or None where the text is none.

    `T` or a space, 0–9 fraction digits (floored to µs), `Z`, an offset or neither (then UTC); the time of day
    may be missing. No range is checked.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    date, hour, minute, second, fraction, _, sign, offset_hours, offset_minutes = match.groups()
    start = _day(date)
    if start is None:
        return None
    if hour is None:
        return start
    h, m, s = int(hour), int(minute), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    micros = start + h * HOUR + m * MINUTE + s * SECOND
    if fraction:
        micros += int(fraction[:6].ljust(6, "0"))
    if sign:
        oh, om = int(offset_hours), int(offset_minutes or 0)
        if oh > 23 or om > 59:
            return None
        shift = oh * HOUR + om * MINUTE
        micros += shift if sign == "-" else -shift
    return micros


@lru_cache(maxsize=1024)
def _day(date: str) -> int | None:
    """Microseconds at which a day starts; logs name few days, so the cache nearly always answers."""
    try:
        day = datetime.fromisoformat(date).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(day.timestamp()) * SECOND


def parse_event_time(value: object) -> int | None:
    """Microseconds of an event's time as a producer wrote it: a number, a numeric string, or ISO 8601.

    The unit of a number follows from its magnitude: below 1e11 seconds, 1e14 milliseconds, 1e17 microseconds, else
    nanoseconds. None for anything unreadable or outside the years 2000 to 2100.
    """
    micros: int | None
    if type(value) is int:
        micros = value * SECOND // _units_per_second(value)
    elif (number := exact(value)) is not None:
        if not -_WIDEST < number.adjusted() < _WIDEST:
            return None
        micros = scaled_floor(number, SECOND) // _units_per_second(int(number))
    elif isinstance(value, str):
        micros = parse_iso(value.strip(" \t\r\n"))
    else:
        return None
    return in_range(micros) if micros is not None else None


def in_range(micros: int) -> int | None:
    """A time in µs if it lies within the years 2000 to 2100, else None."""
    return micros if _EARLIEST <= micros < _LATEST else None


def _units_per_second(value: int) -> int:
    """How many of a number's units make a second, told by its magnitude."""
    if value < 100_000_000_000:
        return 1
    if value < 100_000_000_000_000:
        return 1000
    return 1_000_000 if value < 100_000_000_000_000_000 else 1_000_000_000


def floor_to(micros: int, size: int) -> int:
    """The start of the bucket of `size` µs in which a time lies; buckets are aligned to the epoch, UTC."""
    return micros - micros % size


@lru_cache(maxsize=4096)
def datetime_text(micros: int) -> str:
    """A time as `YYYY-MM-DDTHH:MM:SS`, UTC, as usage.api-counts shows its buckets (contract section 2)."""
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
