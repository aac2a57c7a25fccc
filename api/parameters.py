"""From a query string to a saved query's typed parameters, checked once, here (design section 6)."""

import re
from collections.abc import Mapping, Sequence

from api.cursors import parse_cursor
from api.patterns import compile_pattern
from schema.errors import ParameterError
from schema.saved_queries import Parameter, SavedQuery
from schema.timestamps import parse_iso

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_UNENCODED_PLUS = re.compile(r"(.*:.*) ([0-9]{2}(?::?[0-9]{2})?)")
Typed = str | int | None
LONGEST = 1000
"""How many characters a parameter may have: a search with a pattern of that size still ends within its time limit."""


def typed_parameters(query: SavedQuery, given: Mapping[str, Sequence[str]]) -> dict[str, Typed]:
    """The declared parameters by name: text, a time in µs, or None where absent or empty. Others are ignored.

    Raises ParameterError for one that is missing, given twice, or has no value allowed.
    """
    return {parameter.name: typed_parameter(parameter, given.get(parameter.name, ())) for parameter in query.parameters}


def typed_parameter(parameter: Parameter, values: Sequence[str]) -> Typed:
    """One declared parameter, given these values. Raises ParameterError like `typed_parameters`."""
    name = parameter.name
    if len(values) > 1:
        raise ParameterError(name, ", ".join(values), "given more than once")
    value = (values[0] if values else "") or parameter.default or ""
    if len(value) > LONGEST:
        raise ParameterError(name, f"{value[:100]}…", f"too long: {len(value):,} characters, {LONGEST:,} are allowed")
    if parameter.type == "word" and (value or parameter.required) and value not in parameter.words:
        reason = "not one of the values allowed" if value else "missing"
        raise ParameterError(name, value or None, f"{reason}; allowed: {', '.join(parameter.words)}", parameter.words)
    if not value:
        if parameter.required:
            raise ParameterError(
                name, None, "missing: every query names its project" if name == "project" else "missing"
            )
        return None
    if parameter.type == "timestamp":
        return _timestamp(name, value)
    if parameter.type == "integer":
        return _integer(parameter, value)
    if parameter.type == "cursor":
        parse_cursor(name, value)
    if parameter.type == "pattern":
        compile_pattern(value)
    return value


def _integer(parameter: Parameter, value: str) -> int:
    if not _INTEGER.fullmatch(value) or not parameter.least <= int(value) <= parameter.most:
        raise ParameterError(parameter.name, value, f"not a whole number from {parameter.least} to {parameter.most}")
    return int(value)


def _timestamp(name: str, value: str) -> int:
    """A time in µs; a space before an offset is a `+` that was not encoded."""
    match = _UNENCODED_PLUS.fullmatch(value)
    micros = parse_iso((f"{match[1]}+{match[2]}" if match else value).strip())
    if micros is None:
        raise ParameterError(name, value, "not an ISO 8601 time such as 2026-01-31T12:00:00.000000Z")
    return micros
