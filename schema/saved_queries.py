"""Saved queries: `.sql` files that begin with the resource's fields (specification 2.1, design section 6).

Field lines have the form `-- name: value` and end at the first line that has not:

    id                the endpoint's UUID; without it the UUIDv5 of the name
    name              the endpoint's dotted name
    about             a sentence that says what it answers
    language          sql
    max_rows          at most so many rows are answered, the last ones cut
    cache_seconds     how long a result may be kept, or none
    warming_seconds   how often it is computed anew meanwhile, or none
    sandboxed         false
    parameter         NAME TYPE [required] [: WORD… or LEAST..MOST] [= DEFAULT] [-- ABOUT], one line each;
                      TYPE is string, integer, timestamp, pattern, cursor or word
    column            NAME TYPE [or null] [-- ABOUT], one line each; TYPE is string, integer, number or json
    next              the column whose value, in a last row of its own, says where the answer goes on
    result            rows, or array: the SQL gives one row, of the JSON array of all rows and of their number
"""

import re
import uuid
from pathlib import Path
from typing import NoReturn, get_args

from schema.errors import SavedQueryError
from schema.resources import Column, ColumnType, Parameter, ParameterType, SavedQuery

__all__ = ["ENDPOINTS", "Column", "Parameter", "SavedQuery", "load_saved_queries", "parse_saved_query"]

ENDPOINTS = Path(__file__).parent / "endpoints"
"""The folder of the endpoints that come with Freshet."""

_NAMESPACE = uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11")
_FIELD = re.compile(r"-- ([a-z_]+):(?: (.*))?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ABOUT = r"(?: -- (?P<about>.+))?"
_PARAMETER = re.compile(
    r"(?P<name>[a-z_][a-z0-9_]*) (?P<type>[a-z]+)(?P<required> required)?"
    r"(?:: (?P<allowed>(?:(?! -- )[^=])+?))?(?: = (?P<default>\S+))?" + _ABOUT
)
_COLUMN = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*) (?P<type>[a-z]+)(?P<nullable> or null)?" + _ABOUT)
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_WIDEST = 10**18
_RESERVED = ("now", "api_key")
_FIELDS = (
    *("id", "name", "about", "language", "max_rows", "cache_seconds", "warming_seconds", "sandboxed", "next"),
    "result",
)


def load_saved_queries(*folders: Path) -> dict[str, SavedQuery]:
    """The endpoints of some folders, Freshet's own if none is named, each under its name and under its id.

    A folder that is not there holds none. Raises SavedQueryError with file and line.
    """
    queries: dict[str, SavedQuery] = {}
    for path in (path for folder in folders or (ENDPOINTS,) for path in sorted(folder.glob("*.sql"))):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise SavedQueryError(f"{path}: not UTF-8 at byte {error.start}") from error
        except OSError as error:
            raise SavedQueryError(f"{path}: can't be read: {error.strerror}") from error
        query = parse_saved_query(path, text)
        for key in (query.name, str(query.id)):
            if key in queries:
                other = queries[key].path
                raise SavedQueryError(f"{path}: {key} is the name or id of another endpoint already, that of {other}")
            queries[key] = query
    return queries


def parse_saved_query(path: Path, text: str) -> SavedQuery:
    """One endpoint from its file's text; `path` is for the errors. Raises SavedQueryError."""
    head = _Head(path)
    for number, line in enumerate(text.splitlines(), 1):
        match = _FIELD.fullmatch(line.strip())
        if match is None:
            break
        head.take(number, match[1], (match[2] or "").strip())
    return head.query(text)


class _Head:
    """The fields of one file as they are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fields: dict[str, tuple[int, str]] = {}
        self._parameters: dict[str, Parameter] = {}
        self._columns: dict[str, Column] = {}

    def take(self, line: int, name: str, value: str) -> None:
        if not value:
            self._fail(line, f"{name} has no value")
        if name == "parameter":
            parameter = self._parameter(line, value)
            if parameter.name in _RESERVED:
                self._fail(line, f"{parameter.name} is Freshet's own; give the parameter another name")
            if parameter.name in self._parameters:
                self._fail(line, f"parameter {parameter.name} is declared twice")
            self._parameters[parameter.name] = parameter
        elif name == "column":
            column = self._column(line, value)
            if column.name in self._columns:
                self._fail(line, f"column {column.name} is declared twice")
            self._columns[column.name] = column
        elif name not in _FIELDS:
            known = ", ".join(_FIELDS)
            self._fail(line, f"{name} is no field of a saved query; there are {known}, parameter and column")
        elif name in self._fields:
            self._fail(line, f"{name} is given twice")
        else:
            self._fields[name] = (line, value)

    def query(self, sql: str) -> SavedQuery:
        line, name = self._fields.get("name", (1, ""))
        if not _NAME.fullmatch(name):
            self._fail(line, "name is to be a dotted name in lower case")
        for field, *allowed in (("language", "sql"), ("sandboxed", "false"), ("result", "rows", "array")):
            line, value = self._fields.get(field, (1, allowed[0]))
            if value not in allowed:
                self._fail(line, f"{field} can only be {' or '.join(allowed)}")
        if value == "array" and "next" in self._fields:
            self._fail(line, "an array does not say where the answer goes on: next is for rows")
        line, given_id = self._fields.get("id", (1, str(uuid.uuid5(_NAMESPACE, name))))
        try:
            identifier = uuid.UUID(given_id)
        except ValueError:
            self._fail(line, f"id {given_id!r} is no UUID")
        return SavedQuery(
            path=self._path,
            id=identifier,
            name=name,
            about=self._fields.get("about", (1, ""))[1],
            language="sql",
            max_rows=self._number("max_rows", 1000) or 1000,
            cache_seconds=self._number("cache_seconds", None),
            warming_seconds=self._number("warming_seconds", None),
            sandboxed=False,
            parameters=tuple(self._parameters.values()),
            columns=tuple(self._columns.values()),
            next_column=self._fields.get("next", (1, None))[1],
            as_array=value == "array",
            shipped=self._path.parent == ENDPOINTS,
            sql=sql,
        )

    def _parameter(self, line: int, value: str) -> Parameter:
        match = _PARAMETER.fullmatch(value)
        kinds: tuple[ParameterType, ...] = get_args(ParameterType)
        kind = next((kind for kind in kinds if match is not None and kind == match["type"]), None)
        if match is None or kind is None:
            self._fail(
                line,
                "a parameter is NAME TYPE [required] [: WORD… or LEAST..MOST] [= DEFAULT] [-- ABOUT], "
                f"TYPE one of {', '.join(kinds)}",
            )
        words: tuple[str, ...] = ()
        least, most = (-_WIDEST, _WIDEST) if kind == "integer" else (0, 0)
        allowed, default = match["allowed"], match["default"]
        if kind == "integer" and allowed is not None:
            bounds = _RANGE.fullmatch(allowed.strip())
            if bounds is None or int(bounds[1]) > int(bounds[2]):
                self._fail(line, "an integer's range is LEAST..MOST, such as 1..100")
            least, most = int(bounds[1]), int(bounds[2])
        else:
            words = tuple((allowed or "").split())
            if (kind == "word") != bool(words):
                self._fail(line, "a parameter of type word lists its words behind a colon, others don't")
        if default is not None:
            self._check_default(line, kind, default, words, least, most, match["required"] is not None)
        return Parameter(
            match["name"], kind, match["required"] is not None, words, least, most, default, match["about"] or ""
        )

    def _check_default(
        self, line: int, kind: str, default: str, words: tuple[str, ...], least: int, most: int, required: bool
    ) -> None:
        if required or kind not in ("string", "integer", "word"):
            self._fail(line, "a default is for a string, an integer or a word that is not required")
        if kind == "word" and default not in words:
            self._fail(line, f"the default {default} is not one of the words")
        if kind == "integer" and not (re.fullmatch("-?[0-9]{1,18}", default) and least <= int(default) <= most):
            self._fail(line, f"the default {default} is no integer within the range")

    def _column(self, line: int, value: str) -> Column:
        match = _COLUMN.fullmatch(value)
        kinds: tuple[ColumnType, ...] = get_args(ColumnType)
        kind = next((kind for kind in kinds if match is not None and kind == match["type"]), None)
        if match is None or kind is None:
            self._fail(line, f"a column is NAME TYPE [or null] [-- ABOUT], TYPE one of {', '.join(kinds)}")
        return Column(match["name"], kind, match["nullable"] is not None, match["about"] or "")

    def _number(self, name: str, default: int | None) -> int | None:
        line, value = self._fields.get(name, (1, "" if default is None else str(default)))
        if value in ("none", "") and name != "max_rows":
            return None
        if not value.isdecimal() or not 1 <= int(value) <= _WIDEST:
            self._fail(line, f"{name} is to be a whole number of 1 or more{'' if name == 'max_rows' else ', or none'}")
        return int(value)

    def _fail(self, line: int, why: str) -> NoReturn:
        raise SavedQueryError(f"{self._path}:{line}: {why}")
