"""Windows, buckets and tiers are those of the specification, to the microsecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import COUNTS_INTERVALS, STATS_INTERVALS, TIERS

from schema.intervals import (
    INVOCATION_INTERVALS,
    USAGE_INTERVALS,
    invocation_interval,
    invocation_window_start,
    tier_retention,
)
from schema.timestamps import DAY, HOUR, MINUTE, SECOND

NOW = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
HOUR_START, DAY_START = 1_699_999_200_000_000, 1_699_920_000_000_000


def test_the_words_are_those_of_the_specification_and_of_studio() -> None:
    assert {word: tuple(interval) for word, interval in INVOCATION_INTERVALS.items()} == STATS_INTERVALS
    assert {word: tuple(interval) for word, interval in USAGE_INTERVALS.items()} == COUNTS_INTERVALS


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("5min", NOW - 300 * SECOND),
        ("15min", NOW - 20 * SECOND - 15 * MINUTE),
        ("1hr", NOW - 20 * SECOND - HOUR),
        ("1day", HOUR_START - DAY),
        ("7day", DAY_START - 7 * DAY),
    ],
)
def test_a_series_begins_whole_buckets_before_the_one_of_now(word: str, first: int) -> None:
    assert invocation_window_start(word, NOW) == first
    grain = INVOCATION_INTERVALS[word].grain
    assert invocation_window_start(word, NOW // grain * grain + grain - 1) == first
    assert invocation_window_start(word, NOW // grain * grain - 1) == first - grain


@given(st.sampled_from([*STATS_INTERVALS]), st.integers(946_684_800_000_000, 4_133_980_799_999_999))
def test_a_series_holds_its_units_and_the_bucket_of_now(word: str, now: int) -> None:
    span, grain = STATS_INTERVALS[word]
    start = invocation_window_start(word, now)
    assert start % grain == 0
    assert now - span - grain < start <= now - span


@pytest.mark.parametrize("word", [None, "", "other", "1DAY", "1Day", " 1day", "30min", "minutely", "hourly", "daily"])
def test_any_other_word_means_one_day_in_hours(word: str | None) -> None:
    assert invocation_interval(word) == (DAY, HOUR)
    assert invocation_window_start(word, NOW) == invocation_window_start("1day", NOW)


@pytest.mark.parametrize("tier", [*TIERS])
def test_a_tier_has_the_window_of_the_specification(tier: str) -> None:
    assert tier_retention(tier) == TIERS[tier]


@pytest.mark.parametrize("tier", [None, "", "pro", "Pro", " PRO", "TEAM", "ENTERPRISE "])
def test_any_other_tier_means_free(tier: str | None) -> None:
    assert tier_retention(tier) == DAY
