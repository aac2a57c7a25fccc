"""The table function matching_entries: the entries of a project that pass filters, newest first, page by page.

The order is that of logs.all: time, id and the record's bytes, all descending. A call reads blocks for a second at
most and then says where to go on, so that no search holds a reader long; each call gets on by a block at least.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import apsw

from api.cursors import Cursor, id_key, parse_cursor
from api.deadline import Deadline
from api.recent_entries import EntryRow, drop_older, entry_row
from schema.blocks import unpack_entries
from schema.requests import request_of
from schema.timestamps import HOUR

SEARCH_SECONDS = 1.0
"""How long one call looks for entries."""

_BLOCKS = """
SELECT max_timestamp, count, dictionary, payload FROM entry_blocks
WHERE project = ? AND max_timestamp > ? AND max_timestamp <= ? AND min_timestamp <= ?
ORDER BY max_timestamp DESC
"""
_FOREVER = 1 << 62
Row = tuple[str | None, int | None, str | None, str | None, str | None]
"""(id, timestamp, event_message, metadata, next): an entry without `next`, or `next` alone in a last row."""


class Filters(NamedTuple):
    """What an entry has to have; None asks for nothing."""

    min_status: int | None
    max_status: int | None
    method: str | None
    path: str | None
    text: str | None

    def match_request(self, project: str, data: bytes) -> bool:
        """Whether an entry's request passes: its status within the bounds, its method in any case, its path."""
        if self[:4] == (None,) * 4:
            return True
        request = request_of(project, data)
        if self.min_status is not None and (request.status is None or request.status < self.min_status):
            return False
        if self.max_status is not None and (request.status is None or request.status > self.max_status):
            return False
        if self.method is not None and (request.method is None or request.method.upper() != self.method.upper()):
            return False
        return self.path is None or self.path in request.path

    def match_message(self, message: str) -> bool:
        """Whether the text is in a message, in any case."""
        return self.text is None or self.text.casefold() in message.casefold()


def matching_entries(
    db: apsw.Connection,
    decompress: Callable[[int, bytes], bytes],
    deadline: Deadline,
    project: str,
    after: int,
    until: int | None,
    cursor: str | None,
    limit: int,
    filters: Filters,
) -> Iterator[Row]:
    """The newest `limit` entries with after < timestamp ≤ until (µs) behind the cursor that pass the filters.

    Where there may be more, a last row holds the cursor to go on from. Raises QueryTimeout past the deadline.
    """
    start = parse_cursor("cursor", cursor) if cursor is not None else Cursor(_FOREVER, 0, None)
    end = min(start.timestamp, _FOREVER if until is None else until)
    pause = Deadline(SEARCH_SECONDS)
    tied: list[EntryRow] = []  # found with the cursor's time and id: it says how many of them have been passed
    found: list[EntryRow] = []  # found behind them
    seen_to = after  # all entries later than this have been looked at
    for newest, count, dictionary, payload in db.execute(_BLOCKS, (project, after, end + HOUR, end)):
        ready = sum(row.timestamp > newest for row in found)
        if start.timestamp > newest:
            ready += max(0, len(tied) - start.passed)
        if ready >= limit or (newest < end and pause.passed()):
            seen_to = newest
            break
        deadline.check()
        for entry in unpack_entries(decompress(dictionary, payload), count, payload):
            if after < entry.timestamp <= end and filters.match_request(project, entry.data):
                row = entry_row(entry)
                side = _side(row, start)
                if side >= 0 and filters.match_message(row.event_message):
                    (found if side else tied).append(row)
        _keep_newest(found, limit + 1)
    rows = sorted(tied, key=_order, reverse=True)[start.passed :] + sorted(found, key=_order, reverse=True)
    rows = [row for row in rows if row.timestamp > seen_to]
    for row in rows[:limit]:
        yield row.id, row.timestamp, row.event_message, row.metadata, None
    if len(rows) > limit:
        yield None, None, None, None, str(_behind(rows[:limit], start))
    elif seen_to > after:
        yield None, None, None, None, str(Cursor(seen_to, 0, None))


def _order(row: EntryRow) -> tuple[int, str, bytes]:
    return row.timestamp, row.id, row.record


def _side(row: EntryRow, start: Cursor) -> int:
    """Where an entry no later than a cursor's time lies: −1 in front of it, 0 on its time and id, 1 behind."""
    if row.timestamp < start.timestamp or start.id is None:
        return 1
    key = id_key(row.id)
    return (key < start.id) - (key > start.id)


def _keep_newest(found: list[EntryRow], count: int) -> None:
    """Drop what is older than the newest `count` entries, so that no search gathers more than it can answer."""
    if len(found) > count:
        found.sort(key=_order, reverse=True)
        drop_older(found, count)


def _behind(rows: list[EntryRow], start: Cursor) -> Cursor:
    """The cursor behind the last of some rows that were answered from a cursor on."""
    timestamp, key = rows[-1].timestamp, id_key(rows[-1].id)
    count = sum(row.timestamp == timestamp and id_key(row.id) == key for row in rows)
    return Cursor(timestamp, count + (start.passed if (timestamp, key) == (start.timestamp, start.id) else 0), key)
