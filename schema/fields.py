"""The few fields of an element that the fold reads (contract section 3).

Leaves are taken as they come and judged one by one, because a field that can't be read counts as absent and the
element is kept. The typed decoder reads a well-shaped element in one pass; where an element's shape or a number in
it defeats that decoder, `Reader` takes the same fields one level at a time.
"""

from collections import Counter
from functools import cache
from typing import Any, Final, Generic, TypeVar, get_args

import msgspec

from schema.numbers import Number


class Unreadable:
    """Stands for a field that is there and can't be read."""


UNREADABLE: Final = Unreadable()


class EdgeRequest(msgspec.Struct, gc=False):
    """`metadata.request` of an edge entry."""

    url: Any = None
    path: Any = None
    host: Any = None
    protocol: Any = None


class EdgeMetadata(msgspec.Struct, gc=False):
    """`metadata` of an edge entry."""

    request: EdgeRequest | list[EdgeRequest] | None = None


class FunctionResponse(msgspec.Struct, gc=False):
    """`metadata.response` of a function record."""

    status_code: Any = None


class FunctionMetadata(msgspec.Struct, gc=False):
    """`metadata` of a function record."""

    project_ref: Any = None
    function_id: Any = None
    execution_time_ms: Any = None
    response: FunctionResponse | list[FunctionResponse] | None = None


class Envelope(msgspec.Struct, gc=False):
    """What every element has, and the two fields by which a message shows that it holds several."""

    timestamp: Any = None
    at_timestamp: Any = msgspec.field(default=None, name="@timestamp")
    date: Any = None
    batch: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    resource_logs: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="resourceLogs")


class EdgeElement(Envelope, gc=False):
    """An element of the edge topic."""

    id: Any = None
    project: Any = None
    metadata: EdgeMetadata | list[EdgeMetadata] | None = None


class FunctionElement(Envelope, gc=False):
    """An element of the functions topic."""

    metadata: FunctionMetadata | list[FunctionMetadata] | None = None


class IdentifiedFunctionElement(FunctionElement, gc=False):
    """The same with its id, which only deduplication reads."""

    id: Any = None


Shape = TypeVar("Shape", bound=msgspec.Struct)
_any = msgspec.json.Decoder(float_hook=Number).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Reader(Generic[Shape]):
    """Reads an element of one shape."""

    def __init__(self, shape: type[Shape]) -> None:
        self._shape = shape
        self.read = msgspec.json.Decoder(shape, float_hook=Number).decode
        """The element's fields in one pass. Raises msgspec.DecodeError or RecursionError where that can't be done."""

    def read_by_level(self, element: bytes, counts: Counter[str]) -> Shape:
        """The fields of a JSON object of any content; what can't be read counts as absent, and by name in `counts`."""
        return _read(self._shape, element, "", counts)


def only(value: Shape | list[Shape] | None, name: str, counts: Counter[str]) -> Shape | None:
    """The object that stands bare or as an array of one; None, counted as unreadable, for any other array."""
    if type(value) is list:
        if len(value) == 1:
            return value[0]
        counts[f"unreadable.{name}"] += 1
        return None
    return value  # type: ignore[return-value]  # what is no list is the object or None


def _read(shape: type[Shape], element: bytes, prefix: str, counts: Counter[str]) -> Shape:
    members = _members(element)
    fields: dict[str, Any] = {}
    nested = _nested(shape)
    for field in msgspec.structs.fields(shape):
        raw = members.get(field.encode_name)
        if raw is None or field.type == msgspec.Raw | msgspec.UnsetType:
            continue
        if field.name in nested:
            inner = _unwrap(bytes(raw))
            if inner is UNREADABLE:
                counts[f"unreadable.{prefix}{field.encode_name}"] += 1
            elif isinstance(inner, bytes):
                fields[field.name] = _read(nested[field.name], inner, f"{prefix}{field.encode_name}.", counts)
        else:
            fields[field.name] = _leaf(bytes(raw))
    return shape(**fields)


@cache
def _nested(shape: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The fields of a shape that have a shape themselves."""
    return {
        field.name: kind
        for field in msgspec.structs.fields(shape)
        for kind in get_args(field.type)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }


def _leaf(raw: bytes) -> Any:
    try:
        return _any(raw)
    except msgspec.ValidationError:  # an integer of more digits than can be read
        return UNREADABLE


def _unwrap(raw: bytes) -> bytes | Unreadable | None:
    if raw == b"null":
        return None
    if raw.startswith(b"["):
        items = _array(raw)
        raw = bytes(items[0]) if len(items) == 1 else b""
    return raw if raw.startswith(b"{") else UNREADABLE
