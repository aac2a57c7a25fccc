"""What one element of a message means: an edge request, a function invocation, or a reject with its reason."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

from schema.messages import Reject


class Source(NamedTuple):
    """A partition: the log's identity (design section 3), topic and partition."""

    log: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class EdgeEvent(msgspec.Struct, gc=False):
    """An edge request log entry (contract section 3).

    `timestamp` in µs; `origin` is the beginning of `url` up to its path; `families` the bit set of `schema.urls`;
    `missing_id` the 16 bytes of the UUID given to an entry that came without an id, else empty; `data` the element's
    bytes as received.
    """

    timestamp: int
    project: str
    url: str
    origin: str
    families: int
    missing_id: bytes
    data: bytes


class Invocation(msgspec.Struct, gc=False):
    """A function invocation (contract section 3).

    `timestamp` in µs; `function` '' where the record names none; `status` None where it has no readable one;
    `execution_time` in integer µs, None where absent or unreadable.
    """

    timestamp: int
    project: str
    function: str
    status: int | None
    execution_time: int | None


Event = TypeVar("Event", EdgeEvent, Invocation)


class PlacedReject(NamedTuple):
    """A reject, and the offset and time (in ms) of the message that it was found in."""

    offset: int
    reject: Reject
    timestamp: int = 0


@dataclass(slots=True)
class Decoded(Generic[Event]):
    """What a batch of messages of one partition came to.

    `counts` holds what was skipped (`empty`, `no_response`) and the fields that counted as absent (`unreadable.NAME`).
    """

    events: list[Event] = field(default_factory=list)
    rejects: list[PlacedReject] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
