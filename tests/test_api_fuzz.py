"""Random requests and bytes end in no 500 and kill no process; the short form of `make fuzz-http`."""

from pathlib import Path

from fuzz_http import run


def test_no_random_request_ends_in_a_500_or_kills_a_process(tmp_path: Path) -> None:
    outcome = run(tmp_path, seed=0, requests=3_000)
    assert outcome.wrong == {}
    assert {200, 400, 401, 404, 405, 501} <= outcome.statuses.keys()
    assert outcome.statuses[200] > 150
