"""Saved queries: `.sql` files that begin with the resource's fields (specification 2.1, design section 6).

Field lines have the form `-- name: value` and end at the first line that has not:

    id                the endpoint's UUID; without it the UUIDv5 of the name
    name              the endpoint's dotted name
    language          sql
    max_rows          at most so many rows are answered, the last ones cut
    cache_seconds     how long a result may be kept, or none
    warming_seconds   how often it is computed anew meanwhile, or none
    sandboxed         false
    parameter         NAME TYPE [required] [: WORD…], one line each; TYPE is string, timestamp, pattern or word
    json              the columns whose text is JSON, to be answered as such
"""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, get_args

from schema.errors import SavedQueryError

ENDPOINTS = Path(__file__).parent / "endpoints"
"""The folder of the endpoints that come with Freshet."""

ParameterType = Literal["string", "timestamp", "pattern", "word"]
_NAMESPACE = uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11")
_FIELD = re.compile(r"-- ([a-z_]+):(?: (.*))?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PARAMETER = re.compile(r"([a-z_][a-z0-9_]*) ([a-z]+)( required)?(?:: (.+))?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter. `words` are the values allowed of one of type word."""

    name: str
    type: ParameterType
    required: bool
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """An endpoint: its resource fields, and its SQL with parameters as @name."""

    id: uuid.UUID
    name: str
    language: str
    max_rows: int
    cache_seconds: int | None
    warming_seconds: int | None
    sandboxed: bool
    parameters: tuple[Parameter, ...]
    json_columns: frozenset[str]
    sql: str


def load_saved_queries(folder: Path = ENDPOINTS) -> dict[str, SavedQuery]:
    """The endpoints of a folder, each under its name and under its id. Raises SavedQueryError with file and line."""
    queries: dict[str, SavedQuery] = {}
    for path in sorted(folder.glob("*.sql")):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise SavedQueryError(f"{path}: not UTF-8 at byte {error.start}") from error
        query = parse_saved_query(path, text)
        for key in (query.name, str(query.id)):
            if key in queries:
                raise SavedQueryError(f"{path}: {key} is the name or id of another endpoint already")
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

    def take(self, line: int, name: str, value: str) -> None:
        if not value:
            self._fail(line, f"{name} has no value")
        if name == "parameter":
            parameter = self._parameter(line, value)
            if parameter.name in self._parameters:
                self._fail(line, f"parameter {parameter.name} is declared twice")
            self._parameters[parameter.name] = parameter
        elif name not in _FIELDS:
            self._fail(line, f"{name} is no field of a saved query; there are {', '.join(_FIELDS)} and parameter")
        elif name in self._fields:
            self._fail(line, f"{name} is given twice")
        else:
            self._fields[name] = (line, value)

    def query(self, sql: str) -> SavedQuery:
        line, name = self._fields.get("name", (1, ""))
        if not _NAME.fullmatch(name):
            self._fail(line, "name is to be a dotted name in lower case")
        for field, allowed in (("language", "sql"), ("sandboxed", "false")):
            line, value = self._fields.get(field, (1, allowed))
            if value != allowed:
                self._fail(line, f"{field} can only be {allowed}")
        line, given_id = self._fields.get("id", (1, str(uuid.uuid5(_NAMESPACE, name))))
        try:
            identifier = uuid.UUID(given_id)
        except ValueError:
            self._fail(line, f"id {given_id!r} is no UUID")
        return SavedQuery(
            id=identifier,
            name=name,
            language="sql",
            max_rows=self._number("max_rows", 1000) or 1000,
            cache_seconds=self._number("cache_seconds", None),
            warming_seconds=self._number("warming_seconds", None),
            sandboxed=False,
            parameters=tuple(self._parameters.values()),
            json_columns=frozenset(self._fields.get("json", (1, ""))[1].split()),
            sql=sql,
        )

    def _parameter(self, line: int, value: str) -> Parameter:
        match = _PARAMETER.fullmatch(value)
        kinds: tuple[ParameterType, ...] = get_args(ParameterType)
        kind = next((kind for kind in kinds if match is not None and kind == match[2]), None)
        if match is None or kind is None:
            self._fail(line, f"a parameter is NAME TYPE [required] [: WORD…], TYPE one of {', '.join(kinds)}")
        words = tuple((match[4] or "").split())
        if (kind == "word") != bool(words):
            self._fail(line, "a parameter of type word lists its words behind a colon, others don't")
        return Parameter(match[1], kind, match[3] is not None, words)

    def _number(self, name: str, default: int | None) -> int | None:
        line, value = self._fields.get(name, (1, "" if default is None else str(default)))
        if value in ("none", "") and name != "max_rows":
            return None
        if not value.isdecimal() or int(value) < 1:
            self._fail(line, f"{name} is to be a whole number of 1 or more{'' if name == 'max_rows' else ', or none'}")
        return int(value)

    def _fail(self, line: int, why: str) -> NoReturn:
        raise SavedQueryError(f"{self._path}:{line}: {why}")


_FIELDS = ("id", "name", "language", "max_rows", "cache_seconds", "warming_seconds", "sandboxed", "json")
