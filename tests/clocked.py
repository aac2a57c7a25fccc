"""A worker or an API as the product starts them, but on a clock that a test sets: `python clocked.py worker|api FILE`.

FILE holds the time in µs; while it is missing the machine's time counts.
"""

import os
import sys
from pathlib import Path

from schema.clock import system_clock
from schema.settings import load_settings


class FileClock:
    """The time that stands in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = (0, 0)
        self._time = 0

    def __call__(self) -> int:
        """The time in µs. The file is read when another one is there (tests rename a new one over it)."""
        try:
            stat = os.stat(self._file)
            if (stat.st_ino, stat.st_mtime_ns) != self._seen:
                self._time = int(self._file.read_text())
                self._seen = (stat.st_ino, stat.st_mtime_ns)
            return self._time
        except FileNotFoundError:
            return system_clock()


def main(command: str, file: str) -> None:
    """Run one of the two until it is stopped."""
    settings, clock = load_settings(), FileClock(Path(file))
    if command == "worker":
        from streams.worker import run_worker

        run_worker(settings, clock)
    else:
        from api.app import create_app
        from api.server import run_server

        run_server(settings, lambda: create_app(settings, clock))


if __name__ == "__main__":
    main(*sys.argv[1:])
