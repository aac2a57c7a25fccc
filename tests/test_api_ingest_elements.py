"""What the door lets through is what the worker takes, no more and no less, whatever producers send."""

import uuid
from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest
from events import Traffic
from hypothesis import given
from hypothesis import strategies as st

from api.ingest_elements import Decode, Judge, Message, Refusal, with_id
from schema.decoding import decode_edge, decode_functions
from schema.events import Source
from schema.messages import Element, Reject, is_utf8, pair_surrogates, split, trim

NOW = 1_750_000_000_000_000
SOURCE = Source("log", "topic", 0)
PLENTY = 1 << 30


class Record(NamedTuple):
    """A record as the decoder reads it."""

    offset: int
    timestamp: int
    value: bytes


def sent() -> list[bytes]:
    """Messages that are made of elements, of every kind that producers send."""
    values = [message.value for message in Traffic(5, NOW, "edge", "functions").messages(4000) if message.value]
    return [value for value in values if is_utf8(value) and trim(value)]


def meaning(event: Any) -> Any:
    """An event without its bytes and the id it may have been given."""
    fields = msgspec.structs.asdict(event)
    return {name: value for name, value in fields.items() if name not in ("data", "missing_id")}


@pytest.mark.parametrize("decode", [decode_edge, decode_functions])
def test_what_is_sent_on_means_to_the_worker_what_the_whole_would_have_meant(decode: Decode) -> None:
    seen: Counter[str] = Counter()
    for value in sent():
        parts = list(split(pair_surrogates(trim(value))))
        whole = decode(SOURCE, [Record(0, NOW // 1000, value)])
        judged = Judge(decode, None, PLENTY, NOW // 1000).judge(parts)
        assert len(judged) == len(parts)
        messages = [one for one in judged if isinstance(one, Message)]
        again = decode(SOURCE, [Record(number, NOW // 1000, one.value) for number, one in enumerate(messages)])
        assert [meaning(event) for event in again.events] == [meaning(event) for event in whole.events]
        assert again.counts["no_response"] == whole.counts["no_response"]
        assert again.rejects == []
        refused = [(one.index, one.reason) for one in judged if isinstance(one, Refusal)]
        assert refused == [(placed.reject.index, placed.reject.reason) for placed in whole.rejects]
        if decode is decode_edge:
            assert [event.missing_id for event in again.events] == [b""] * len(messages)
            assert [one.key or b"" for one in messages] == [
                event.project.encode(errors="replace") for event in whole.events
            ]
        seen.update(messages=len(messages), refused=len(refused))
    assert min(seen["messages"], seen["refused"]) > 100


def test_many_at_once_are_judged_as_each_alone() -> None:
    judge = Judge(decode_edge, frozenset({"p"}), 2000, NOW // 1000)
    kinds: list[Any] = [{"project": "p"}, {"project": "q", "id": 1}, {}, {"project": "p", "x": "y" * 3000, "id": "1"}]
    kinds += [{"project": "p", "batch": [{"project": "p"}], "id": "2"}, {"project": "p", "timestamp": True}]
    for first in kinds:
        for second in kinds:
            parts: list[Element | Reject] = [
                Element(number, msgspec.json.encode(one)) for number, one in enumerate((first, second))
            ]
            together = judge.judge(parts)
            alone = [judge.judge([part])[0] for part in parts]
            for one, other in zip(together, alone, strict=True):
                if isinstance(one, Message):
                    assert isinstance(other, Message)
                    assert (len(one.value), one.key) == (len(other.value), other.key)
                else:
                    assert one == other


def test_a_part_that_is_no_element_is_refused_for_its_reason() -> None:
    judge = Judge(decode_edge, None, PLENTY, NOW // 1000)
    parts: list[Element | Reject] = [Element(0, b"{}"), Reject(1, "not_json", b"x"), Element(3, b'{"a":1,}')]
    assert [getattr(one, "reason", "taken") for one in judge.judge(parts)] == ["taken", "not_json", "not_json"]


@given(st.dictionaries(st.text(max_size=9), st.integers() | st.text() | st.none(), max_size=4), st.booleans())
def test_an_id_is_added_behind_all_else(members: dict[str, Any], indented: bool) -> None:
    element = msgspec.json.encode(members)
    if indented:
        element = msgspec.json.format(element)
    added = msgspec.json.decode(with_id(element))
    assert with_id(element).startswith(element[:-1])
    assert uuid.UUID(added.pop("id")).version == 4
    members.pop("id", None)
    assert added == members
