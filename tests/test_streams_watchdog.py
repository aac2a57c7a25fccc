"""A worker that is stuck is told from one that has nothing to do, or is busy."""

from dataclasses import replace

import pytest

from streams.watchdog import Sighting, Watch

PATIENCE = 120.0
START = 1000.0


def idle(now: float) -> Sighting:
    """A worker without lag that has just fetched, and has applied nothing since its start."""
    return Sighting(False, True, assigned=True, last_turn=now, last_fetch=now, last_progress=START, lag=0)


def busy(now: float) -> Sighting:
    return replace(idle(now), last_progress=now, lag=5000)


@pytest.fixture
def watch() -> Watch:
    return Watch(PATIENCE, START)


def test_an_idle_worker_is_never_judged(watch: Watch) -> None:
    assert {watch.judge(idle(START + second), START + second) for second in range(10_000)} == {None}


def test_a_busy_worker_that_never_catches_up_is_never_judged(watch: Watch) -> None:
    assert {watch.judge(busy(START + second), START + second) for second in range(10_000)} == {None}


def test_a_message_after_a_long_idle_time_has_all_the_patience(watch: Watch) -> None:
    for second in range(5000):
        assert watch.judge(idle(START + second), START + second) is None
    for second in range(5000, 5100):
        assert watch.judge(replace(idle(START + second), lag=1), START + second) is None
    assert watch.judge(idle(START + 5100), START + 5100) is None


def test_a_worker_that_lags_and_applies_nothing_is_stuck(watch: Watch) -> None:
    for second in range(300):
        assert watch.judge(busy(START + second), START + second) is None
    stalled = replace(busy(START + 299), lag=17)
    for second in range(300, 420):
        now = START + second
        assert watch.judge(replace(stalled, last_fetch=now, last_turn=now), now) is None
    now = START + 420
    why = watch.judge(replace(stalled, last_fetch=now, last_turn=now), now)
    assert why == "it lags 17 messages behind and has applied nothing for 121 s"


def test_a_worker_that_applied_nothing_since_its_start_is_stuck_once_it_lags(watch: Watch) -> None:
    verdicts = [watch.judge(replace(idle(START + second), lag=1), START + second) for second in range(122)]
    assert [second for second, why in enumerate(verdicts) if why] == [121]


@pytest.mark.parametrize("lag", [0, 5])
def test_a_worker_that_stops_fetching_is_stuck(watch: Watch, lag: int) -> None:
    for second in range(300):
        assert watch.judge(idle(START + second), START + second) is None
    silent = replace(idle(START + 299), lag=lag)
    for second in range(300, 420):
        assert watch.judge(replace(silent, last_turn=START + second), START + second) is None
    assert watch.judge(replace(silent, last_turn=START + 420), START + 420) == "it has not fetched for 121 s"


def test_a_spare_to_which_nothing_is_assigned_stands_by_for_ever_and_then_has_all_the_patience(watch: Watch) -> None:
    spare = replace(idle(START), assigned=False)
    for second in range(100_000):
        assert watch.judge(replace(spare, last_turn=START + second), START + second) is None
    late = START + 100_000
    for second in range(120):
        assert watch.judge(replace(spare, assigned=True, last_turn=late + second), late + second) is None
    assert (
        watch.judge(replace(spare, assigned=True, last_turn=late + 120), late + 120) == "it has not fetched for 121 s"
    )


@pytest.mark.parametrize("assigned", [True, False])
def test_a_worker_whose_event_loop_stands_still_is_stuck(watch: Watch, assigned: bool) -> None:
    for second in range(121):
        assert watch.judge(replace(idle(START), assigned=assigned), START + second) is None
    why = watch.judge(replace(idle(START), assigned=assigned), START + 121)
    assert why == "its event loop has stood still for 121 s"


@pytest.mark.parametrize(
    ("state", "said"), [({"rebalancing": True}, "rebalancing for 121 s"), ({"flowing": False}, "flow back for 121 s")]
)
def test_a_worker_that_does_not_come_out_of_a_state_is_stuck(watch: Watch, state: dict[str, bool], said: str) -> None:
    assert watch.judge(idle(START), START) is None
    for second in range(1, 121):
        assert watch.judge(replace(idle(START + second), **state), START + second) is None
    why = watch.judge(replace(idle(START + 121), **state), START + 121)
    assert why is not None
    assert said in why


def test_a_worker_that_never_started_is_stuck(watch: Watch) -> None:
    never = Sighting(True, False, assigned=False, last_turn=START, last_fetch=START, last_progress=START, lag=0)
    assert watch.judge(never, START + PATIENCE) is None
    assert watch.judge(never, START + PATIENCE + 1) is not None


def test_after_a_long_rebalance_a_worker_has_all_the_patience_to_fetch_and_to_apply(watch: Watch) -> None:
    before = replace(idle(START), lag=9)
    for second in range(100):
        assert watch.judge(replace(before, rebalancing=True), START + second) is None
    for second in range(100, 200):
        assert watch.judge(replace(before, last_turn=START + second), START + second) is None
    assert watch.judge(busy(START + 200), START + 200) is None
    for second in range(200, 320):
        assert watch.judge(replace(busy(START + 200), last_turn=START + second), START + second) is None
    assert watch.judge(replace(busy(START + 200), last_turn=START + 321), START + 321) is not None


def test_short_rebalances_are_no_state_to_come_out_of(watch: Watch) -> None:
    for second in range(2000):
        seen = replace(busy(START + second), rebalancing=second % 60 < 50, flowing=second % 60 >= 55)
        assert watch.judge(seen, START + second) is None
