"""The time limit of one query, and the transaction that it reads in."""

import time
from typing import Self

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


class Interrupting:
    """Has SQLite give up what runs on a connection past a deadline: apsw.InterruptError."""

    def __init__(self, db: apsw.Connection, deadline: Deadline) -> None:
        self._db, self._deadline = db, deadline

    def __enter__(self) -> Self:
        self._db.set_progress_handler(self._deadline.passed, _STEPS_BETWEEN_LOOKS)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.set_progress_handler(None)


class ReadTransaction(Interrupting):
    """All reads within see one state of the database. Raises QueryTimeout past the deadline.

    No generator: one within another took half of the 4 µs that this takes around nothing.
    """

    def __init__(self, db: apsw.Connection, deadline: Deadline) -> None:
        super().__init__(db, deadline)
        self.is_own = not db.in_transaction
        """Whether it is one, and not within another one."""

    def __enter__(self) -> Self:
        if self.is_own:
            self._db.execute("BEGIN")
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().__exit__(kind)
        if self.is_own and self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if kind is not None and issubclass(kind, apsw.InterruptError):
            self._deadline.check()
