"""The time limit of one query."""

import time

from schema.errors import QueryTimeout


class Deadline:
    """A moment after which a query is given up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def passed(self) -> bool:
        """Whether the moment has come; SQLite's progress handler asks this."""
        return time.monotonic() > self._end

    def check(self) -> None:
        """Raises QueryTimeout once the moment has come; table functions ask this between blocks."""
        if self.passed():
            raise QueryTimeout(f"the query took longer than {self._seconds:g} s")
