"""The table function recent_entries: the newest log entries of a project, out of their blocks."""

import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

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


class _HasTime(Protocol):
    @property
    def timestamp(self) -> int: ...


Timed = TypeVar("Timed", bound=_HasTime)


class EntryRow(NamedTuple):
    """A row of logs.all: time in µs, id, message, metadata as JSON text, and the record's bytes to order ties by."""

    timestamp: int
    id: str
    event_message: str
    metadata: str
    record: bytes


class _Usual(msgspec.Struct, gc=False):
    id: str = ""
    event_message: str | None = None
    message: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(_NULL)


class _Record(msgspec.Struct, gc=False):
    id: msgspec.Raw = msgspec.Raw(_NULL)
    event_message: msgspec.Raw = msgspec.Raw(_NULL)
    message: msgspec.Raw = msgspec.Raw(_NULL)
    metadata: msgspec.Raw = msgspec.Raw(_NULL)


_usual = msgspec.json.Decoder(_Usual).decode
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
) -> Iterator[tuple[int, int, str, str, str, bytes]]:
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
        entries = unpack_entries(decompress(dictionary, payload), count, payload)
        found += [entry for entry in entries if after < entry.timestamp <= until]
        found.sort(key=_timestamp, reverse=True)
        drop_older(found, limit)
    rows = [entry_row(entry) for entry in found]
    rows.sort(key=attrgetter("timestamp", "id", "record"), reverse=True)
    for place, row in enumerate(rows[:limit]):
        yield place, *row


def drop_older(found: list[Timed], count: int) -> None:
    """Drop from the end of a list, newest first, what is older than its first `count`; what ties with these stays."""
    if len(found) > count:
        oldest = found[count - 1].timestamp
        while found[-1].timestamp < oldest:
            found.pop()


def entry_row(entry: Entry) -> EntryRow:
    """An entry as contract section 4 wants it shown."""
    try:  # texts where texts are expected: 1.4 µs, the other way 2
        usual = _usual(entry.data)
    except msgspec.ValidationError:
        return _row(entry, _record(entry.data))
    identity = str(uuid.UUID(bytes=entry.missing_id)) if entry.missing_id else usual.id
    message = usual.message if usual.event_message is None else usual.event_message
    return EntryRow(entry.timestamp, identity, message or "", _metadata(usual.metadata), entry.data)


def _row(entry: Entry, record: _Record) -> EntryRow:
    identity = str(uuid.UUID(bytes=entry.missing_id)) if entry.missing_id else _text(record.id)
    message = record.message if bytes(record.event_message) == _NULL else record.event_message
    return EntryRow(entry.timestamp, identity, _text(message), _metadata(record.metadata), entry.data)


def _metadata(raw: msgspec.Raw) -> str:
    """An object or array as it was sent; of anything else an empty object."""
    metadata = bytes(raw)
    return metadata.decode() if metadata.startswith((b"{", b"[")) else "{}"


def _text(raw: msgspec.Raw) -> str:
    """A JSON string's text; of anything else its JSON text, of null none."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return _string(text)
    return "" if text == _NULL else text.decode()
