"""A worker as the product starts it, except that marked records strike it: `python chaos_worker.py FIRED`.

A marker is a record that is no JSON. The worker whose batch holds one that has not fired yet kills itself with
SIGKILL, or stops itself with SIGSTOP, at the place in the commit protocol that the marker names. FIRED lists the
markers that have fired, each with the worker's process id, topic and partition.
"""

import ctypes
import os
import re
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from schema.settings import load_settings
from streams.store import FoldedBatch, Store
from streams.worker import run_worker

STOP = "stop before step 1"
DIE = ("die between steps 3 and 4", "die between steps 4 and 5", "die after step 5")
_BEFORE_DELTAS, _BEFORE_COMMIT, _AFTER_COMMIT = DIE
_MARKER = re.compile(rb"chaos marker ([0-9]+): ([a-z0-9 ]+)")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def marker(number: int, what: str) -> bytes:
    """The record that makes one worker, once, `STOP` or one of `DIE`."""
    return f"chaos marker {number}: {what}".encode()


class Fired(NamedTuple):
    """Whom a marker struck, and the partition whose batch held it."""

    process: int
    topic: str
    partition: int


def fired_markers(fired: Path) -> dict[int, Fired]:
    """The markers that have fired, by number."""
    lines = fired.read_text().splitlines() if fired.exists() else []
    return {
        int(number): Fired(int(process), topic, int(partition))
        for number, process, topic, partition in map(str.split, lines)
    }


class MarkedStore(Store):
    """The product's store, in which markers strike."""

    fired: Path

    def apply(self, batch: FoldedBatch) -> bool:
        self._meet(batch, STOP, signal.SIGSTOP)
        applied = super().apply(batch)
        if applied:
            self._meet(batch, _AFTER_COMMIT)
        return applied

    def _add(self, db: sqlite3.Connection, batch: FoldedBatch) -> None:
        self._meet(batch, _BEFORE_DELTAS)
        super()._add(db, batch)
        self._meet(batch, _BEFORE_COMMIT)

    def _meet(self, batch: FoldedBatch, what: str, blow: signal.Signals = signal.SIGKILL) -> None:
        for _, reject, _ in batch.rejects:
            found = _MARKER.fullmatch(reject.data)
            if found and found[2].decode() == what and int(found[1]) not in fired_markers(self.fired):
                with self.fired.open("a") as file:
                    file.write(f"{int(found[1])} {os.getpid()} {batch.source.topic} {batch.source.partition}\n")
                signal.pthread_kill(threading.get_ident(), blow)  # this thread gets no further


def main(fired: str) -> None:
    """Run one worker until it is stopped, or dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    MarkedStore.fired = Path(fired)
    for name, module in list(sys.modules.items()):
        if name.startswith("streams.") and name != Store.__module__ and vars(module).get("Store") is Store:
            module.__dict__["Store"] = MarkedStore
    run_worker(load_settings())


if __name__ == "__main__":
    main(*sys.argv[1:])
