"""The table function recent_entries: the newest log entries of a project, out of their blocks."""

import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

import apsw
import msgspec

from api.deadline import Deadline
from schema.blocks import Entry, unpack_entries
from schema.timestamps import HOUR

_BLOCKS = """
SELECT max_timestamp, count, dictionary, payload FROM entry_blocks
WHERE project = ? AND max_timestamp > ? AND max_timestamp < ? AND min_timestamp <= ?
ORDER BY max_timestamp DESC
"""
_FOREVER = 1 << 62
_NULL = b"null"
_timestamp = attrgetter("timestamp")


class EntryRow(NamedTuple):
    """A row of logs.all: time in µs, id, message, metadata as JSON text, and the record's bytes to order ties by."""

    timestamp: int
    id: str
    event_message: str
    metadata: str
    record: bytes


class _Record(msgspec.Struct, gc=False):
    id: msgspec.Raw = msgspec.Raw(_NULL)
    event_message: msgspec.Raw = msgspec.Raw(_NULL)
    message: msgspec.Raw = msgspec.Raw(_NULL)
    metadata: msgspec.Raw = msgspec.Raw(_NULL)


_record = msgspec.json.Decoder(_Record).decode
_string = msgspec.json.Decoder(str).decode


def recent_entries(
    db: apsw.Connection,
    decompress: Callable[[int, bytes], bytes],
    deadline: Deadline,
    project: str,
    after: int,
    until: int | None,
    limit: int,
) -> Iterator[EntryRow]:
    """The newest `limit` entries with after < timestamp ≤ until (µs), newest first, ties by id and bytes descending.

    `decompress` takes a dictionary's id and a payload. Blocks are read newest first, until none can hold an entry
    as new as the oldest of those found.
    """
    if until is None:
        until = _FOREVER
    found: list[Entry] = []
    for newest, count, dictionary, payload in db.execute(_BLOCKS, (project, after, until + HOUR, until)):
        if len(found) >= limit and newest < found[-1].timestamp:
            break
        deadline.check()
        entries = unpack_entries(decompress(dictionary, payload), count)
        found += [entry for entry in entries if after < entry.timestamp <= until]
        found.sort(key=_timestamp, reverse=True)
        if len(found) > limit:
            oldest = found[limit - 1].timestamp
            while found[-1].timestamp < oldest:
                found.pop()
    rows = [entry_row(entry) for entry in found]
    rows.sort(key=lambda row: (row.timestamp, row.id, row.record), reverse=True)
    yield from rows[:limit]


def entry_row(entry: Entry) -> EntryRow:
    """An entry as contract section 4 wants it shown."""
    record = _record(entry.data)
    identity = str(uuid.UUID(bytes=entry.missing_id)) if entry.missing_id else _text(record.id)
    message = record.message if bytes(record.event_message) == _NULL else record.event_message
    metadata = bytes(record.metadata)
    if not metadata.startswith((b"{", b"[")):
        metadata = b"{}"
    return EntryRow(entry.timestamp, identity, _text(message), metadata.decode(), entry.data)


def _text(raw: msgspec.Raw) -> str:
    """A JSON string's text; of anything else its JSON text, of null none."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return _string(text)
    return "" if text == _NULL else text.decode()
