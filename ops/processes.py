"""Child processes: started with the same settings, started anew when they die, stopped in order."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from schema.settings import Settings, to_environment

_PR_SET_PDEATHSIG = 1
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0  # seconds before a dead process is started again
_STEADY = 60.0  # seconds after which a process counts as having come up well
STOP_SECONDS = 20.0
"""How long a process may take to stop before it is killed."""


def die_with_parent(parent: int) -> None:
    """Have this process told to stop when its parent ends, however that ends. Linux only; elsewhere it does nothing.

    `parent` is the parent's id: 1 in a container that runs nothing else, so that none of them tells an orphan.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            sys.exit(0)


class Process:
    """One `freshet` command kept running. Its output goes to a log file."""

    def __init__(self, command: str, settings: Settings, log: Path, say: Callable[[str], None]) -> None:
        self.command = command
        self.log = log
        self._environment = {**os.environ, **to_environment(settings)}
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._delay = _FIRST_DELAY
        self._start_at = 0.0

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the command, in a session of its own: a Ctrl-C is for the one who stops all in order.

        With -P no module of the working folder is taken for one of ours.
        """
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ops", self.command, "--with-parent", str(os.getpid())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started = time.monotonic()

    def keep_running(self) -> None:
        """Start the command again if it has ended; call this often. The wait before it doubles while that goes on."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._start_at:
                self.start()
            return
        code = self._process.poll()
        if code is None:
            return
        if now - self._started > _STEADY:
            self._delay = _FIRST_DELAY
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        self._say(f"the {self.command} {how}; starting it again in {self._delay:g} s (its log: {self.log})")
        self._process, self._start_at = None, now + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def stop(self) -> None:
        """Stop the command, by force where asking takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._say(f"the {self.command} does not stop; killing it")
            self._process.kill()
            self._process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has none
        return f"signal {number}"
