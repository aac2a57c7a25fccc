"""From the bytes of one Kafka message to its elements (contract section 4).

A message is one JSON object, an array of them, lines of them, `{"batch": […]}` or OTLP JSON. Each element keeps the
bytes in which it was received, so that one bad element never costs its siblings anything.
"""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from typing import Any

import msgspec

from schema import otlp

LARGEST_MESSAGE = 16 << 20  # bytes
MOST_ELEMENTS = 100_000
DEEPEST = 64  # levels within an element
_PRUNED = 400  # levels within a message: OTLP takes several for one of an element's
WHOLE_MESSAGE = -1  # the index of what concerns a message as a whole

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_NOT_MARKS = bytes(set(range(256)) - set(b'{}[]"'))
_STEP = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)  # one without an end reaches to the text's
_STRING_OR_BRACKET = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|(u[dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_any: Callable[[bytes], Any] = msgspec.json.Decoder(float_hook=msgspec.Raw).decode


class Reject(msgspec.Struct, frozen=True, gc=False):
    """What could not be taken: its place in the message, one of the reasons of contract section 4, and its bytes."""

    index: int
    reason: str
    data: bytes


class Element(msgspec.Struct, frozen=True, gc=False):
    """One JSON object of a message, as received, and its place there (for lines: the line's number)."""

    index: int
    data: bytes


def trim(value: bytes) -> bytes:
    """A message without byte order mark and surrounding white space."""
    return value.removeprefix(_BOM).strip(_SPACE)


def is_utf8(value: bytes) -> bool:
    """Whether all bytes are UTF-8, those too that the JSON decoder skips unseen."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def pair_surrogates(value: bytes) -> bytes:
    r"""JSON text in which each `\uD800`-like escape without its partner reads `\ufffd`: the length stays.

    Half a surrogate pair is allowed by JSON's grammar but stands for no character, and would make an answer that
    holds it unreadable for strict clients.
    """
    if _SURROGATE.search(value) is None:
        return value

    def pair(match: re.Match[bytes]) -> bytes:
        escape = match.group()
        lone = len(escape) == 6 and match.group(1) is None
        return b"\\ufffd" if lone else escape

    return _ESCAPE.sub(pair, value)


def too_deep(element: bytes, most: int = DEEPEST) -> bool:
    """Whether an element nests deeper than so many levels, itself the first."""
    if element.count(b"{") + element.count(b"[") <= most:
        return False
    marks = _ESCAPED.sub(b"", element).translate(None, _NOT_MARKS).replace(b'""', b"")  # strings that hold no bracket
    brackets = b"".join(marks.split(b'"')[::2])  # what stands outside of the others
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > most


def split(value: bytes) -> Iterator[Element | Reject]:
    """The elements of a trimmed, valid UTF-8 message, and a reject for each part that is none.

    What nests deeper than 400 levels is not looked into, so that no message exhausts the stack, however deep that is
    already: a log that is read again gives the same.
    """
    pruned = too_deep(value, _PRUNED)
    try:
        parts = _split(_prune(value) if pruned else value, pruned)
    except msgspec.DecodeError:
        parts = _lines(value)
    yield from parts


def _split(value: bytes, pruned: bool) -> Iterator[Element | Reject]:
    """The parts of a message that is one JSON value. Raises DecodeError where it is none."""
    if value.startswith(b"["):
        return _objects(_array(value), value)
    if not value.startswith(b"{"):
        _skip(value)
        return iter((Reject(WHOLE_MESSAGE, "not_object", value),))
    members = _members(value)
    batch = bytes(members.get("batch", b""))
    if batch.startswith(b"["):
        return _objects(_array(batch), value)
    if not bytes(members.get("resourceLogs", b"")).startswith(b"["):
        return iter((Element(0, value),))
    try:
        return iter((Reject(WHOLE_MESSAGE, "too_deep", value),)) if pruned else _otlp(_any(value), value)
    except msgspec.ValidationError:  # an integer of more digits than can be read
        return iter((Reject(WHOLE_MESSAGE, "not_object", value),))


def _objects(parts: list[msgspec.Raw], message: bytes) -> Iterator[Element | Reject]:
    if len(parts) > MOST_ELEMENTS:
        yield Reject(WHOLE_MESSAGE, "too_large", message)
        return
    for index, part in enumerate(parts):
        data = bytes(part)
        yield Element(index, data) if data.startswith(b"{") else _no_object(index, data)


def _no_object(index: int, data: bytes) -> Reject:
    return Reject(index, "too_deep" if too_deep(data) else "not_object", data)


def _otlp(document: dict[str, Any], message: bytes) -> Iterator[Element | Reject]:
    records = list(islice(otlp.records(document), MOST_ELEMENTS + 1))
    if len(records) > MOST_ELEMENTS:
        yield Reject(WHOLE_MESSAGE, "too_large", message)
        return
    for index, record in enumerate(records):
        if isinstance(record, otlp.Malformed):
            yield Reject(index, "not_object", msgspec.json.encode(record.part))
        else:
            yield Element(index, msgspec.json.encode(record))


def element_of(index: int, data: bytes) -> Element | Reject:
    """The element that bytes are, white space around it included, or what is wrong with them."""
    if too_deep(data, _PRUNED):
        data = _prune(data)
    try:
        _skip(data)
    except msgspec.DecodeError:
        return Reject(index, "not_json", data)
    return Element(index, data) if data.lstrip(_SPACE).startswith(b"{") else _no_object(index, data)


def _lines(value: bytes) -> Iterator[Element | Reject]:
    if value.count(b"\n") > MOST_ELEMENTS:
        return iter((Reject(WHOLE_MESSAGE, "too_large", value),))
    found: list[Element | Reject] = []
    for number, line in enumerate(value.split(b"\n")):
        line = line.strip(_SPACE)
        if line:
            found.append(element_of(number, line))
    if len(found) > 1 and any(isinstance(part, Element) for part in found):
        return iter(found)
    return iter((Reject(WHOLE_MESSAGE, "not_json", value),))


def is_pruned(value: bytes) -> bool:
    """Whether what nests too deep for the decoder may have been left out of an element or a message."""
    return too_deep(value, _PRUNED - 1)


def _prune(value: bytes) -> bytes:
    """A message without what nests too deep for the decoder: shallow elements stay whole, deep ones stay too deep."""
    kept: list[bytes] = []
    depth = start = 0
    for match in _STRING_OR_BRACKET.finditer(value):
        step = _STEP.get(match.group()[0], 0)
        if step > 0:
            depth += 1
            if depth == _PRUNED:
                kept.append(value[start : match.end()])
        elif step < 0:
            if depth == _PRUNED:
                start = match.start()
            depth -= 1
    if depth < _PRUNED:
        kept.append(value[start:])
    return b"".join(kept)
