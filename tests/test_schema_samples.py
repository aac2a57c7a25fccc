"""What becomes of the bytes that producers write by their documentation: files of `samples`, byte for byte.

The two of OpenTelemetry's collector were recorded from release 0.155.0. Fluent Bit's `iso8601` has microseconds, as its
source writes it; its documentation says seconds.
"""

from pathlib import Path
from typing import NamedTuple

import pytest
from decoding_check import Input, check

from api.recent_entries import entry_row
from schema.blocks import Entry
from schema.decoding import decode_edge
from schema.events import Source

SAMPLES = Path(__file__).with_name("samples")
NOW_MS = 1_750_000_000_123
EXACT = 1_749_999_990_250_001
"""2025-06-15T15:06:30.250001Z; what is finer is floored."""
MILLISECOND, WHOLE = EXACT // 1000 * 1000, EXACT // 1_000_000 * 1_000_000
RECEIVED = NOW_MS * 1000
LINE = "GET | 200 | 203.0.113.7"
RAY = "GET | 200 | 203.0.113.7 | 41ddf1740f67442d"


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes


class Seen(NamedTuple):
    """An entry: its time, project, URL and message."""

    timestamp: int
    project: str
    url: str
    message: str


def request(timestamp: int, project: str, message: str = "GET | 200") -> Seen:
    """The entry of most samples."""
    return Seen(timestamp, project, f"https://{project}.example/rest/v1/todos", message)


ENTRIES = {
    "vector.json": [request(EXACT, "vector", LINE)],
    "vector-untouched.json": [Seen(EXACT, "", "", '203.0.113.7 - - "GET / HTTP/1.1" 200')],
    "fluent-bit-double.json": [request(EXACT, "fluent-bit")],
    "fluent-bit-iso8601.json": [request(EXACT, "fluent-bit")],
    "fluent-bit-iso8601-ns.json": [request(EXACT, "fluent-bit")],
    "fluent-bit-date-double.json": [request(EXACT, "fluent-bit")],
    "fluent-bit-date-epoch.json": [request(WHOLE, "fluent-bit")],
    "fluent-bit-date-epoch-ms.json": [request(MILLISECOND, "fluent-bit")],
    "fluent-bit-date-iso8601.json": [request(EXACT, "fluent-bit")],
    "fluent-bit-date-java-sql.json": [request(EXACT, "fluent-bit")],
    "logstash.json": [request(MILLISECOND, "logstash", LINE)],
    "logpush-bridge.ndjson": [request(time, "logpush", RAY) for time in (EXACT, WHOLE, WHOLE)],
    "logpush-bridge-array.json": [request(time, "logpush", RAY) for time in (EXACT, WHOLE, WHOLE)],
    "logpush.ndjson": [Seen(RECEIVED, "", "", "")] * 3,
    "otel-otlp-json.json": [
        Seen(EXACT, "otel", "https://otel.example/rest/v1/todos", "GET | 200 | 203.0.113.7 | é"),
        Seen(EXACT, "otel", "https://otel.example/auth/v1/token", "from the body"),
    ],
}
REJECTS = {
    "fluent-bit.msgpack": "not_utf8",
    "logstash-plain.txt": "not_json",
    "logstash-plain-struct.txt": "not_json",
    "otel-otlp-proto.bin": "not_utf8",
}


def test_every_sample_is_held() -> None:
    assert {file.name for file in SAMPLES.iterdir()} == ENTRIES.keys() | REJECTS.keys()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_sample_becomes_these_entries(name: str) -> None:
    value = (SAMPLES / name).read_bytes()
    decoded = decode_edge(Source("log", "edge", 0), [Received(7, NOW_MS, value)])
    assert not decoded.rejects
    seen = [
        Seen(
            event.timestamp,
            event.project,
            event.url,
            entry_row(Entry(event.timestamp, event.missing_id, event.data)).event_message,
        )
        for event in decoded.events
    ]
    assert seen == ENTRIES[name]


@pytest.mark.parametrize(("name", "reason"), REJECTS.items())
def test_a_sample_that_is_no_json_is_refused_whole(name: str, reason: str) -> None:
    value = (SAMPLES / name).read_bytes()
    decoded = decode_edge(Source("log", "edge", 0), [Received(7, NOW_MS, value)])
    assert not decoded.events
    assert [(place, reject.index, reject.reason) for place, reject, _ in decoded.rejects] == [(7, -1, reason)]


@pytest.mark.parametrize("name", [*ENTRIES, *REJECTS])
@pytest.mark.parametrize("topic", ["edge", "functions"])
def test_the_oracle_sees_the_same_in_a_sample(topic: str, name: str) -> None:
    check(Input(topic, NOW_MS, (SAMPLES / name).read_bytes()))
