"""What goes into a block comes out of it, byte for byte."""

import json
import uuid

import pytest
import zstandard
from events import Traffic
from hypothesis import given
from hypothesis import strategies as st

from schema.blocks import (
    ENTRIES_PER_BLOCK,
    Compressor,
    Decompressor,
    Entry,
    pack_entries,
    train_dictionary,
    unpack_entries,
)

NOW = 1_750_000_000_123_456
TIMESTAMPS = st.integers(946_684_800_000_000, 4_133_980_799_999_999)
ENTRIES = st.lists(
    st.builds(Entry, TIMESTAMPS, st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)), st.binary(max_size=60)),
    min_size=1,
    max_size=ENTRIES_PER_BLOCK,
)


def records(count: int) -> list[bytes]:
    messages = Traffic(1, NOW, "edge", "functions").messages(count)
    return [message.value for message in messages if message.value]


@given(ENTRIES)
def test_entries_come_back_as_they_were(entries: list[Entry]) -> None:
    entries.sort(key=lambda entry: entry.timestamp)
    assert unpack_entries(pack_entries(entries), len(entries)) == entries


def test_only_entries_that_came_without_an_id_carry_one() -> None:
    given_id = uuid.uuid4().bytes
    entries = [Entry(1, b"", b"a"), Entry(2, given_id, b""), Entry(3, b"", b"bc"), Entry(4, given_id, b"d")]
    packed = pack_entries(entries)
    assert unpack_entries(packed, 4) == entries
    assert packed.count(given_id) == 2
    assert len(packed) == 4 * 13 + 2 * 16 + 4


@given(st.binary(max_size=2000))
def test_what_is_compressed_without_a_dictionary_comes_back(payload: bytes) -> None:
    assert Decompressor().decompress(Compressor().compress(payload)) == payload


def test_what_is_compressed_with_a_dictionary_comes_back_with_it_alone() -> None:
    dictionary = train_dictionary(records(2500))
    compressor, decompressor = Compressor(dictionary), Decompressor(dictionary)
    for payload in (b"", b"x", *records(50), pack_entries([Entry(NOW, b"", one) for one in records(50)])):
        assert decompressor.decompress(compressor.compress(payload)) == payload
    stored = compressor.compress(records(3)[0])
    with pytest.raises(zstandard.ZstdError):
        Decompressor().decompress(stored)


def test_a_dictionary_makes_small_records_smaller() -> None:
    samples = records(2500)
    payload = next(sample for sample in samples if len(sample) > 300)
    assert len(Compressor(train_dictionary(samples)).compress(payload)) < len(Compressor().compress(payload)) / 2


@pytest.mark.parametrize("samples", [[], [b"x"], [b"x"] * 3, [b""] * 100])
def test_too_few_samples_give_no_dictionary(samples: list[bytes]) -> None:
    with pytest.raises(zstandard.ZstdError):
        train_dictionary(samples)


def test_equal_batches_are_equal_bytes() -> None:
    entries = [Entry(NOW + number, b"", json.dumps({"n": number}).encode()) for number in range(100)]
    assert Compressor().compress(pack_entries(entries)) == Compressor().compress(pack_entries(list(entries)))
