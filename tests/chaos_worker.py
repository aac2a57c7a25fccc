"""A worker as the product starts it, except that marked records kill it: `python chaos_worker.py FIRED`.

A marker is a record that is no JSON. The worker whose batch holds one that has not fired yet kills itself with
SIGKILL at the place in the commit protocol that the marker names; FIRED lists those that have, one number a line.
"""

import ctypes
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path

from schema.settings import load_settings
from streams.store import FoldedBatch, Store
from streams.worker import run_worker

PLACES = ("between steps 3 and 4", "between steps 4 and 5", "after step 5")
_BEFORE_DELTAS, _BEFORE_COMMIT, _AFTER_COMMIT = PLACES
_MARKER = re.compile(rb"chaos marker ([0-9]+): die ([a-z0-9 ]+)")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def marker(number: int, place: str) -> bytes:
    """The record that kills one worker, once, at one of the places."""
    return f"chaos marker {number}: die {place}".encode()


def fired_markers(fired: Path) -> list[str]:
    """The numbers of the markers that have killed, in their order."""
    return fired.read_text().split() if fired.exists() else []


class DyingStore(Store):
    """The product's store, which dies where a marker tells it to."""

    fired: Path

    def apply(self, batch: FoldedBatch) -> bool:
        applied = super().apply(batch)
        if applied:
            self._die(batch, _AFTER_COMMIT)
        return applied

    def _add(self, db: sqlite3.Connection, batch: FoldedBatch) -> None:
        self._die(batch, _BEFORE_DELTAS)
        super()._add(db, batch)
        self._die(batch, _BEFORE_COMMIT)

    def _die(self, batch: FoldedBatch, place: str) -> None:
        for _, reject in batch.rejects:
            found = _MARKER.fullmatch(reject.data)
            if found and found[2].decode() == place and found[1].decode() not in fired_markers(self.fired):
                with self.fired.open("ab") as file:
                    file.write(found[1] + b"\n")
                os.kill(os.getpid(), signal.SIGKILL)


def main(fired: str) -> None:
    """Run one worker until it is stopped, or dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    DyingStore.fired = Path(fired)
    for name, module in list(sys.modules.items()):
        if name.startswith("streams.") and name != Store.__module__ and vars(module).get("Store") is Store:
            module.__dict__["Store"] = DyingStore
    run_worker(load_settings())


if __name__ == "__main__":
    main(*sys.argv[1:])
