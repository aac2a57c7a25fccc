"""From the elements of a body to Kafka messages: judged by the worker's own decoder, given ids, kept in their bytes.

What would become a reject behind the log is refused here, while whoever sent it is still there to be told.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from schema.decoding import decode_edge
from schema.events import Decoded, Source
from schema.fields import FunctionElement, Reader, only
from schema.messages import Element, Reject

_SOURCE = Source("", "", 0)
_NULL = msgspec.Raw(b"null")
_EXPLANATIONS: Final = {
    "not_json": "it is not JSON",
    "not_utf8": "it is not UTF-8",
    "not_object": "it is not a JSON object",
    "too_deep": "it nests deeper than 64 levels",
    "too_large": "it is larger than the Kafka topic takes",
    "bad_timestamp": "its timestamp can't be read, or is not between 2000 and 2100",
    "no_project": "it has no metadata.project_ref",
    "future": "its timestamp is more than 24 hours ahead",
    "forbidden": "its project is out of the scope of this API key",
}
_BATCH_OVERHEAD, _RECORD_OVERHEAD = 61, 39  # bytes, at most, of a Kafka batch and of a record with key in it


class Message(NamedTuple):
    """What goes to Kafka for one element: keyed by project, its bytes as received but for an id it had to be given."""

    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """An element that was not taken: its place in the body, and one of the reasons above."""

    index: int
    reason: str

    @property
    def detail(self) -> dict[str, Any]:
        """What the answer says of it."""
        return {"index": self.index, "reason": self.reason, "message": _EXPLANATIONS[self.reason]}


Decode = Callable[..., Decoded[Any]]
"""`decode_edge` or `decode_functions`."""


class _Record(NamedTuple):
    """An element as the worker's decoder will find it in Kafka."""

    offset: int
    timestamp: int
    value: bytes


class _Shape(msgspec.Struct, gc=False):
    """What of an element says whether it has an id, and whether it would be taken for several as a message."""

    id: msgspec.Raw = _NULL
    batch: msgspec.Raw = _NULL
    resource_logs: msgspec.Raw = msgspec.field(default=_NULL, name="resourceLogs")


_shape = msgspec.json.Decoder(_Shape).decode
_function = Reader(FunctionElement)
_Part = Element | Reject


class Judge:
    """Judges the elements of one request.

    `decode` is the topic's decoder, `projects` those that the key may write (None: all), `largest` the topic's limit
    of a batch in bytes, `now` the time in ms that the records will bear.
    """

    def __init__(self, decode: Decode, projects: frozenset[str] | None, largest: int, now: int) -> None:
        self._decode = decode
        self._projects = projects
        self._largest = largest - _BATCH_OVERHEAD - _RECORD_OVERHEAD
        self._now = now

    def judge(self, parts: Sequence[Element | Reject]) -> list[Message | Refusal]:
        """A message or a refusal for each part, in their order."""
        return self._all_well(parts) or [self._one(part) for part in parts]

    def _all_well(self, parts: Sequence[Element | Reject]) -> list[Message | Refusal] | None:
        """What `_one` would say, in one pass: of edge entries that each are exactly one event; None of any others."""
        if self._decode is not decode_edge:
            return None
        records = [_Record(0, self._now, part.data) for part in parts if isinstance(part, Element)]
        events = self._decode(_SOURCE, records).events
        if not len(events) == len(records) == len(parts):
            return None
        judged: list[Message | Refusal] = []
        for part, event in zip(parts, events, strict=True):
            if len(event.data) != len(part.data):  # an event out of an element that holds several
                return None
            value = with_id(part.data) if event.missing_id else part.data
            judged.append(self._placed(part.index, event.project, value))
        return judged

    def _one(self, part: Element | Reject) -> Message | Refusal:
        if isinstance(part, Reject):
            return Refusal(part.index, part.reason)
        value = part.data
        with suppress(msgspec.DecodeError, RecursionError):  # of which the decoder says what is wrong
            shape = _shape(value)
            if not _is_id(bytes(shape.id)):
                value = with_id(value)
            if any(bytes(several).startswith(b"[") for several in (shape.batch, shape.resource_logs)):
                value = b"[" + value + b"]"  # else it would be read as a message of several elements
        decoded = self._decode(_SOURCE, (_Record(0, self._now, value),))
        if decoded.rejects:
            return Refusal(part.index, decoded.rejects[0].reject.reason)
        project = decoded.events[0].project if decoded.events else _project_of_function(part.data)
        return self._placed(part.index, project, value)

    def _placed(self, index: int, project: str, value: bytes) -> Message | Refusal:
        key = project.encode(errors="replace")
        if self._projects is not None and project not in self._projects:
            return Refusal(index, "forbidden")
        if len(key) + len(value) > self._largest:
            return Refusal(index, "too_large")
        return Message(key or None, value)


def with_id(element: bytes) -> bytes:
    """A JSON object with a new random id (UUID version 4), which stands last: of two members of a name the last counts.

    All else keeps its bytes.
    """
    digits = os.urandom(16).hex()
    identity = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
    comma = "," if element[1:-1].strip() else ""
    return b'%b%b"id":"%b"}' % (element[:-1], comma.encode(), identity.encode())


def _is_id(value: bytes) -> bool:
    """Whether the decoder takes a JSON value for an id: text that is not empty, or a number."""
    return value != b'""' and value[:1] in b'"-0123456789'


def _project_of_function(element: bytes) -> str:
    """The project of a function record that is no invocation."""
    unread: Counter[str] = Counter()
    metadata = only(_function.read_by_level(element, unread).metadata, "metadata", unread)
    return "" if metadata is None else str(metadata.project_ref)
