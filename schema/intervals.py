"""The saved queries' interval words, and the retention of each tier (specification section 4, design section 4)."""

from typing import NamedTuple

from schema.timestamps import DAY, HOUR, MINUTE, SECOND, floor_to


class Interval(NamedTuple):
    """A window back from now and the size of its buckets, both in µs."""

    span: int
    grain: int


INVOCATION_INTERVALS = {
    "5min": Interval(5 * MINUTE, SECOND),
    "15min": Interval(15 * MINUTE, MINUTE),
    "1hr": Interval(HOUR, MINUTE),
    "1day": Interval(DAY, HOUR),
    "7day": Interval(7 * DAY, DAY),
}
USAGE_INTERVALS = {
    "minutely": Interval(HOUR, MINUTE),
    "hourly": Interval(HOUR, HOUR),
    "daily": Interval(7 * DAY, DAY),
    "15min": Interval(15 * MINUTE, MINUTE),
    "30min": Interval(30 * MINUTE, MINUTE),
    "1hr": Interval(HOUR, MINUTE),
    "3hr": Interval(3 * HOUR, MINUTE),
    "1day": Interval(DAY, HOUR),
    "3day": Interval(3 * DAY, HOUR),
    "7day": Interval(7 * DAY, DAY),
}
_TIERS = {"FREE": DAY, "PRO": 7 * DAY, "PAYG": 90 * DAY, "ENTERPRISE": 90 * DAY}


def invocation_interval(word: str | None) -> Interval:
    """The interval of functions.invocation-stats; any word but the five means 1day (specification 4.1)."""
    return INVOCATION_INTERVALS.get(word or "", INVOCATION_INTERVALS["1day"])


def invocation_window_start(word: str | None, now: int) -> int:
    """The first bucket of functions.invocation-stats, in µs: now truncated to the grain, less the span; included."""
    interval = invocation_interval(word)
    return floor_to(now, interval.grain) - interval.span


def tier_retention(tier: str | None) -> int:
    """How far back logs.all reaches for a tier, in µs; any tier but the four means FREE (specification 4.2)."""
    return _TIERS.get(tier or "", _TIERS["FREE"])
