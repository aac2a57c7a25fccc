"""How one generation of the database takes another's place (design section 3).

The old one is retired, so that no worker writes to it any more; the new one catches up with its positions; the control
database then names the new one. Readers look the generation up before each query, workers wait for it to change.
Whoever does this holds a lock for as long: where it dies in between, a worker finds the lock free and revives the old.
"""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from schema.errors import FreshetError
from schema.tables import control_path, current_generation, store_path

_BUSY_SECONDS = 60.0


@contextmanager
def sole_replay(data: Path) -> Iterator[None]:
    """Be the one who replaces a generation. Raises FreshetError while another process is at it."""
    with _locked(data, fcntl.LOCK_EX) as locked:
        if not locked:
            raise FreshetError(
                f"another replay or verify, or a retry of rejects, is running on {data}: wait for it, or stop it"
            )
        yield


@contextmanager
def no_replay(data: Path) -> Iterator[None]:
    """Have no replay or verify begin. Raises FreshetError while one is running."""
    with _locked(data, fcntl.LOCK_SH) as locked:
        if not locked:
            raise FreshetError(f"a replay or verify is running on {data}: wait for it, or stop it")
        yield


def revive(data: Path, generation: int) -> bool:
    """Have a generation go on that was retired by a replay that died; False where one runs, or another took its place.

    No replay begins or switches in between.
    """
    with _locked(data, fcntl.LOCK_SH) as locked:
        if not locked or current_generation(data) != generation:
            return False
        set_retired(store_path(data, generation), False)
        return True


def set_retired(store: Path, retired: bool) -> None:
    """Have a generation take nothing any more, or take it again."""
    with closing(sqlite3.connect(store, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
        db.execute("UPDATE store SET retired = ?", (int(retired),))


def switch(data: Path, generation: int) -> None:
    """Have readers and workers use a generation from now on."""
    with closing(sqlite3.connect(control_path(data), timeout=_BUSY_SECONDS, isolation_level=None)) as db:
        db.execute("UPDATE generation SET current = ?", (generation,))


@contextmanager
def _locked(data: Path, kind: int) -> Iterator[bool]:
    """Hold the lock, alone or with others of the same kind; gives whether it was to be had."""
    with (data / "replay.lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
