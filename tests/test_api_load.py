"""At twice its capacity the API refuses what it can't answer at once, and answers the rest; `make load` in short."""

from pathlib import Path

from load import run


def test_at_twice_the_capacity_the_rest_is_refused_and_the_admitted_are_answered_in_time(tmp_path: Path) -> None:
    report = run(tmp_path, seconds=4, connections=100)
    assert report.failings() == []
    assert report.over.statuses[200] > 0.3 * report.capacity * report.over.seconds
