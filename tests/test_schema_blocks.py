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
    LEVEL,
    SEALED_LEVEL,
    Compressor,
    Decompressor,
    Entry,
    pack_cut_entries,
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
    assert unpack_entries(pack_entries(entries), len(entries), b"") == entries


HEX = st.sampled_from("0123456789abcdef")
UUID_TEXTS = st.one_of(
    st.uuids().map(str),
    st.uuids().map(lambda one: str(one).upper()),
    st.uuids().map(lambda one: f"{{{one}}}"),
    st.lists(HEX, min_size=30, max_size=40).map("".join),
    st.tuples(st.uuids(), st.integers(0, 35), st.sampled_from('gA- "é')).map(
        lambda one: f"{str(one[0])[: one[1]]}{one[2]}{str(one[0])[one[1] + 1 :]}"
    ),
)
PIECES = st.one_of(
    UUID_TEXTS.map(lambda text: text.encode()),
    UUID_TEXTS.map(lambda text: b'"' + text.encode() + b'"'),
    st.sampled_from([b'{"id":', b'{ "id" :\t', b"}", b",", b" \r\n", b'"', b"-", b"\xff\x00"]),
    st.binary(max_size=8),
)
MISSING_IDS = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16))
WITH_UUIDS = st.lists(
    st.builds(Entry, TIMESTAMPS, MISSING_IDS, st.lists(PIECES, max_size=6).map(b"".join)),
    min_size=1,
    max_size=ENTRIES_PER_BLOCK,
)


@given(WITH_UUIDS, st.sampled_from([LEVEL, SEALED_LEVEL]))
def test_entries_whose_uuids_are_cut_out_come_back_as_they_were(entries: list[Entry], level: int) -> None:
    payload, ids = pack_cut_entries(entries)
    stored = Compressor(level=level).compress(payload) + ids
    assert unpack_entries(Decompressor().decompress(stored), len(entries), stored) == entries


def test_of_each_record_the_first_uuid_alone_is_cut_out_and_takes_16_bytes() -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    data = [
        f'{{"id":"{first}","other":"{second}"}}',
        f'{{"id":"{str(first).upper()}","other":"{second}"}}',
        f'{{"id":"{str(first).upper()}"}}',
        f"{{}} {first}",
    ]
    given_id = uuid.uuid4().bytes
    entries = [Entry(number, b"", one.encode()) for number, one in enumerate(data)]
    entries.append(Entry(9, given_id, f'{{"request":"{second}"}}'.encode()))
    payload, ids = pack_cut_entries(entries)
    assert ids == first.bytes + second.bytes
    assert payload.count(str(first).encode()) == 1
    assert payload.count(str(second).encode()) == 2
    assert len(payload) == sum(len(entry.data) for entry in entries) + 5 * 13 + 2 * (4 - 36) + 16
    assert unpack_entries(payload, 5, b"anything" + ids) == entries


def test_a_record_without_uuids_is_stored_as_before() -> None:
    entries = [Entry(NOW, b"", b'{"id":7}'), Entry(NOW, bytes(16), b"{}")]
    assert pack_cut_entries(entries) == (pack_entries(entries), b"")


def test_only_entries_that_came_without_an_id_carry_one() -> None:
    given_id = uuid.uuid4().bytes
    entries = [Entry(1, b"", b"a"), Entry(2, given_id, b""), Entry(3, b"", b"bc"), Entry(4, given_id, b"d")]
    packed = pack_entries(entries)
    assert unpack_entries(packed, 4, b"") == entries
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
