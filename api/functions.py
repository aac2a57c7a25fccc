"""The functions that saved queries may call, and what else their SQL may do: nothing but read the tables."""

from collections.abc import Callable
from typing import Any

import apsw

from schema import histogram
from schema.intervals import USAGE_INTERVALS, invocation_interval, invocation_window_start, tier_retention
from schema.timestamps import SECOND, datetime_text

_LONGEST_VALUE = 64 << 20  # bytes; a record has 16 MiB at most
_TABLE_FUNCTIONS = frozenset(("json_each", "json_tree"))
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%sqlite%'"
_NAMES = """
-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count
cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor format
glob group_concat hex if ifnull iif instr json json_array json_array_insert json_array_length json_error_position
json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
json_remove json_replace json_set json_type json_valid julianday lag last_value lead length like likelihood likely
ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length percent_rank percentile
percentile_cont percentile_disc pi pow power printf quote radians random rank replace round row_number rtrim sign
sin sinh sqrt strftime string_agg substr substring sum tan tanh time timediff total trim trunc typeof unhex unicode
unistr unistr_quote unixepoch unlikely upper
"""
HARMLESS = frozenset(_NAMES.split())
"""SQLite's functions that neither look beyond the query's data nor make large values out of nothing."""


def milliseconds(micros: int | None) -> int | float | None:
    """A duration in µs as milliseconds: an integer where it is whole."""
    if micros is None:
        return None
    return micros // 1000 if micros % 1000 == 0 else micros / 1000


SCALARS: tuple[tuple[str, Callable[..., Any], int], ...] = (
    ("milliseconds", milliseconds, 1),
    ("percentile", histogram.percentile, 4),
    ("invocation_grain", lambda word: invocation_interval(word).grain // SECOND, 1),
    ("invocation_window_start", invocation_window_start, 2),
    ("tier_retention", tier_retention, 1),
    ("usage_span", lambda word: USAGE_INTERVALS[word].span, 1),
    ("usage_grain", lambda word: USAGE_INTERVALS[word].grain // SECOND, 1),
    ("datetime_text", datetime_text, 1),
)
"""Name, function, number of arguments."""


def _merging() -> tuple[Any, Callable[..., None], Callable[[Any], bytes]]:
    """The aggregate function merged_histogram: what it gathers, a step, the end."""
    return [], list.append, histogram.combine


def register_functions(db: apsw.Connection) -> None:
    """Give a connection the scalar and aggregate functions of saved queries."""
    for name, function, arguments in SCALARS:
        db.create_scalar_function(name, function, arguments, deterministic=True)
    db.create_aggregate_function("merged_histogram", _merging, 1)


def let_only_read(db: apsw.Connection, *table_functions: str) -> None:
    """Have a connection refuse all but reading its tables and calling these functions and SQLite's harmless ones."""
    tables = {name for (name,) in db.execute(_TABLES)} | _TABLE_FUNCTIONS | {*table_functions}
    functions = HARMLESS | {name for name, _, _ in SCALARS} | {"merged_histogram"}

    def authorize(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
        if action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE, apsw.SQLITE_TRANSACTION):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_READ and (first in tables or not second):  # without a column it is a count of rows
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and second is not None and second.lower() in functions:
            return apsw.SQLITE_OK
        return apsw.SQLITE_DENY

    db.limit(apsw.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    db.authorizer = authorize
