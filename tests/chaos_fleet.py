"""Workers under a supervisor, for the chaos harness."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

RESTART_SECONDS = 0.5  # how soon the supervisor starts another worker
MOST_WORKERS = 3
_PLACE = re.compile(r"\S*[/:]\S*[/:]\S*")
_HEAD = re.compile(r"^[-0-9]{10} [0-9:,]{12} ")


@dataclass(eq=False)
class Worker:
    """A worker's process. `ending` says what the harness did to it that ends it, '' while nothing."""

    process: subprocess.Popen[bytes]
    log: Path
    ending: str = ""
    frozen: bool = False

    def signal(self, number: int, ending: str = "") -> None:
        """Send a signal."""
        self.ending = ending or self.ending
        self.process.send_signal(number)

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        self.signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """Whether its process has not ended."""
        return self.process.poll() is None

    @property
    def reading(self) -> bool:
        """Whether it has got so far as to read from its partitions."""
        return self.alive and not self.frozen and "reading on from" in self.log.read_text(errors="replace")

    def last_words(self) -> str:
        """The last line of its log that is no part of a traceback's frames."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line[:1].strip()]
        return _PLACE.sub("…", _HEAD.sub("", lines[-1]).partition(" (")[0])[:200] if lines else "nothing"


@dataclass
class Fleet:
    """The workers on one store, and their supervisor: `tend` starts as many as are wanted."""

    folder: Path
    environment: Mapping[str, str]
    wanted: int = 2
    workers: list[Worker] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    """How workers ended, by what was done to them and how they answered."""
    _started: int = 0
    _ended_at: float = 0.0

    @property
    def fired(self) -> Path:
        """The file of the markers that have killed."""
        return self.folder / "fired"

    def tend(self) -> None:
        """Take note of those that have ended, and start others."""
        for worker in [worker for worker in self.workers if not worker.alive]:
            self._note_end(worker)
            self.workers.remove(worker)
            self._ended_at = time.monotonic()
        if len(self.workers) < self.wanted and time.monotonic() - self._ended_at >= RESTART_SECONDS:
            self.start()

    def start(self) -> None:
        """Start one more worker."""
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        with log.open("wb") as output:
            program = [sys.executable, str(Path(__file__).with_name("chaos_worker.py")), str(self.fired)]
            process = subprocess.Popen(program, env={**os.environ, **self.environment}, stdout=output, stderr=output)
        self.workers.append(Worker(process, log))

    def pick(self, chance: Random) -> Worker | None:
        """One that runs and to which nothing has been done yet."""
        able = [worker for worker in self.workers if worker.alive and not worker.ending and not worker.frozen]
        return chance.choice(able) if able else None

    def said(self, text: str) -> int:
        """How often any worker so far has logged a text."""
        return sum(log.read_text(errors="replace").count(text) for log in self.folder.glob("worker-*.log"))

    def kill(self) -> None:
        """End all of them."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()

    def _note_end(self, worker: Worker) -> None:
        code = worker.process.returncode
        if code == -9 and not worker.ending:
            self.ends["a marker"] += 1
        elif worker.ending:
            self.ends[f"{worker.ending}: exit code {code}"] += 1
        else:
            self.ends[f"by itself, exit code {code}: {worker.last_words()}"] += 1
