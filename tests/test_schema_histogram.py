"""The histogram is exact where it is meant to be, close elsewhere, and the same however events are split."""

from collections import Counter
from functools import reduce
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import percentile_agrees

from schema.histogram import cell_of, combine, decode, encode, lower_edge, merge, percentile, whole_milliseconds

LONGEST = 1 << 31  # ms; longer execution times count as absent
MILLISECONDS = st.one_of(
    st.integers(0, 3000),
    st.integers(0, LONGEST),
    st.builds(lambda bits, step: max(0, (1 << bits) + step), st.integers(9, 31), st.integers(-2, 2)),
)
MICROS = st.one_of(st.integers(0, 5_000_000), st.integers(0, LONGEST * 1000), MILLISECONDS.map(lambda ms: ms * 1000))
TIMES = st.lists(MICROS, min_size=1, max_size=300)


def histogram(times: list[int]) -> bytes:
    return encode(Counter(cell_of(whole_milliseconds(time)) for time in times))


def test_each_millisecond_below_2048_has_a_cell_of_its_own() -> None:
    assert [lower_edge(cell_of(ms)) for ms in range(2048)] == list(range(2048))
    assert len({cell_of(ms) for ms in range(2048)}) == 2048


def test_from_2048_on_an_octave_has_1024_cells() -> None:
    assert [lower_edge(cell_of(ms)) for ms in (2048, 2049, 2050, 4095, 4096, 4099)] == [
        2048,
        2048,
        2050,
        4094,
        4096,
        4096,
    ]
    assert len({cell_of(ms) for ms in range(4096, 8192)}) == 1024
    assert cell_of(8192) == cell_of(8191) + 1


@given(MILLISECONDS)
@settings(max_examples=500)
def test_a_cell_stands_for_its_lower_edge_less_than_a_thousandth_below(ms: int) -> None:
    edge = lower_edge(cell_of(ms))
    assert edge <= ms
    assert (ms - edge) * 1000 < max(ms, 1)
    assert cell_of(edge) == cell_of(ms)


@given(MILLISECONDS, MILLISECONDS)
def test_a_longer_time_is_never_in_a_lower_cell(a: int, b: int) -> None:
    shorter, longer = sorted((a, b))
    assert cell_of(shorter) <= cell_of(longer)


@pytest.mark.parametrize(("micros", "ms"), [(0, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (1_023_500, 1024)])
def test_milliseconds_are_rounded_half_up(micros: int, ms: int) -> None:
    assert whole_milliseconds(micros) == ms


@given(st.dictionaries(st.integers(0, 23_000), st.integers(1, 1 << 40), max_size=60))
def test_the_stored_form_gives_back_the_counts_in_order_of_cell(counts: dict[int, int]) -> None:
    assert decode(encode(counts)) == sorted(counts.items())


@given(TIMES, st.randoms(use_true_random=False))
def test_neither_order_nor_split_of_the_times_shows_in_the_bytes(times: list[int], random: Random) -> None:
    whole = histogram(times)
    shuffled = random.sample(times, len(times))
    cuts = sorted(random.choices(range(len(times) + 1), k=random.randrange(6)))
    parts = [histogram(shuffled[start:end]) for start, end in zip([0, *cuts], [*cuts, len(times)], strict=True)]
    assert combine(parts) == whole
    assert combine(reversed(parts)) == whole
    assert reduce(merge, parts) == whole


@given(TIMES, TIMES, TIMES)
@settings(max_examples=50)
def test_merging_is_commutative_and_associative_to_the_byte(a: list[int], b: list[int], c: list[int]) -> None:
    x, y, z = histogram(a), histogram(b), histogram(c)
    assert merge(x, y) == merge(y, x)
    assert merge(merge(x, y), z) == merge(x, merge(y, z))
    assert merge(x, encode({})) == x


@given(TIMES, st.sampled_from([1, 50, 95, 99, 100]))
@settings(max_examples=300)
def test_a_percentile_is_the_element_at_its_rank_within_a_thousandth(times: list[int], percent: int) -> None:
    answer = percentile(histogram(times), percent, min(times), max(times))
    ordered = sorted(whole_milliseconds(time) for time in times)
    exact = ordered[max(0, -(-percent * len(times) // 100) - 1)]
    assert answer is not None
    assert percentile_agrees(answer, exact, ordered[0], ordered[-1])
    assert answer <= exact
    assert (exact - answer) * 1000 < max(exact, 1)


def test_a_percentile_is_an_element_and_not_between_two() -> None:
    hundred = histogram([ms * 1000 for ms in range(1, 101)])
    assert [percentile(hundred, percent, 1000, 100_000) for percent in (0, 1, 95, 99, 100)] == [1, 1, 95, 99, 100]
    assert [percentile(histogram([1000, 9000]), percent, 1000, 9000) for percent in (50, 51)] == [1, 9]


def test_a_percentile_is_never_below_the_smallest_time() -> None:
    assert percentile(histogram([8199 * 1000]), 99, 8_199_000, 8_199_000) == 8199


def test_no_times_have_no_percentile() -> None:
    assert percentile(encode({}), 95, 0, 0) is None
