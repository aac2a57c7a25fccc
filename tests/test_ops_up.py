"""`freshet up --demo` really run: what it prints, what its curl lines answer, what it mends, and how it ends."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from conftest import Topics
from kafka_broker import KafkaBroker
from service import free_port, wait_for
from test_ops_processes import is_gone

from ops.demo import PROJECT
from ops.progress import read_progress
from schema.tables import migrate

FRESHET = (sys.executable, "-m", "ops")
CURL_LINES = r"^  curl -s .*api-counts"
Totals = dict[str, int]


class Up:
    """`freshet up --demo`, or with other options, on a data folder. Killed with all its children when left."""

    def __init__(
        self, folder: Path, freshet: Sequence[str] = FRESHET, *options: str, wait: str = r"^  curl -s .*api-counts"
    ) -> None:
        self._wait = wait
        self.output = folder / "output"
        self.listen = f"127.0.0.1:{free_port()}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FRESHET_")}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*freshet, "up", *(options or ["--demo"])],
                cwd=folder,
                env=environment | {"FRESHET_DATA": str(folder / "data"), "FRESHET_LISTEN": self.listen},
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        wait_for("the welcome", lambda: re.search(self._wait, self.printed, re.M) or self.process.poll() is not None)
        assert self.process.poll() is None, self.printed
        return self

    def __exit__(self, *_: object) -> None:
        left = [self.process.pid, *descendants(self.process.pid)]
        for pid in left:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def printed(self) -> str:
        return self.output.read_text()

    @property
    def curls(self) -> list[str]:
        """The curl lines that it has printed."""
        return re.findall(r"^  (curl .*)\n", self.printed, re.MULTILINE)

    @property
    def key(self) -> str:
        (key,) = re.findall(r"^The demo's API key, shown this once: (\S+)$", self.printed, re.MULTILINE)
        return str(key)

    def child(self, command: str) -> int | None:
        """The process that runs one of the commands now."""
        for pid in children(self.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command.encode() in words:
                return pid
        return None

    def totals(self) -> Totals:
        """What the demo's project has come to, over spans that are longer than its history."""
        counts = self.ask(f"usage.api-counts?project={PROJECT}&interval=daily")
        statistics = self.ask(f"functions.invocation-stats?project={PROJECT}&interval=7day")
        return {
            "requests": sum(sum(value for column, value in row.items() if column != "timestamp") for row in counts),
            "invocations": sum(row["count"] for row in statistics),
        }

    def ask(self, query: str, key: str | None = None) -> list[dict[str, Any]]:
        url = f"http://{self.listen}/api/endpoints/{query}&api_key={key or self.key}"
        with urlopen(Request(url, headers={"Cache-Control": "no-cache"}), timeout=30) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["result"]
            return rows

    def grown(self, before: Totals) -> Totals | None:
        """The totals, once all of them are more than before."""
        now = self.totals()
        return now if all(now[name] > before[name] for name in before) else None


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *descendants(child))]


def run(curl: str) -> list[dict[str, Any]]:
    """The rows that a printed curl line answers, typed as it stands into a shell."""
    done = subprocess.run(["sh", "-c", curl], capture_output=True, timeout=30, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["result"]
    return rows


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up")) as started:
        yield started


def test_it_prints_its_address_its_folder_a_key_and_three_curl_lines(up: Up) -> None:
    assert f"\nFreshet answers at http://{up.listen}\n" in up.printed
    assert f"\nData and logs are in {up.output.parent / 'data'}\n" in up.printed
    assert up.key.startswith("fr_")
    endpoints = ("functions.invocation-stats", "logs.all", "usage.api-counts")
    for curl, endpoint in zip(up.curls, endpoints, strict=True):
        assert curl.startswith(
            f"curl -s -H 'X-API-KEY: {up.key}' -H 'Cache-Control: no-cache' "
            f"'http://{up.listen}/api/endpoints/{endpoint}?project="
        )
    for log in ("worker.log", "api.log", "demo.log"):
        assert (up.output.parent / "data" / "log" / log).exists()


def test_the_three_curl_lines_answer_with_rows_and_the_rows_grow(up: Up) -> None:
    statistics, logs, counts = up.curls
    wait_for("rows of each", lambda: all(run(curl) for curl in up.curls))
    invocations = sum(row["count"] for row in run(statistics))
    wait_for("more invocations", lambda: sum(row["count"] for row in run(statistics)) > invocations)
    newest = run(logs)[0]["timestamp"]
    wait_for("a newer entry", lambda: run(logs)[0]["timestamp"] > newest)
    requests = sum(row["total_rest_requests"] for row in run(counts))
    wait_for("more requests", lambda: sum(row["total_rest_requests"] for row in run(counts)) > requests)


def test_a_killed_worker_is_replaced_and_the_rows_go_on_growing(up: Up) -> None:
    wait_for("rows", lambda: up.grown({"requests": 0, "invocations": 0}))
    first = wait_for("a worker", lambda: up.child("worker"))
    os.kill(first, signal.SIGKILL)
    wait_for("its end", lambda: up.child("worker") != first)
    before = up.totals()
    assert wait_for("another worker", lambda: up.child("worker")) != first
    wait_for("more rows", lambda: up.grown(before))
    assert "the worker was killed by SIGKILL; starting it again in " in up.printed


def test_a_store_that_it_can_not_look_at_for_a_while_ends_nothing(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    names = f'topic_edge = "{topics.edge}"\ntopic_functions = "{topics.functions}"\ngroup = "{topics.edge}"\n'
    (tmp_path / "freshet.toml").write_text(f'broker = "kafka://{kafka.bootstrap}"\n{names}')
    with Up(tmp_path) as up:
        before = wait_for("rows", lambda: up.grown({"requests": 0, "invocations": 0}))
        limits = resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))  # it can open no file
        time.sleep(2)  # some looks
        assert up.process.poll() is None, up.printed
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, limits)
        wait_for("more rows", lambda: up.grown(before))


def test_ctrl_c_stops_everything_and_the_next_start_has_the_rows_from_before(tmp_path: Path) -> None:
    with Up(tmp_path) as first:
        before = wait_for("rows", lambda: first.grown({"requests": 0, "invocations": 0}))
        everything, old_key = descendants(first.process.pid), first.key
        assert len(everything) >= 4
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(30) == 0
        assert first.printed.endswith("stopping\nstopped\n")
        assert all(is_gone(pid) for pid in everything)
    with Up(tmp_path) as second:
        after = second.totals()
        assert all(after[name] >= before[name] for name in before)
        with pytest.raises(HTTPError, match="401") as refused:
            second.ask(f"logs.all?project={PROJECT}", old_key)
        refused.value.close()
        wait_for("more rows", lambda: second.grown(after))


def test_when_it_is_killed_all_its_children_end_by_themselves(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        wait_for("rows", lambda: up.grown({"requests": 0, "invocations": 0}))
        left = descendants(up.process.pid)
        assert len(left) >= 4
        up.process.kill()
        try:
            wait_for("their end", lambda: all(is_gone(pid) for pid in left), 20)
        finally:
            for pid in left:
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["with space", "100%", "a#b", "per%20cent", "what?mode=rwc"])
def test_progress_is_read_in_a_data_folder_of_any_name(tmp_path: Path, name: str) -> None:
    migrate(tmp_path / name)
    assert read_progress(tmp_path / name).events == {}
