"""From Kafka records to events: the tolerant decoder of both topics (contract sections 3 and 4).

Nothing but a `Decoded` comes out, whatever the bytes are: what can't be taken is a reject with its reason, and costs
its siblings nothing.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from schema.events import Decoded, EdgeEvent, Event, Invocation, PlacedReject, Source
from schema.fields import EdgeElement, Envelope, FunctionElement, IdentifiedFunctionElement, Reader, Shape, only
from schema.messages import Reject
from schema.numbers import Number, exact, scaled_floor, whole
from schema.parts import Parts, parts_of_message
from schema.redaction import REDACTED
from schema.timestamps import DAY, in_range, parse_event_time
from schema.urls import build_url, families_in, origin_of, path_of

ID_NAMESPACE = uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11")
"""Namespace of the UUIDv5 given to an entry that came without an id; the name is its place in the log."""

_LONGEST_EXECUTION_TIME = 1 << 31  # ms; longer ones count as absent, so that sums stay integers (design section 3)
_edge = Reader(EdgeElement)
_function = Reader(FunctionElement)
_identified_function = Reader(IdentifiedFunctionElement)


class Record(Protocol):
    """What the decoder needs of a Kafka record; `timestamp` in ms, 0 or less where there is none."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        ...

    @property
    def timestamp(self) -> int:
        """Its time in ms."""
        ...

    @property
    def value(self) -> bytes | None:
        """Its bytes; None for a tombstone."""
        ...


class _Place:
    """Where the element in hand stands; one object is moved along a batch."""

    __slots__ = ("index", "offset", "source", "timestamp")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset = self.index = self.timestamp = 0

    def identity(self) -> bytes:
        """The id of an entry that came without one: the same whenever the log is read again."""
        log, topic, partition = self.source
        return uuid.uuid5(ID_NAMESPACE, f"{log}/{topic}/{partition}/{self.offset}/{self.index}").bytes


class _Refused(Exception):
    """An element is no event; the argument is one of the reasons of contract section 4."""


IsDuplicate = Callable[[str, str, int], bool]
"""Told the project and the id of an event, and its record's time in ms; whether it has been there before."""


def decode_edge(
    source: Source,
    records: Iterable[Record],
    parts: Parts = parts_of_message,
    is_duplicate: IsDuplicate | None = None,
) -> Decoded[EdgeEvent]:
    """The events of a batch of the edge topic, in the records' order; duplicates, where asked for, are left out."""
    if is_duplicate is None:
        return _decode(source, records, _edge, _edge_event, parts)
    return _decode(source, records, _edge, _unless_duplicate(_edge_event, is_duplicate), parts)


def decode_functions(
    source: Source,
    records: Iterable[Record],
    parts: Parts = parts_of_message,
    is_duplicate: IsDuplicate | None = None,
) -> Decoded[Invocation]:
    """The same of the functions topic: its invocations."""
    if is_duplicate is None:
        return _decode(source, records, _function, _invocation, parts)
    return _decode(source, records, _identified_function, _unless_duplicate(_invocation, is_duplicate), parts)


def _decode(
    source: Source,
    records: Iterable[Record],
    reader: Reader[Shape],
    make: Callable[[Shape, bytes, _Place, Counter[str]], Event | None],
    parts: Parts,
) -> Decoded[Event]:
    decoded: Decoded[Event] = Decoded()
    place = _Place(source)
    for record in records:
        place.offset, place.timestamp = record.offset, record.timestamp
        for part in parts(record.value, reader, decoded.counts):
            try:
                if isinstance(part, Reject):
                    raise _Refused(part.reason)
                place.index = part[0].index
                event = make(part[1], part[0].data, place, decoded.counts)
                if event is not None:
                    decoded.events.append(event)
            except _Refused as refused:
                reject = part if isinstance(part, Reject) else Reject(part[0].index, str(refused), part[0].data)
                decoded.rejects.append(PlacedReject(record.offset, reject, record.timestamp))
    return decoded


def _unless_duplicate(
    make: Callable[[Any, bytes, _Place, Counter[str]], Event | None], is_duplicate: IsDuplicate
) -> Callable[[Any, bytes, _Place, Counter[str]], Event | None]:
    """Makes no event of an element whose id has been there before; one without an id never has."""
    unread: Counter[str] = Counter()  # of an edge entry's id, which is counted where it is made

    def make_once(element: Any, data: bytes, place: _Place, counts: Counter[str]) -> Event | None:
        event = make(element, data, place, counts)
        if event is None or not _has_id(element.id, unread):
            return event
        identity = str(element.id)
        if REDACTED not in identity and is_duplicate(event.project, identity, place.timestamp):
            counts["duplicate"] += 1
            return None
        return event

    return make_once


def _edge_event(element: EdgeElement, data: bytes, place: _Place, counts: Counter[str]) -> EdgeEvent:
    timestamp = _time(element, place)
    project = _text(element.project, "project", counts) or ""
    metadata = only(element.metadata, "metadata", counts)
    request = only(metadata.request, "metadata.request", counts) if metadata is not None else None
    url = path = None
    if request is not None:
        url = _text(request.url, "metadata.request.url", counts)
        path = _text(request.path, "metadata.request.path", counts)
    if url:
        origin = origin_of(url)
    elif request is not None:
        host = _text(request.host, "metadata.request.host", counts)
        protocol = _text(request.protocol, "metadata.request.protocol", counts)
        url, origin = build_url(protocol, host or None, path, project)
    else:
        url, origin = build_url(None, None, None, project)
    families = families_in(path_of(url) if path is None else path)
    missing_id = b"" if _has_id(element.id, counts) else place.identity()
    return EdgeEvent(timestamp, project, url, origin, families, missing_id, data)


def _invocation(element: FunctionElement, data: bytes, place: _Place, counts: Counter[str]) -> Invocation | None:
    metadata = only(element.metadata, "metadata", counts)
    project = _text(metadata.project_ref, "metadata.project_ref", counts) if metadata is not None else None
    if metadata is None or not project:
        raise _Refused("no_project")
    timestamp = _time(element, place)
    response = only(metadata.response, "metadata.response", counts)
    if response is None:
        counts["no_response"] += 1
        return None
    function = _text(metadata.function_id, "metadata.function_id", counts) or ""
    status = whole(response.status_code)
    if status is None and response.status_code is not None:
        counts["unreadable.metadata.response.status_code"] += 1
    execution_time = _execution_time(metadata.execution_time_ms)
    if execution_time is None and metadata.execution_time_ms is not None:
        counts["unreadable.metadata.execution_time_ms"] += 1
    return Invocation(timestamp, project, function, status, execution_time)


def _time(element: Envelope, place: _Place) -> int:
    """The event's time in µs, checked against its record's (design section 3: `future`)."""
    value = element.timestamp
    if value is None:
        value = element.at_timestamp if element.at_timestamp is not None else element.date
    if value is not None:
        timestamp = parse_event_time(value)
    else:
        timestamp = in_range(place.timestamp * 1000) if place.timestamp > 0 else None
    if timestamp is None:
        raise _Refused("bad_timestamp")
    if timestamp > place.timestamp * 1000 + DAY and place.timestamp > 0:
        raise _Refused("future")
    return timestamp


def _text(value: Any, name: str, counts: Counter[str]) -> str | None:
    if type(value) is str:
        return value
    if value is not None:
        counts[f"unreadable.{name}"] += 1
    return None


def _has_id(value: Any, counts: Counter[str]) -> bool:
    if type(value) is str:
        return value != ""
    if type(value) is int or type(value) is Number:
        return True
    if value is not None:
        counts["unreadable.id"] += 1
    return False


def _execution_time(value: Any) -> int | None:
    number = exact(value)
    if number is None or not 0 <= number <= _LONGEST_EXECUTION_TIME:
        return None
    return scaled_floor(number, 1000)
