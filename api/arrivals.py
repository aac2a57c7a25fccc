"""Following a project's entries in the order in which they came (schema/arrivals.py)."""

from collections import defaultdict
from operator import attrgetter
from typing import Any, NamedTuple

from api.deadline import Deadline, ReadTransaction
from api.matching_entries import Filters
from api.reader import Reader
from api.recent_entries import EntryRow, entry_row
from schema.arrivals import FOLLOWED_BLOCKS, Place, came_in
from schema.blocks import unpack_entries

STEP_SECONDS = 2.0
"""How long one step may read."""
MOST_BLOCKS = 256  # of a step; a follower who is further behind is told that it missed some
ROWS_AT_ONCE = 100
_BLOCKS = """
SELECT id, count, dictionary, payload FROM entry_blocks WHERE id > ? AND +project = ? ORDER BY id LIMIT ?
"""
_order = attrgetter("timestamp", "id", "record")


class Step(NamedTuple):
    """What came since a place: lots of rows, each with the place behind it; where to go on; if some are missing."""

    lots: list[tuple[Place, list[EntryRow]]]
    place: Place
    missed: bool


class Follower(Reader):
    """Reads what came to a project since a place. Belongs to one thread."""

    def end(self) -> Place:
        """The place behind all that has come. Raises StoreMissing, StoreTooNew."""
        db = self._current()
        return Place(self._generation, db.execute("SELECT coalesce(max(id), 0) FROM entry_blocks").get)

    def step(self, place: Place, project: str, filters: Filters) -> Step:
        """What came behind a place, oldest first. Raises StoreMissing, StoreTooNew, QueryTimeout.

        Where the store was rebuilt since, or too much has come, that is missed: it goes on from now.
        """
        db = self._current()
        deadline = Deadline(STEP_SECONDS)
        with ReadTransaction(db, deadline):
            end = self.end()
            if place.generation != end.generation or end.block - place.block > FOLLOWED_BLOCKS:
                return Step([], end, True)
            found: Any = db.execute(_BLOCKS, (place.block, project, MOST_BLOCKS + 1))
            blocks = found.fetchall()
            if len(blocks) > MOST_BLOCKS:
                return Step([], end, True)
            came: defaultdict[int, list[EntryRow]] = defaultdict(list)
            for block, count, dictionary, payload in blocks:
                deadline.check()
                entries = unpack_entries(self._decompress_entries(dictionary, payload), count, payload)
                for entry, arrival in zip(entries, came_in(db, block, count), strict=True):
                    if arrival > place.block and filters.match_request(project, entry.data):
                        row = entry_row(entry)
                        if filters.match_message(row.event_message):
                            came[arrival].append(row)
            return Step(_lots(place.generation, came), max(place, end), False)


def _lots(generation: int, came: dict[int, list[EntryRow]]) -> list[tuple[Place, list[EntryRow]]]:
    """The rows of whole blocks, in the order in which these came, about a hundred at once."""
    lots: list[tuple[Place, list[EntryRow]]] = []
    for block in sorted(came):
        rows = sorted(came[block], key=_order)
        if lots and len(lots[-1][1]) + len(rows) <= ROWS_AT_ONCE:
            rows = lots.pop()[1] + rows
        lots.append((Place(generation, block), rows))
    return lots
