"""The parts of a message as far as they can be read: what a decoder makes events of, and rejects."""

from collections import Counter
from collections.abc import Container, Iterator
from typing import Any, Protocol

import msgspec

from schema.fields import Reader, Shape
from schema.messages import (
    LARGEST_MESSAGE,
    WHOLE_MESSAGE,
    Element,
    Reject,
    element_of,
    is_utf8,
    pair_surrogates,
    split,
    too_deep,
    trim,
)
from schema.redaction import Redact, length_alone


class Parts(Protocol):
    """What of a record's bytes is decoded: its elements as far as they can be read, and rejects."""

    def __call__(
        self, value: bytes | None, reader: Reader[Shape], counts: Counter[str], /
    ) -> Iterator[tuple[Element, Shape] | Reject]:
        """The parts of a value; `counts` takes what was skipped and what counted as absent."""
        ...


def parts_of_message(
    value: bytes | None, reader: Reader[Shape], counts: Counter[str]
) -> Iterator[tuple[Element, Shape] | Reject]:
    """All parts of a message: what everything but a retry decodes."""
    if value and len(value) <= LARGEST_MESSAGE:
        try:  # nearly every message is one well-shaped object
            fields: Any = reader.read(value)
            single = fields.batch is msgspec.UNSET and fields.resource_logs is msgspec.UNSET
            if single and is_utf8(value) and not too_deep(value):
                yield Element(0, value), fields
                return
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # the long way tells what it is
    yield from _parts_of_any(value, reader, counts)


class SomeElements:
    """The parts of a message that have these indexes alone; `seen` are those of them that there are."""

    def __init__(self, indexes: Container[int]) -> None:
        self._indexes = indexes
        self.seen: set[int] = set()

    def __call__(
        self, value: bytes | None, reader: Reader[Shape], counts: Counter[str]
    ) -> Iterator[tuple[Element, Shape] | Reject]:
        """Those parts; what is counted is theirs too."""
        found: Counter[str] = Counter()
        for part in parts_of_message(value, reader, found):
            index = part.index if isinstance(part, Reject) else part[0].index
            if index in self._indexes:
                self.seen.add(index)
                counts.update(found)
                yield part
            found.clear()


class OneElement:
    """The bytes of one element, taken out of its message, as the part with that index."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __call__(
        self, value: bytes | None, reader: Reader[Shape], counts: Counter[str]
    ) -> Iterator[tuple[Element, Shape] | Reject]:
        """That part."""
        yield _readable(element_of(self._index, value or b""), reader, counts)


class Redacted:
    """The parts that others give without what `redact` takes out; of a reject, its length alone is left."""

    def __init__(self, parts: Parts, redact: Redact) -> None:
        self._parts = parts
        self._redact = redact

    def __call__(
        self, value: bytes | None, reader: Reader[Shape], counts: Counter[str]
    ) -> Iterator[tuple[Element, Shape] | Reject]:
        """Those parts; what is counted is the same."""
        for part in self._parts(value, reader, counts):
            if isinstance(part, Reject):
                yield Reject(part.index, part.reason, length_alone(part.data))
                continue
            element, _ = part
            clean = self._redact(element.data)
            yield part if clean is element.data else _readable(Element(element.index, clean), reader, Counter())


def _parts_of_any(
    value: bytes | None, reader: Reader[Shape], counts: Counter[str]
) -> Iterator[tuple[Element, Shape] | Reject]:
    if value is not None and len(value) > LARGEST_MESSAGE:
        yield Reject(WHOLE_MESSAGE, "too_large", value)
        return
    message = trim(value or b"")
    if not message:
        counts["empty"] += 1
        return
    if not is_utf8(message):
        yield Reject(WHOLE_MESSAGE, "not_utf8", message)
        return
    found = False
    for part in split(pair_surrogates(message)):
        found = True
        yield _readable(part, reader, counts)
    if not found:
        counts["empty"] += 1


def _readable(part: Element | Reject, reader: Reader[Shape], counts: Counter[str]) -> tuple[Element, Shape] | Reject:
    if isinstance(part, Reject):
        return part
    if too_deep(part.data):
        return Reject(part.index, "too_deep", part.data)
    try:
        return part, reader.read(part.data)
    except msgspec.ValidationError:
        return part, reader.read_by_level(part.data, counts)
