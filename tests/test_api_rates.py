"""A key may make a second's worth of requests at once, and no more than its rate over any longer time."""

from hypothesis import given
from hypothesis import strategies as st

from api.rates import Rates, rate_headers


class SetClock:
    """A time in seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_of_a_second_s_worth_then_one_as_often_as_the_rate() -> None:
    for limit in (1, 3, 7, 10, 100, 999):
        clock = SetClock()
        rates = Rates(limit, clock)
        allowances = [rates.take("a") for _ in range(limit)]
        assert [allowance.passes for allowance in allowances] == [True] * limit
        assert [allowance.remaining for allowance in allowances] == list(range(limit))[::-1]
        refused = rates.take("a")
        assert (refused.passes, refused.remaining) == (False, 0)
        assert 0 < refused.wait <= 1 / limit + 1e-6
        assert rates.take("b").passes
        clock.now += refused.wait
        assert rates.take("a").passes
        assert not rates.take("a").passes


def test_being_refused_costs_nothing() -> None:
    clock = SetClock()
    rates = Rates(2, clock)
    for _ in range(1000):
        rates.take("a")
    clock.now += 1
    assert [rates.take("a").passes for _ in range(3)] == [True, True, False]


@given(st.integers(1, 50), st.lists(st.floats(0, 0.5), min_size=1, max_size=300))
def test_no_span_lets_more_through_than_its_length_and_a_burst(limit: int, pauses: list[float]) -> None:
    clock = SetClock()
    rates = Rates(limit, clock)
    passed = []
    for pause in pauses:
        clock.now += pause
        allowance = rates.take("a")
        assert 0 <= allowance.remaining < limit
        if allowance.passes:
            passed.append(clock.now)
    for first in range(0, len(passed), 7):
        for last in range(first, len(passed), 11):
            assert last - first + 1 <= limit + limit * (passed[last] - passed[first]) + 1e-3


def test_the_headers_tell_when_to_come_again() -> None:
    clock = SetClock()
    rates = Rates(1, clock)
    assert rate_headers(1, rates.take("a")) == {"RateLimit-Policy": '"key";q=1;w=1', "RateLimit": '"key";r=0;t=1'}
    assert rate_headers(1, rates.take("a"))["Retry-After"] == "1"
