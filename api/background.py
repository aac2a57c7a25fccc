"""Searches that took longer than a query may go on here, one at a time, so that the next call finds their result."""

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Self

log = logging.getLogger("freshet.api")
_MOST = 16  # searches that wait; one more is left to the next call, which goes on where this one stopped
_LONGEST_YIELD = 0.05  # seconds that a piece of a search waits for queries, so that it comes to an end at all


class Stopped(Exception):
    """The process stops, and a search with it."""


class Background:
    """One thread that runs searches while no query runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._queries = 0
        self._stopped = False
        self._thread: threading.Thread | None = None

    def query(self) -> Self:
        """Around each query: searches in the background make way for it."""
        return self

    def __enter__(self) -> None:
        with self._lock:
            self._queries += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._queries -= 1
            if self._waiting:
                self._changed.notify_all()

    def go_on(self, name: Hashable, search: Callable[[], None]) -> None:
        """Run a search when its turn comes, unless one of that name is waiting or running."""
        with self._changed:
            if name in self._waiting or len(self._waiting) >= _MOST or self._stopped:
                return
            self._waiting[name] = search
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="search", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def make_way(self) -> None:
        """Called by a search between its pieces: waits for queries. Raises Stopped when the process stops."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queries or self._stopped, _LONGEST_YIELD)
            if self._stopped:
                raise Stopped

    def count(self) -> int:
        """How many searches run or wait."""
        return len(self._waiting)

    def idle(self, seconds: float) -> bool:
        """Wait until nothing is left to search; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def close(self) -> None:
        """Give up what is waiting and running."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._stopped:
                    return
                name, search = next(iter(self._waiting.items()))
            try:
                search()
            except Stopped:
                return
            except Exception:
                log.exception("a search in the background failed; the next query begins where it stopped")
            finally:
                with self._changed:
                    del self._waiting[name]
                    self._changed.notify_all()
