"""What is asked of a saved query, and what is answered: the values that the cache keeps."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from api.parameters import Typed
from schema.intervals import USAGE_INTERVALS, invocation_interval, tier_retention
from schema.saved_queries import SavedQuery

Scope = frozenset[str] | None
"""The projects that a key may see, or None for all."""

_MEANING: dict[tuple[str, str], Callable[[Any], Hashable]] = {
    ("functions.invocation-stats", "interval"): invocation_interval,
    ("logs.all", "project_tier"): tier_retention,
    ("usage.api-counts", "interval"): USAGE_INTERVALS.__getitem__,
}
"""What the words of (endpoint, parameter) stand for, where several stand for the same."""


@dataclass(frozen=True, slots=True)
class Question:
    """A saved query with its parameters, for a scope. Two are equal where their answers have to be."""

    key: Hashable
    query: SavedQuery = field(compare=False)
    parameters: Mapping[str, Typed] = field(compare=False)
    projects: Scope = field(compare=False)
    redact: bool = field(compare=False)

    @property
    def size(self) -> int:
        """About how many bytes of memory the parameters and the scope take."""
        texts = (*(value for value in self.parameters.values() if isinstance(value, str)), *(self.projects or ()))
        return sum(100 + 4 * len(text) for text in texts)


def question(query: SavedQuery, parameters: Mapping[str, Typed], projects: Scope, redact: bool) -> Question:
    """The question that typed parameters ask; `redact` wants IP addresses taken out."""
    meanings = tuple(_meaning(query.name, name, value) for name, value in parameters.items())
    return Question((query.name, meanings, projects, redact), query, parameters, projects, redact)


def _meaning(endpoint: str, parameter: str, value: Typed) -> Hashable:
    meaning = _MEANING.get((endpoint, parameter))
    return value if meaning is None else meaning(value)


class Kept(NamedTuple):
    """An answer: body, tag of the content, the time that it is exact as of (µs), headers that stay, number of rows."""

    body: bytes
    tag: str
    as_of: int
    headers: Mapping[str, str]
    rows: int
