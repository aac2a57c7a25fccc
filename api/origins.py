"""Origins that decide for all their URLs: those in whose own text a pattern is found, whatever follows."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import apsw

from api.remembered import Subject
from api.searching import Search

Origin = tuple[str, str]
"""(project, origin)"""
_ORIGINS_AT_ONCE = 1000
_MOST_DECIDED = 256  # subjects
_ALL_PROJECTS = """
SELECT min(project) FROM origin_hits
UNION ALL SELECT (SELECT min(project) FROM origin_hits WHERE project > projects.project)
FROM projects WHERE project IS NOT NULL
"""
_ORIGINS = """
WITH RECURSIVE projects (project) AS ({projects}), origins (project, origin) AS (
    SELECT project, (SELECT min(origin) FROM origin_hits WHERE project = projects.project) FROM projects
    UNION ALL
    SELECT project, (
        SELECT min(origin) FROM origin_hits WHERE project = origins.project AND origin > origins.origin
    ) FROM origins WHERE origin IS NOT NULL
)
SELECT project, origin FROM origins WHERE origin IS NOT NULL
"""


class Decided(NamedTuple):
    """The origins in whose own text a pattern is found, and whether there are others in scope."""

    origins: Sequence[Origin]
    others: bool


class DecidedOrigins:
    """What has been decided over one state of the database, for the subjects asked for since it is that state.

    Going through the origins of 200 projects takes 0.4 ms, and the state is the same for some hundred queries between
    two commits. It belongs to one connection, and whoever has it clears it when that reads another state.
    """

    def __init__(self) -> None:
        self._known: dict[Subject, Decided] = {}

    def clear(self) -> None:
        """The state of the database is another one."""
        self._known.clear()

    def get(self, db: apsw.Connection, search: Callable[[], Search], subject: Subject) -> Decided:
        """What is decided of a subject; `search` gives its search, where that is needed."""
        if len(self._known) >= _MOST_DECIDED:
            self._known.clear()
        decided = self._known.get(subject)
        if decided is None:
            decided = self._known[subject] = _decide(db, search())
        return decided


def _decide(db: apsw.Connection, search: Search) -> Decided:
    decided: list[Origin] = []
    count = 0
    origins = _origins(db, search.projects)
    while some := list(islice(origins, _ORIGINS_AT_ONCE)):
        search.look()
        search.origins.decide([origin for _, origin in some])
        decided += [origin for origin in some if search.origins[origin[1]]]
        count += len(some)
    return Decided(decided, len(decided) < count)


def _origins(db: apsw.Connection, projects: frozenset[str] | None) -> Iterator[Origin]:
    """All origins of these projects (None: of all), by a step or two in the index each rather than by every row."""
    if projects is None:
        yield from db.execute(_ORIGINS.format(projects=_ALL_PROJECTS))
    else:
        some = json.dumps(sorted(projects))
        yield from db.execute(_ORIGINS.format(projects="SELECT value FROM json_each(?)"), (some,))
