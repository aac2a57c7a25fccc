"""Python functions as SQLite's table-valued functions.

apsw comes with a module for iterators of any kind. This one is for lists of tuples, and takes a third of the time for a
row and its values, which is a quarter of what usage.api-counts takes.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apsw

Function = Callable[..., Sequence[tuple[Any, ...]]]
"""Gives all rows at once; its parameters are the table's arguments, by name."""
_MANY = 1 << 30  # rows that the planner is told: it shall look at the tables first


def register_table(db: apsw.Connection, name: str, function: Function, columns: tuple[str, ...]) -> None:
    """Make a function a table of these columns."""
    module: Any = _Module(function, columns)
    db.create_module(name, module, use_bestindex_object=True, eponymous_only=True, read_only=True)


class _Module:
    def __init__(self, function: Function, columns: tuple[str, ...]) -> None:
        self._function = function
        self._columns = columns
        self._arguments = tuple(inspect.signature(function).parameters)
        names = [f'"{name}"' for name in columns] + [f'"{name}" HIDDEN' for name in self._arguments]
        self._schema = f"CREATE TABLE ignored ({', '.join(names)})"

    def Connect(self, *_: Any) -> tuple[str, "_Table"]:  # noqa: N802  # SQLite's names, here and below
        return self._schema, _Table(self._function, len(self._columns), self._arguments)


class _Table:
    def __init__(self, function: Function, columns: int, arguments: tuple[str, ...]) -> None:
        self._function = function
        self._columns = columns
        self._arguments = arguments

    def BestIndexObject(self, info: apsw.IndexInfo) -> bool:  # noqa: N802
        """Every argument has to be known before the rows are asked for, and only once."""
        names: list[str] = []
        for number in range(info.nConstraint):
            place = info.get_aConstraint_iColumn(number) - self._columns
            if place < 0:
                continue
            name = self._arguments[place]
            known = info.get_aConstraint_usable(number)
            if not known or info.get_aConstraint_op(number) != apsw.SQLITE_INDEX_CONSTRAINT_EQ or name in names:
                return False
            names.append(name)
            info.set_aConstraintUsage_argvIndex(number, len(names))
            info.set_aConstraintUsage_omit(number, True)
        info.idxStr = " ".join(names)
        info.estimatedRows = _MANY
        return True

    def Open(self) -> "_Cursor":  # noqa: N802
        return _Cursor(self._function, self._arguments)

    def Disconnect(self) -> None:  # noqa: N802
        pass

    Destroy = Disconnect


class _Cursor:
    def __init__(self, function: Function, arguments: tuple[str, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._row: tuple[Any, ...] | None = None
        self._number = -1
        self.Column: Callable[[int], Any]  # of the row in hand, and its own method: nothing of Python's is run

    def Filter(self, number: int, names: str, values: tuple[Any, ...]) -> None:  # noqa: N802
        given = dict(zip(names.split(), values, strict=True))
        hidden = tuple(map(given.get, self._arguments))
        self._rows = iter([row + hidden for row in self._function(**given)])
        self._number = -1
        self.Next()

    def Next(self) -> None:  # noqa: N802
        self._number += 1
        row = self._row = next(self._rows, None)
        if row is not None:
            self.Column = row.__getitem__

    def Eof(self) -> bool:  # noqa: N802
        return self._row is None

    def Rowid(self) -> int:  # noqa: N802
        return self._number

    def Close(self) -> None:  # noqa: N802
        pass
