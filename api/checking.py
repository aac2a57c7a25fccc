"""Saved queries are tried when the API starts, on an empty store, so that what is wrong shows before anyone asks."""

import logging
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import apsw
import apsw.ext

from api.deadline import Deadline, Interrupting
from api.reader import Reader, Value
from schema.errors import SavedQueryError
from schema.resources import Parameter, SavedQuery
from schema.tables import store_statements

log = logging.getLogger("freshet.api")
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"\w{2,}")
_EXAMPLES: dict[str, Value] = {"string": "x", "timestamp": 0, "pattern": "x", "cursor": "0"}
_NOW = 1 << 50
_SECONDS = 1.0
"""How long a query is tried: one that goes on counting for ever is cut when it is asked."""


def check_saved_queries(queries: Iterable[SavedQuery]) -> None:
    """Prepare each query, and ask it once, on an empty store with all the functions that queries may call.

    Raises SavedQueryError with file and line for SQL that is none, tables, columns, functions and parameters that
    there are not, a parameter that is never used, what is not one reading statement, and columns other than declared.
    """
    db = apsw.Connection(":memory:")
    for statement in store_statements():
        db.execute(statement)
    Reader(Path()).register(db)
    for query in queries:
        _check(db, query)
    db.close()


def _check(db: apsw.Connection, query: SavedQuery) -> None:
    try:
        found = apsw.ext.query_info(db, query.sql)
    except (apsw.Error, ValueError) as error:
        _fail(query, str(error), getattr(error, "error_offset", -1))
    if found.query_remaining and _COMMENTS.sub("", found.query_remaining).strip(" \t\r\n;"):
        _fail(query, "a saved query is one statement", len(query.sql) - len(found.query_remaining), in_bytes=False)
    columns = tuple(name for name, _ in found.description)
    if not found.is_readonly or found.is_explain or not columns:
        _fail(query, "a saved query is a SELECT")
    _check_parameters(query, found.bindings_names)
    _check_columns(query, columns)
    examples = {parameter.name: _example(parameter) for parameter in query.parameters}
    cursor = db.cursor()
    try:
        with Interrupting(db, Deadline(_SECONDS)):
            cursor.execute(query.sql, {**examples, "now": _NOW}).fetchone()
    except TypeError as error:  # a table function without one of its arguments
        _fail(query, str(error))
    except Exception as error:
        log.debug("%s fails with example values, others may do: %s", query.path, error)
    finally:
        cursor.close(True)


def _check_parameters(query: SavedQuery, used: tuple[str | None, ...]) -> None:
    declared = {parameter.name for parameter in query.parameters} | {"now"}
    for name in used:
        if name not in declared:
            said = "a parameter without a name" if name is None else f"@{name}"
            _fail(query, f"{said} is not declared in the head", query.sql.find("?" if name is None else f"@{name}"))
    for parameter in query.parameters:
        if parameter.name not in used:
            place = query.sql.find(f"-- parameter: {parameter.name} ")
            _fail(query, f"parameter {parameter.name} is never used", place, in_bytes=False)


def _check_columns(query: SavedQuery, columns: tuple[str, ...]) -> None:
    for name, count in Counter(columns).items():
        if count > 1:
            _fail(query, f"the answer has {count} columns {name}")
    declared = [column.name for column in query.columns]
    if query.as_array:
        if len(columns) != 2:
            place = query.sql.find("-- result:")
            _fail(query, "an array comes in two columns: all rows, and their number", place, in_bytes=False)
        return
    if query.next_column is not None:
        if query.next_column not in columns:
            _fail(query, f"the answer has no column {query.next_column}", query.sql.find("-- next:"), in_bytes=False)
        columns = tuple(name for name in columns if name != query.next_column)
    if declared and declared != list(columns):
        place = query.sql.find("-- column:")
        _fail(query, f"the answer's columns are {', '.join(columns)}, not as declared", place, in_bytes=False)


def _example(parameter: Parameter) -> Value:
    """A value that the parameter may have."""
    if not parameter.required and parameter.default is None:
        return None
    if parameter.type == "word":
        return parameter.words[0]
    return parameter.least if parameter.type == "integer" else _EXAMPLES[parameter.type]


def _fail(query: SavedQuery, why: str, place: int = -1, *, in_bytes: bool = True) -> NoReturn:
    """Raise the error with the line of a place in the SQL.

    Where SQLite tells no place, that of the last word of its message that is in the statement counts, else its start.
    """
    text = query.sql.encode()[:place].decode(errors="ignore") if in_bytes else query.sql[:place]
    if place < 0:
        start = _start_of_statement(query.sql)
        words = (re.search(rf"\b{word}\b", query.sql[start:]) for word in reversed(_WORD.findall(why)))
        text = query.sql[: start + next((word.start() for word in words if word is not None), 0)]
    raise SavedQueryError(f"{query.path}:{text.count(chr(10)) + 1}: {why}")


def _start_of_statement(sql: str) -> int:
    """Where the first thing stands that is no comment."""
    blanked = _COMMENTS.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), sql)
    return len(blanked) - len(blanked.lstrip())
