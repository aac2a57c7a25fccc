"""OTLP JSON, as OpenTelemetry's Kafka exporter writes it with `encoding: otlp_json`, as plain elements.

A log record's attributes, under those of its resource, are the fields of an event; so are the keys of a body that
is a key-value list. Any other body is the message. `timeUnixNano` is the time unless a field says otherwise.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

_WRONG_SHAPE = (AttributeError, KeyError, TypeError, ValueError)


class Malformed(NamedTuple):
    """A part that has not OTLP's shape."""

    part: Any


def records(document: dict[str, Any]) -> Iterator[dict[str, Any] | Malformed]:
    """The log records of `{"resourceLogs": […]}` in document order, each as the fields of one event.

    `document` is the parsed message, its fractional numbers as text.
    """
    for resource_logs in document["resourceLogs"]:
        try:
            resource = _fields(resource_logs.get("resource", {}).get("attributes", []))
            scopes = [scope.get("logRecords", []) for scope in resource_logs.get("scopeLogs", [])]
            logs = [record for scope in scopes for record in _listed(scope)]
        except _WRONG_SHAPE:
            yield Malformed(resource_logs)
            continue
        for record in logs:
            try:
                yield _event(resource, record)
            except _WRONG_SHAPE:
                yield Malformed(record)


def _event(resource: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    event = resource | _fields(record.get("attributes", []))
    body = _value(record.get("body", {}))
    if isinstance(body, dict):
        event |= body
    elif body is not None:
        event.setdefault("event_message", body)
    if "timestamp" not in event:
        for name in ("timeUnixNano", "observedTimeUnixNano"):
            time = record.get(name)
            if time not in (None, "0", 0):
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
        fields[key] = _value(attribute.get("value", {}))
    return fields


def _value(any_value: dict[str, Any]) -> Any:
    """The plain value of an OTLP AnyValue: an object with exactly one of the names below."""
    for name, value in any_value.items():
        if name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
            return value
        if name == "intValue":
            return int(value) if len(str(value)) < 40 else str(value)
        if name == "arrayValue":
            return [_value(item) for item in _listed(value.get("values", []))]
        if name == "kvlistValue":
            return _fields(value.get("values", []))
    return None
