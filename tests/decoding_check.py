"""What must hold of the decoder, and of what is read back of its events, for every message whatever its bytes are.

Shared by the coverage-guided fuzzer (`fuzz.py`) and its short form among the tests.
"""

import json
import re
import time
from collections import Counter
from typing import Any, NamedTuple

from oracle import Entry as OracleEntry
from oracle import Invocation as OracleInvocation
from oracle import Oracle, Record, rows_agree

from api.recent_entries import EntryRow, entry_row
from schema.blocks import Entry
from schema.decoding import decode_edge, decode_functions
from schema.events import EdgeEvent, Invocation, Source
from schema.parts import Redacted, parts_of_message
from schema.redaction import KINDS, redactor

NOW_MS = 1_750_000_000_123
SOURCE_LOG, PARTITION, OFFSET = "log-1", 3, 1000
RECORD_TIMES = (NOW_MS, 0, -1, 4_133_980_799_999)
REPEATS = (1, 1, 1, 1, 1, 1, 70, 500)
SECONDS, SECONDS_A_BYTE = 0.5, 2e-6
"""CPU time a message may take; the worst, of brackets alone, takes 0.35 µs a byte."""
_REDACT: Any = redactor(KINDS)
_BEYOND = re.compile(rb"[0-9]{300}|[eE][+-]?0*[0-9]{3}")
"""Numbers past the bounds of docs/decisions/0001-readings.md, which the oracle, that knows none, reads otherwise."""


class Input(NamedTuple):
    """A message as the fuzzer writes it."""

    topic: str
    record_ms: int
    value: bytes


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes


def read_input(data: bytes) -> Input:
    """The message that some fuzzer's bytes stand for.

    The first byte's bits choose the topic (1), the record's time (2), and how often what lies between the first two
    bytes 0xFE is repeated (3), so that depth and length are cheap to come by.
    """
    header = data[0] if data else 0
    before, mark, rest = data[1:].partition(b"\xfe")
    repeated, end, after = rest.partition(b"\xfe")
    value = before + repeated * REPEATS[header >> 3 & 7] + after if mark and end else data[1:]
    return Input("functions" if header & 1 else "edge", RECORD_TIMES[header >> 1 & 3], value)


def write_input(topic: str, value: bytes) -> bytes:
    """Bytes that `read_input` reads as a message, if it has no 0xFE."""
    return bytes([topic == "functions"]) + value


def check(given: Input, *, with_oracle: bool = True) -> None:
    """Raise whatever the decoder raises, and AssertionError where it is slow or does not see what the oracle sees.

    The oracle, which bounds neither, is left out for large messages.
    """
    began = time.process_time()
    decode: Any = decode_functions if given.topic == "functions" else decode_edge
    decoded = decode(Source(SOURCE_LOG, given.topic, PARTITION), [Received(OFFSET, given.record_ms, given.value)])
    edge = [event for event in decoded.events if isinstance(event, EdgeEvent)]
    rows = [entry_row(Entry(event.timestamp, event.missing_id, event.data)) for event in edge]
    took = time.process_time() - began
    assert took < SECONDS + SECONDS_A_BYTE * len(given.value), f"{len(given.value):,} bytes took {took:.2f} s"
    assert sum(len(reject.data) for _, reject, _ in decoded.rejects) <= 2 * len(given.value) + 64
    for row in rows:
        json.dumps([row.id, row.event_message, row.metadata], ensure_ascii=False).encode()
    _check_redacted(decode, given, decoded)
    if not with_oracle or _BEYOND.search(given.value):
        return
    oracle = Oracle(SOURCE_LOG, "edge", "functions")
    oracle.feed([Record(given.topic, PARTITION, OFFSET, given.record_ms, given.value)])
    rejects = sorted((offset, reject.index, reject.reason) for offset, reject, _ in decoded.rejects)
    expected = sorted((offset, index, reason) for _, _, offset, index, reason in oracle.rejects)
    assert rejects == expected, f"rejected {rejects}, expected {expected}"
    for name in ("empty", "no_response"):
        assert decoded.counts[name] == oracle.skipped[name], name
    ours = Counter(map(_event, decoded.events))
    theirs = Counter(map(_oracles_event, oracle.entries)) + Counter(map(_oracles_event, oracle.invocations))
    assert ours == theirs, f"accepted {ours - theirs}, expected {theirs - ours}"
    rows_agree([_row(row) for row in rows], [entry.row for entry in oracle.entries])


def _check_redacted(decode: Any, given: Input, plain: Any) -> None:
    """Without its secrets a message comes to the same events, at the same times, of JSON still; redaction is stable."""
    record = Received(OFFSET, given.record_ms, given.value)
    source = Source(SOURCE_LOG, given.topic, PARTITION)
    redacted = decode(source, [record], Redacted(parts_of_message, _REDACT))
    assert [event.timestamp for event in redacted.events] == [event.timestamp for event in plain.events]
    assert [(r.index, r.reason) for _, r, _ in redacted.rejects] == [(r.index, r.reason) for _, r, _ in plain.rejects]
    for event in redacted.events:
        if isinstance(event, EdgeEvent):
            json.loads(event.data, parse_int=str, parse_float=str)
            assert _REDACT(event.data) == event.data


def _row(row: EntryRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "timestamp": row.timestamp,
        "event_message": row.event_message,
        "metadata": json.loads(row.metadata),
    }


def _event(event: EdgeEvent | Invocation) -> tuple[Any, ...]:
    if isinstance(event, EdgeEvent):
        families = tuple(bool(event.families >> bit & 1) for bit in range(4))
        return (event.timestamp, event.project, event.url.encode(), families)
    return (event.timestamp, event.project, event.function, event.status, event.execution_time)


def _oracles_event(event: OracleEntry | OracleInvocation) -> tuple[Any, ...]:
    if isinstance(event, OracleEntry):
        return (event.timestamp, event.project, event.url, event.families)
    return (event.timestamp, event.project, event.function, event.status, event.execution_time)
