"""Counts of several processes are summed up, whatever becomes of the processes."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from schema.lag import lag_seconds
from schema.meters import Counter, Histogram, Meters, collect, meters_folder

COUNTING = """
import sys
from pathlib import Path
from schema.meters import LATEST, SUM, Counter, Histogram, Meters
meters = Meters()
meters.open(Path(sys.argv[1]))
Counter(meters, "x", "text", ("place",)).add("a", amount=float(sys.argv[2]))
Histogram(meters, "h", "text", (1, 10)).observe(float(sys.argv[2]))
Counter(meters, "living", "text", kind=SUM).put(value=1)
Counter(meters, "seen", "text", kind=LATEST).put(value=float(sys.argv[2]))
print("counted", flush=True)
sys.stdin.read()
"""


def start(data: Path, amount: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COUNTING, str(data), str(amount)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "counted\n"
    return process


@pytest.fixture
def meters() -> Iterator[Meters]:
    meters = Meters()
    yield meters
    meters.close()


def told(data: Path) -> dict[tuple[str, ...], float]:
    return {(s.name, *s.labels.values()): s.value for metric in collect(data) for s in metric.samples}


def test_counts_of_all_processes_are_summed_up_and_stay_when_one_is_killed(tmp_path: Path) -> None:
    first, second = start(tmp_path, 3), start(tmp_path, 20)
    both = {
        ("x_total", "a"): 23,
        ("h_sum",): 23,
        ("h_count",): 2,
        ("h_bucket", "1.0"): 0,
        ("h_bucket", "10.0"): 1,
        ("h_bucket", "+Inf"): 2,
        ("living",): 2,
        ("seen",): 20,
    }
    try:
        assert told(tmp_path) == both
        second.kill()
        second.wait()
        assert told(tmp_path) == both | {("living",): 1}
        first.communicate()
        for _ in range(2):
            assert told(tmp_path) == both | {("living",): 0}
        assert len(list(meters_folder(tmp_path).iterdir())) == 5, "of four kinds, and the lock"
        third = start(tmp_path, 1)
        assert told(tmp_path)["x_total", "a"] == 24
        third.communicate()
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_what_was_counted_before_the_files_is_in_them_and_no_thread_s_count_is_lost(
    meters: Meters, tmp_path: Path
) -> None:
    counter = Counter(meters, "x", "text", ("place",))
    counter.add("before")
    meters.open(tmp_path)

    def count() -> None:
        for _ in range(5000):
            counter.add("a")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told(tmp_path) == {("x_total", "before"): 1, ("x_total", "a"): 20_000}
    meters.close()
    counter.add("a")
    assert told(tmp_path)["x_total", "a"] == 20_000


def test_damaged_files_of_ended_processes_do_not_end_the_scrapes(tmp_path: Path) -> None:
    start(tmp_path, 3).communicate()
    assert told(tmp_path)["x_total", "a"] == 3
    for file in meters_folder(tmp_path).glob("*_ended.db"):
        file.write_bytes(b"\xff\x00\x00\x00\x00\x00\x00\x00" + b"\x07" * 1000)
    start(tmp_path, 4).communicate()
    assert told(tmp_path).get(("x_total", "a")) == 4
    start(tmp_path, 5).communicate()
    assert told(tmp_path)["x_total", "a"] == 9


def test_every_kind_of_label_text_is_kept_as_it_is(meters: Meters, tmp_path: Path) -> None:
    meters.open(tmp_path)
    Counter(meters, "x", "text", ("place",)).add('"\\\n日本{}')
    Histogram(meters, "h", "text", (1,), ("place",)).observe(0.5, "a b")
    assert told(tmp_path)["x_total", '"\\\n日本{}'] == 1
    assert told(tmp_path)["h_bucket", "a b", "1.0"] == 1


@pytest.mark.parametrize(
    ("end", "looked_at", "seconds"), [(5, 99.0, 0), (5, 60.0, 40), (5, None, 0), (6, 99.0, 10), (6, 20.0, 10)]
)
def test_a_lag_at_the_end_grows_once_no_worker_looks_any_more(
    end: int, looked_at: float | None, seconds: float
) -> None:
    assert lag_seconds(100_000_000, 5, end, 90_000, 95_000_000, looked_at) == seconds
