"""How fresh an answer is, in the words of HTTP (RFC 9110, RFC 9111), and which answers a client takes."""

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from typing import NamedTuple

from schema.timestamps import SECOND

MILLISECOND = 1000
COMPLETE_UNTIL = "freshet-complete-until"
"""The field that says up to when everything has been applied."""


class Progress(NamedTuple):
    """How far one partition's log has been applied, as `positions` has it: offsets, a Kafka timestamp in ms, µs."""

    next_offset: int
    end_offset: int
    last_timestamp: int | None
    applied_at: int


def complete_until(partitions: Iterable[Progress]) -> int | None:
    """The time (µs) up to which everything in all partitions has been applied, or None where that can't be told.

    A partition that stands at its log's end, as the broker told it with the last batch, is complete up to the time
    at which that batch was applied; one that does not, up to the Kafka timestamp of the last record applied. The
    slowest decides.
    """
    times: list[int] = []
    for next_offset, end_offset, last_timestamp, applied_at in partitions:
        if next_offset >= end_offset:
            times.append(applied_at)
        elif last_timestamp is None or last_timestamp <= 0:
            return None
        else:
            times.append(min(last_timestamp * MILLISECOND, applied_at))
    return min(times, default=None)


@lru_cache(maxsize=16)
def time_text(micros: int) -> str:
    """A time as `Freshet-Complete-Until` shows it: ISO 8601, UTC, to the microsecond."""
    seconds, rest = divmod(micros, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06}Z"


@lru_cache(maxsize=2)
def http_date(second: int) -> str:
    """A second since the epoch as `Date` shows it."""
    return formatdate(second, usegmt=True)


def passing_fields(as_of: int, origin: str, now: int) -> dict[str, str]:
    """The fields of an answer exact as of one time (µs) that are those of the moment in which it is given."""
    return {
        "date": http_date(now // SECOND),
        "age": str(age(now, as_of)),
        "cache-status": f"Freshet; {origin}",
    }


def age(now: int, as_of: int) -> int:
    """The seconds from one `Date` to another: `Date` less `Age` is the second in which an answer is exact."""
    return max(0, now // SECOND - as_of // SECOND)


@lru_cache(maxsize=64)
def wants_fresh(cache_control: str) -> bool:
    """Whether a request's `Cache-Control` refuses answers that were computed before it."""
    directives = {directive.strip().lower().replace('"', "") for directive in cache_control.split(",")}
    return not directives.isdisjoint(("no-cache", "max-age=0"))


def has_already(if_none_match: str, tag: str) -> bool:
    """Whether a request's `If-None-Match` names a tag, or any (`*`); tags compare weakly."""
    if if_none_match.strip() == "*":
        return True
    return tag in (candidate.strip().removeprefix("W/") for candidate in if_none_match.split(","))
