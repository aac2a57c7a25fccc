"""Child processes: started anew when they die, stopped by force if need be, and gone when their parent is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from service import free_port, wait_for

import ops.processes
from ops.processes import Process
from schema.settings import Settings, to_environment
from schema.tables import migrate

PARENT = """
import sys, time
from pathlib import Path
from ops.processes import Process
from schema.settings import load_settings
process = Process("api", load_settings(), Path(sys.argv[1]), print)
process.start()
print(process.pid, flush=True)
time.sleep(600)
"""


class Kept:
    """A process that is kept running, with what was said of it. Killed when left."""

    def __init__(self, command: str, folder: Path) -> None:
        self.said: list[str] = []
        self.settings = Settings(data=folder / "data", listen=f"127.0.0.1:{free_port()}")
        self.process = Process(command, self.settings, folder / f"{command}.log", self.said.append)

    def is_up(self) -> bool:
        """Whether it answers."""
        return answers(self.settings)

    def restart(self) -> None:
        """Wait until it has ended, and then until it has been started again."""
        wait_for("its end", lambda: self.process.pid is None)
        wait_for("another", self._again)

    def _again(self) -> bool:
        self.process.keep_running()
        return self.process.pid is not None

    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


def answers(settings: Settings) -> bool:
    try:
        with urlopen(f"http://{settings.listen}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    """Whether a process has ended, waited for by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept("api", tmp_path)
    migrate(kept.settings.data)
    kept.process.start()
    try:
        wait_for("the API", kept.is_up)
        yield kept
    finally:
        kept.process.stop()


def test_a_child_runs_with_its_settings_in_a_session_of_its_own_and_logs_to_its_file(api: Kept) -> None:
    assert os.getsid(api.pid()) == api.pid()
    assert "Listening at: http://" + api.settings.listen in api.process.log.read_text()
    api.process.keep_running()
    assert api.said == []


def test_a_killed_child_is_started_again(api: Kept) -> None:
    first = api.pid()
    os.kill(first, signal.SIGKILL)
    api.restart()
    assert api.said == [f"the api was killed by SIGKILL; starting it again in 0.5 s (its log: {api.process.log})"]
    assert api.pid() != first
    wait_for("the API", api.is_up)


def test_a_child_that_keeps_dying_is_started_again_after_growing_delays(tmp_path: Path) -> None:
    kept = Kept("no-such-command", tmp_path)
    delays: list[float] = []
    kept.process.start()
    for _ in range(3):
        wait_for("its end", lambda: kept.process.pid is None)
        ended = time.monotonic()
        kept.restart()
        delays.append(time.monotonic() - ended)
    kept.process.stop()
    expected = [f"the no-such-command ended with code 2; starting it again in {delay} s" for delay in ("0.5", "1", "2")]
    assert [text.partition(" (its log: ")[0] for text in kept.said] == expected
    assert all(delay >= least for delay, least in zip(delays, (0.5, 1, 2), strict=True))
    assert kept.process.log.read_text().count("No such command 'no-such-command'") >= 3


def test_a_child_that_has_run_for_long_is_started_again_soon(api: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.processes, "_STEADY", 0.0)
    for _ in range(2):
        os.kill(api.pid(), signal.SIGKILL)
        api.restart()
    assert [text.partition(" (its log: ")[0] for text in api.said] == 2 * [
        "the api was killed by SIGKILL; starting it again in 0.5 s"
    ]


def test_stop_ends_a_child_and_is_silent_about_one_that_has_ended(api: Kept) -> None:
    pid = api.pid()
    api.process.stop()
    assert is_gone(pid)
    assert api.process.pid is None
    api.process.stop()
    assert api.said == []


def test_stop_kills_what_does_not_stop(api: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.processes, "STOP_SECONDS", 0.5)
    pid = api.pid()
    os.kill(pid, signal.SIGSTOP)  # so that it does not see the SIGTERM
    api.process.stop()
    assert api.said == ["the api does not stop; killing it"]
    assert is_gone(pid)


def test_a_child_may_be_killed_by_a_signal_without_a_name(api: Kept) -> None:
    os.kill(api.pid(), signal.SIGRTMIN + 6)
    api.restart()
    (said,) = api.said
    assert said.startswith("the api was killed by ")


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", listen=f"127.0.0.1:{free_port()}")
    migrate(settings.data)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "api.log")],
        env={**os.environ, **to_environment(settings)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for("the API", lambda: answers(settings))
        grandchildren = [int(pid) for pid in Path(f"/proc/{child}/task/{child}/children").read_text().split()]
        assert grandchildren
        parent.kill()
        wait_for("the end of both", lambda: all(is_gone(pid) for pid in (child, *grandchildren)))
    assert not answers(settings)


def test_a_child_whose_parent_has_ended_before_it_could_ask_ends_itself(tmp_path: Path) -> None:
    kept = Kept("api", tmp_path)
    migrate(kept.settings.data)
    command = [sys.executable, "-m", "ops", "api", "--with-parent", "1"]  # another's: this process is its parent
    done = subprocess.run(command, env={**os.environ, **to_environment(kept.settings)}, timeout=30, check=False)
    assert done.returncode == 0
