"""The time limit of one query, and the transaction that it reads in."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from schema.errors import QueryTimeout

_STEPS_BETWEEN_LOOKS = 1000  # of SQLite's virtual machine, between two looks at the clock


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

    @contextmanager
    def interrupting(self, db: apsw.Connection) -> Iterator[None]:
        """Have SQLite give up what runs on a connection past the moment: apsw.InterruptError."""
        db.set_progress_handler(self.passed, _STEPS_BETWEEN_LOOKS)
        try:
            yield
        finally:
            db.set_progress_handler(None)


@contextmanager
def read_transaction(db: apsw.Connection, deadline: Deadline) -> Iterator[None]:
    """All reads within see one state of the database. Raises QueryTimeout past the deadline."""
    try:
        with deadline.interrupting(db):
            db.execute("BEGIN")
            yield
    except apsw.InterruptError:
        deadline.check()
        raise
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
