"""OTLP JSON, as OpenTelemetry's Kafka exporter writes it with `encoding: otlp_json`, as plain elements.

A log record's attributes, under those of its resource, are the fields of an event; so are the keys of a body that
is a key-value list. Any other body is the message. `timeUnixNano` is the time unless a field says otherwise.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

_WRONG_SHAPE = (AttributeError, KeyError, TypeError, ValueError)
_LONGEST_INTEGER = 40  # digits; OTLP's have 64 bits


class Malformed(NamedTuple):
    """A part that has not OTLP's shape."""

    part: Any


def records(document: dict[str, Any]) -> Iterator[dict[str, Any] | Malformed]:
    """The log records of `{"resourceLogs": […]}` in document order, each as the fields of one event.

    `document` is the parsed message, its fractional numbers as `msgspec.Raw`. A part without OTLP's shape stands in
    its place.
    """
    for group in document["resourceLogs"]:
        for scope in _parts(group, "scopeLogs"):
            for record in _parts(scope, "logRecords"):
                try:
                    yield record if isinstance(record, Malformed) else _event(group, record)
                except _WRONG_SHAPE:
                    yield Malformed(record)


def _parts(parent: Any, name: str) -> list[Any]:
    """The list that a part holds under a name; where it has no list there, the part itself as malformed."""
    if isinstance(parent, Malformed):
        return [parent]
    found = parent.get(name, []) if isinstance(parent, dict) else None
    return found if isinstance(found, list) else [Malformed(parent)]


def _event(group: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    event = _fields(group.get("resource", {}).get("attributes", [])) | _fields(record.get("attributes", []))
    body = record.get("body")
    if isinstance(body, dict) and "kvlistValue" in body:
        event |= _value(body)
    elif body is not None:
        event["event_message"] = _value(body)
    if "timestamp" not in event:
        for name in ("timeUnixNano", "observedTimeUnixNano"):
            time = record.get(name)
            if not (time is None or time == "0" or (time == 0 and time is not False)):
                event["timestamp"] = time
                break
    return event


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _fields(attributes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for attribute in _listed(attributes):
        key = attribute["key"]
        if not isinstance(key, str):
            raise TypeError("a key is not text")
        fields[key] = _value(attribute["value"])
    return fields


def _value(any_value: dict[str, Any]) -> Any:
    """The plain value of an OTLP AnyValue: an object with one of the names below, or with none, which is null."""
    for name, value in any_value.items():
        if name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
            return value
        if name == "intValue":
            return _integer(value)
        if name == "arrayValue":
            return [_value(item) for item in _listed(value.get("values", []))]
        if name == "kvlistValue":
            return _fields(value.get("values", []))
    if any_value:
        raise ValueError("no AnyValue")
    return None


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if not isinstance(value, str) or len(value) > _LONGEST_INTEGER:
        raise ValueError("no integer")
    return int(value)
