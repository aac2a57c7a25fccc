"""The fuzzer's short form: what it once found, some thousand changed messages, and messages of extreme size.

`make fuzz` is the long one, guided by coverage.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from decoding_check import Input, check, read_input
from events import dumps
from hypothesis import given, note, settings
from hypothesis import strategies as st
from mutations import change, seeds

FINDS = sorted(Path(__file__).with_name("finds").iterdir())
SEEDS = seeds()
CHANGES = 8
MEMORY = 1 << 30  # bytes of address space, Python and its libraries included


@pytest.mark.parametrize("find", FINDS, ids=lambda find: find.name)
def test_what_the_fuzzer_found_stays_mended(find: Path) -> None:
    check(read_input(find.read_bytes()))


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_messages_changed_by_their_parts_are_seen_as_the_oracle_sees_them(number: int) -> None:
    chance = Random(number)
    data = chance.choice(SEEDS)
    for _ in range(CHANGES):
        try:
            data = data[:1] + dumps(change(json.loads(data[1:]), chance))
        except (ValueError, RecursionError):
            data = chance.choice(SEEDS)
        note(repr(data[:2000]))
        check(read_input(data))


def extremes() -> Iterator[bytes]:
    """Messages of about 1 MB, each the worst of its kind."""
    size = 1_000_000
    event, otlp = (
        b'{"timestamp":1750000000,"metadata":{"x":%b}}',
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b]}]}]}',
    )
    values = [
        *(b"[" * (size // 2) + b"]" * (size // 2), b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6), b"[" * size),
        *(b"9" * size, b"-0." + b"0" * size + b"1", b"1e" + b"9" * size, b"1e-999999999"),
        *(b'"%b"' % (b"x" * size), b'"%b"' % (b"\\ud800" * (size // 6)), b'"%b"' % (b"\xc3\xa9" * (size // 2))),
        *(b'"%b' % (b'\\"' * (size // 2)), b"\\" * size, b'"' * size, b"{" + b'"a":1,' * (size // 6) + b'"a":1}'),
        b"[" + b"[],{}," * (size // 6) + b"1]",
    ]
    for value in values:
        yield from (value, event % value, otlp % value, b"{}\n%b\n{}" % value, b'{"batch":[{},%b,{}]}' % value)
        yield otlp % (b'{"attributes":[{"key":"metadata","value":{"stringValue":%b}}]}' % value)
    for line in (b"{}\n", b"{\n", b"\n", b"[]\n", b"\xef\xbb\xbf\n", b"{},"):
        yield line * (size // len(line))
    nested = b'{"arrayValue":{"values":[' * 5000 + b"]}}" * 5000
    yield otlp % (b'{"body":%b}' % nested)
    yield otlp % (b'{"body":%b}' % nested[:-1])
    for name in (b"timestamp", b"id", b"project", b"batch", b"resourceLogs"):
        yield b'{"%b":%b}' % (name, b"9" * size)
        yield b'{"%b":1e%b}' % (name, b"9" * size)


@pytest.mark.parametrize("topic", ["edge", "functions"])
def test_messages_of_extreme_size_take_neither_time_nor_memory(topic: str) -> None:
    program = (
        "import resource; from test_schema_fuzz import take_extremes; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY})); take_extremes({topic!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def take_extremes(topic: str) -> None:
    """Decode each; the check raises where one raises, or takes longer than its length allows."""
    for value in extremes():
        try:
            check(Input(topic, 1_750_000_000_123, value), with_oracle=False)
        except (AssertionError, MemoryError) as error:
            raise AssertionError(f"{value[:80]!r}… of {len(value):,} bytes") from error
