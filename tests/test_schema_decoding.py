"""The decoder sees in every message what the oracle sees, and raises for none (contract sections 3 and 4)."""

import uuid
from collections import Counter
from typing import Any, NamedTuple

import pytest
from events import BAD_ELEMENTS, BAD_LINES, BAD_MESSAGES, Message, Traffic, dumps
from hypothesis import given, note, settings
from hypothesis import strategies as st
from oracle import Oracle, Record

from schema.decoding import ID_NAMESPACE, decode_edge, decode_functions
from schema.events import Decoded, EdgeEvent, Invocation, Source

NOW = 1_750_000_000_123_456
LOG, PARTITION, OFFSET = "log-1", 3, 1000
TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\r", b" ", b"\t", b"\0", b"\x1f", b"\x7f", b"\xff"),
    *(b"\\u", b"\\ud800", b"\\udc00", b'\\"', b"\\/", b"\\x", b"\xc3", b"\xef\xbb\xbf", b"null", b"true", b"NaN", b"-"),
    *(b"0", b".5", b"1e", b"e+3", b"e-3", b"9" * 25, b'"a":1,', b"[1,2", b"[{}]", b"{}", b"\n{}\n", b"[[", b"12x\n"),
)
EDITS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 3), st.one_of(st.sampled_from(TOKENS), st.binary(max_size=2))),
    min_size=1,
    max_size=5,
)


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes | None


class View(NamedTuple):
    """What one side makes of some messages; `accepted` in no order."""

    rejects: list[tuple[int, int, str]]
    skipped: dict[str, int]
    accepted: Counter[tuple[Any, ...]]


def decode(topic: str, *values: bytes | None, record_ms: int = NOW // 1000) -> Decoded[EdgeEvent] | Decoded[Invocation]:
    records = [Received(OFFSET + number, record_ms, value) for number, value in enumerate(values)]
    source = Source(LOG, topic, PARTITION)
    return decode_edge(source, records) if topic == "edge" else decode_functions(source, records)


def our_view(message: Message) -> View:
    decoded = decode(message.topic, message.value, record_ms=message.timestamp_ms)
    accepted: Counter[tuple[Any, ...]] = Counter()
    for event in decoded.events:
        if isinstance(event, EdgeEvent):
            families = tuple(bool(event.families >> bit & 1) for bit in range(4))
            accepted[event.timestamp, event.project, event.url.encode(), families] += 1
        else:
            accepted[event.timestamp, event.project, event.function] += 1
    rejects = sorted((offset, reject.index, reject.reason) for offset, reject, _ in decoded.rejects)
    return View(rejects, {name: decoded.counts[name] for name in ("empty", "no_response")}, accepted)


def oracles_view(message: Message) -> View:
    oracle = Oracle(LOG, "edge", "functions")
    oracle.feed([Record(message.topic, PARTITION, OFFSET, message.timestamp_ms, message.value)])
    accepted: Counter[tuple[Any, ...]] = Counter()
    accepted.update((one.timestamp, one.project, one.url, one.families) for one in oracle.entries)
    accepted.update((one.timestamp, one.project, one.function) for one in oracle.invocations)
    rejects = sorted((offset, index, reason) for _, _, offset, index, reason in oracle.rejects)
    return View(rejects, {name: oracle.skipped[name] for name in ("empty", "no_response")}, accepted)


def edited(value: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """A message with some bytes put in, taken out, replaced or doubled."""
    changed = bytearray(value)
    for place, kind, text in edits:
        at = place % (len(changed) + 1)
        if kind == 3:
            changed[at:at] = changed[at : at + 40]
        else:
            changed[at : at + (0, 1, 8)[kind]] = text if kind != 1 or place % 2 else b""
    return bytes(changed)


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_messages_are_seen_as_the_oracle_sees_them(seed: int) -> None:
    traffic = Traffic(seed, NOW, "edge", "functions")
    for message in traffic.messages(3000) + traffic.window_edges():
        assert our_view(message) == oracles_view(message), message.value


@given(st.integers(0, 2**32), st.lists(EDITS, min_size=30, max_size=30))
@settings(max_examples=150, deadline=None)
def test_damaged_messages_are_seen_as_the_oracle_sees_them(
    seed: int, edits: list[list[tuple[int, int, bytes]]]
) -> None:
    for message, changes in zip(Traffic(seed, NOW, "edge", "functions").messages(30), edits, strict=True):
        value = message.value or b""
        if b"resourceLogs" not in value and value.count(b"[") < 200:
            damaged = Message(message.topic, None, edited(value, changes), message.timestamp_ms)
            note(f"{damaged}")
            assert our_view(damaged) == oracles_view(damaged)


@given(st.integers(0, 2**32), st.lists(EDITS, min_size=30, max_size=30))
@settings(max_examples=50, deadline=None)
def test_damaged_messages_of_every_form_raise_nothing(seed: int, edits: list[list[tuple[int, int, bytes]]]) -> None:
    for message, changes in zip(Traffic(seed, NOW, "edge", "functions").messages(30), edits, strict=True):
        our_view(Message(message.topic, None, edited(message.value or b"", changes), message.timestamp_ms))


@given(
    st.sampled_from(["edge", "functions"]),
    st.one_of(
        st.binary(max_size=200),
        st.text('{}[]",:\\u18de-+.0 \n tfn', max_size=60).map(str.encode),
        st.lists(st.sampled_from([*TOKENS, *BAD_LINES, b"9" * 5000, b"1e999999999", b"[" * 3000, b"]" * 3000])).map(
            b"".join
        ),
    ),
    st.integers(-(2**63), 2**63 - 1),
)
@settings(max_examples=500, deadline=None)
def test_no_bytes_and_no_record_time_raise_anything(topic: str, value: bytes, record_ms: int) -> None:
    decode(topic, value, record_ms=record_ms)


@pytest.mark.parametrize("topic", ["edge", "functions"])
@pytest.mark.parametrize("name", ["timestamp", "project", "id", "metadata", "x"])
def test_a_number_of_any_length_in_any_field_costs_that_field_alone(topic: str, name: str) -> None:
    good = {"timestamp": NOW, "project": "p", "metadata": {"project_ref": "p", "response": {}}}
    for number in (
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"9" * 5000 + b".5",
        b"1e" + b"9" * 400,
        b"0." + b"0" * 5000 + b"1",
    ):
        value = dumps({**good, name: "?"}).replace(b'"?"', number)
        message = Message(topic, None, b"[%b,%b]" % (value, dumps(good)), NOW // 1000)
        assert our_view(message) == oracles_view(message)
        assert decode(topic, message.value).events


@pytest.mark.parametrize("topic", ["edge", "functions"])
def test_one_pass_and_level_by_level_read_the_same(topic: str) -> None:
    """A wrong member that a later one of the same name overrides defeats the typed decoder, and changes nothing."""
    compared = 0
    for message in Traffic(7, NOW, "edge", "functions").messages(3000):
        value = message.value or b""
        if message.topic == topic and value.startswith(b"{") and b"resourceLogs" not in value and b"metadata" in value:
            one_pass, by_level = decode(topic, value), decode(topic, value.replace(b"{", b'{"metadata":5,', 1))
            compared += len(one_pass.events)
            assert [placed.offset for placed in one_pass.rejects] == [placed.offset for placed in by_level.rejects]
            assert [_but_data(event) for event in one_pass.events] == [_but_data(event) for event in by_level.events]
            assert one_pass.counts == by_level.counts
    assert compared > 500


def _but_data(event: EdgeEvent | Invocation) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in event.__struct_fields__ if name != "data")


def test_an_entry_without_id_is_given_one_by_its_place_in_the_log() -> None:
    event = {"timestamp": NOW, "project": "p"}
    values = [dumps({**event, "id": one}) for one in ("a", 5, "", None, True)] + [dumps([event, {**event, "id": "b"}])]
    given_ids = [uuid.uuid5(ID_NAMESPACE, f"{LOG}/edge/{PARTITION}/{OFFSET + at}/0").bytes for at in (2, 3, 4, 5)]
    decoded = decode("edge", *values)
    assert [event.missing_id for event in decoded.events if isinstance(event, EdgeEvent)] == [b"", b"", *given_ids, b""]


@pytest.mark.parametrize("record_ms", [1_700_000_000, 946_684_799_999, NOW, NOW * 1000, 0, -1, 5, 4_133_980_800_000])
def test_a_records_own_time_is_in_milliseconds_whatever_its_magnitude(record_ms: int) -> None:
    message = Message("edge", None, dumps({"project": "p"}), record_ms)
    assert our_view(message) == oracles_view(message)
    assert our_view(message).rejects == [(OFFSET, 0, "bad_timestamp")]
    message = Message("edge", None, dumps({"project": "p", "timestamp": NOW}), record_ms)
    assert our_view(message) == oracles_view(message)


def test_the_first_time_field_that_is_not_null_counts() -> None:
    first, second, third = (NOW - number for number in range(3))
    for fields, timestamp in (
        ({"date": third, "@timestamp": second, "timestamp": first}, first),
        ({"date": third, "@timestamp": second, "timestamp": None}, second),
        ({"date": third, "@timestamp": None}, third),
        ({"date": third, "time": first}, third),
    ):
        assert [event.timestamp for event in decode("edge", dumps(fields)).events] == [timestamp]
    for wrong in ({"timestamp": "no time", "date": NOW}, {"@timestamp": False, "date": NOW}):
        assert [reject.reason for _, reject, _ in decode("edge", dumps(wrong)).rejects] == ["bad_timestamp"]


@pytest.mark.parametrize("record_ms", [946_684_800_000, NOW // 1000, 4_133_980_799_999])
def test_a_record_without_a_time_of_its_own_happened_when_kafka_says(record_ms: int) -> None:
    (event,) = decode("edge", b'{"timestamp":null}', record_ms=record_ms).events
    assert event.timestamp == record_ms * 1000


def test_what_is_skipped_or_unreadable_is_counted_by_name() -> None:
    assert decode("edge", None, b"", b" \n", b"\xef\xbb\xbf", b"[]", b'{"batch":[]}').counts == {"empty": 6}
    good = {
        "timestamp": NOW,
        "metadata": {"project_ref": "p", "execution_time_ms": -1, "response": {"status_code": "x"}},
    }
    odd = decode("functions", dumps(good), dumps({**good, "metadata": {"project_ref": "p", "function_id": 5}}))
    assert odd.counts == {
        "unreadable.metadata.execution_time_ms": 1,
        "unreadable.metadata.response.status_code": 1,
        "no_response": 1,
    }
    edge = {
        "timestamp": NOW,
        "project": 5,
        "id": [],
        "metadata": {"request": {"url": 1, "path": 2, "host": 3, "protocol": 4}},
    }
    names = ("project", "id", *(f"metadata.request.{name}" for name in ("url", "path", "host", "protocol")))
    assert decode("edge", dumps(edge)).counts == {f"unreadable.{name}": 1 for name in names}


def test_a_message_over_16_mib_is_one_reject_and_one_of_16_mib_is_read() -> None:
    traffic = Traffic(1, NOW, "edge", "functions")
    message = traffic.too_large()
    assert (
        our_view(message)
        == oracles_view(message)
        == View([(OFFSET, -1, "too_large")], {"empty": 0, "no_response": 0}, Counter())
    )
    assert message.value is not None
    assert len(decode("edge", message.value.replace(b"xx", b"x", 1), record_ms=message.timestamp_ms).events) == 1


@pytest.mark.parametrize("value", [*BAD_MESSAGES, *(dumps([element]) for element in BAD_ELEMENTS)])
def test_a_reject_keeps_the_bytes_that_were_refused(value: bytes) -> None:
    ((_, reject, _),) = decode("edge", value).rejects
    assert reject.data
    assert reject.data in value


def test_a_part_of_otlp_without_its_shape_costs_the_others_nothing() -> None:
    record = {"timeUnixNano": f"{NOW}000", "body": {"stringValue": "said"}}
    scopes = [5, {"logRecords": [record]}, {"logRecords": 5}, {"logRecords": [5, record]}]
    groups = [{"scopeLogs": scopes}, None, {"scopeLogs": [{"logRecords": [record]}]}]
    message = Message("edge", None, dumps({"resourceLogs": groups}), NOW // 1000)
    assert our_view(message) == oracles_view(message)
    assert len(decode("edge", message.value).events) == 3
