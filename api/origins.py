"""Origins that decide for all their URLs: those in whose own text a pattern is found, whatever follows."""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import apsw
import msgspec

from api.remembered import Subject
from api.searching import Search

Origin = tuple[str, str]
"""(project, origin)"""
_ORIGINS_AT_ONCE = 1000
_MOST_DECIDED = 256  # subjects, and scopes
_MOST_LISTED = 10_000  # origins, of all subjects: 2.5 MB, in each of a process's three readers
_encode = msgspec.json.Encoder().encode
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
    """What has been decided for the subjects asked for last. It belongs to one connection.

    Going through the origins of 200 projects takes 0.4 ms, and commits seldom bring a new one: so that is done once
    for each state of the database and scope, and what has been decided stays for as long as the origins are the same.
    """

    def __init__(self) -> None:
        self._known: dict[Subject, Decided] = {}
        self._digests: dict[frozenset[str] | None, bytes] = {}
        """Of a scope's origins."""
        self._current: set[frozenset[str] | None] = set()
        """The scopes whose digests are of the database's state."""

    def see_another_state(self) -> None:
        """The state of the database is another one."""
        self._current.clear()

    def get(self, db: apsw.Connection, search: Callable[[], Search], subject: Subject) -> Decided:
        """What is decided of a subject; `search` gives its search, where that is needed."""
        if subject.projects not in self._current:
            self._look_for_others(db, subject.projects)
        decided = self._known.get(subject)
        if decided is None:
            decided = _decide(db, search())
            listed = sum(len(other.origins) for other in self._known.values())
            if len(self._known) >= _MOST_DECIDED or listed + len(decided.origins) > _MOST_LISTED:
                self._known.clear()
            self._known[subject] = decided
        return decided

    def _look_for_others(self, db: apsw.Connection, projects: frozenset[str] | None) -> None:
        digest = sha256()
        for some in _origins(db, projects):
            digest.update(_encode(some))
        if self._digests.get(projects) != digest.digest():
            if len(self._digests) >= _MOST_DECIDED:
                self._digests.clear()
                self._current.clear()
            self._digests[projects] = digest.digest()
            self._known = {other: decided for other, decided in self._known.items() if other.projects != projects}
        self._current.add(projects)


def _decide(db: apsw.Connection, search: Search) -> Decided:
    decided: list[Origin] = []
    count = 0
    for some in _origins(db, search.projects):
        search.look()
        search.origins.decide([origin for _, origin in some])
        decided += [origin for origin in some if search.origins[origin[1]]]
        count += len(some)
    return Decided(decided, len(decided) < count)


def _origins(db: apsw.Connection, projects: frozenset[str] | None) -> Iterator[list[Origin]]:
    """All origins of these projects (None: of all), some at a time.

    By a step or two in the index each rather than by every row.
    """
    if projects is None:
        origins = db.execute(_ORIGINS.format(projects=_ALL_PROJECTS))
    else:
        named = json.dumps(sorted(projects))
        origins = db.execute(_ORIGINS.format(projects="SELECT value FROM json_each(?)"), (named,))
    while some := list(islice(origins, _ORIGINS_AT_ONCE)):
        yield some
