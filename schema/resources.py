"""What a saved query is once its file has been read: the fields of specification 2.1, parameters, columns, SQL."""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ParameterType = Literal["string", "integer", "timestamp", "pattern", "cursor", "word"]
ColumnType = Literal["string", "integer", "number", "json"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter.

    `words` are the values allowed of one of type word, `least` and `most` the bounds of an integer, `default` what
    counts where the request has none, `about` what it is for.
    """

    name: str
    type: ParameterType
    required: bool
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    default: str | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column of the answer. One of type json holds JSON text, and is answered as what that says."""

    name: str
    type: ColumnType
    nullable: bool
    about: str = ""


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """An endpoint: its resource fields, and its SQL with parameters as @name.

    `sql` is the whole text of the file `path`, so that a place in one is a place in the other. `next_column` names
    the column whose value, in a last row of its own, says where the answer goes on. With `as_array` the SQL gives all
    rows in one, or in few: a JSON array of them, as text or bytes, and their number. `shipped` ones come with Freshet.
    """

    path: Path
    id: uuid.UUID
    name: str
    about: str
    language: str
    max_rows: int
    cache_seconds: int | None
    warming_seconds: int | None
    sandboxed: bool
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    next_column: str | None
    as_array: bool
    shipped: bool
    sql: str

    @property
    def json_columns(self) -> tuple[str, ...]:
        """The columns whose text is JSON."""
        return tuple(column.name for column in self.columns if column.type == "json")
