"""The blocks of entries, and how all blocks are compressed (design section 3, figures in docs/decisions/0002).

An entry block holds up to 128 entries of one project and one UTC hour, oldest first, each in the bytes in which it
was received. Integers are little-endian; payloads are compressed with zstd. `schema.url_blocks` has the other kind.

A payload is columns, one behind the other: times, lengths of the records, a flag each, offsets of cuts, ids that were
given, records. Flag 1: the record came without an id and has one among those given. Flag 2, in sealed blocks: the
first UUID of the record, in most its id, is cut out, at the offset given. The stored form then has these UUIDs behind
the zstd frame, 16 bytes each, where they take less room than anywhere in it (docs/decisions/0014).
"""

import re
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import zstandard

ENTRIES_PER_BLOCK = 128
LEVEL = 1  # zstd's: level 3 takes twice the time for 2 % (docs/decisions/0002)
SEALED_LEVEL = 9  # docs/decisions/0014
NO_DICTIONARY = 0
_ID_BYTES = 16
_GIVEN, _CUT = 1, 2
_UUID = re.compile(rb'"([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})')  # 0.3 µs; 5 where there is none in 2 KB
_UUID_CHARACTERS = 36
_DASHES = (8, 13, 18, 23)
_DIGITS = [place for place in range(_UUID_CHARACTERS) if place not in _DASHES]


class Entry(NamedTuple):
    """A stored edge entry: its time in µs, the id it was given if it came without one, and its bytes as received."""

    timestamp: int
    missing_id: bytes
    data: bytes


def pack_entries(entries: Sequence[Entry]) -> bytes:
    """The payload, not yet compressed, of up to 128 entries in ascending order of time."""
    return _pack(entries, [_GIVEN if entry.missing_id else 0 for entry in entries], [])


def pack_cut_entries(entries: Sequence[Entry]) -> tuple[bytes, bytes]:
    """The payload of entries with a UUID cut out of each record that has one, and the bytes of these UUIDs."""
    flags: list[int] = []
    offsets: list[int] = []
    cut: list[Entry] = []
    ids: list[bytes] = []
    for entry in entries:
        found = None if entry.missing_id else _UUID.search(entry.data)
        if found is None:
            flags.append(_GIVEN if entry.missing_id else 0)
            cut.append(entry)
        else:
            flags.append(_CUT)
            offsets.append(found.start(1))
            ids.append(found[1].replace(b"-", b""))
            cut.append(entry._replace(data=entry.data[: found.start(1)] + entry.data[found.end() :]))
    return _pack(cut, flags, offsets), bytes.fromhex(b"".join(ids).decode())


def _pack(entries: Sequence[Entry], flags: Sequence[int], offsets: Sequence[int]) -> bytes:
    return b"".join(
        (
            pack_numbers("q", [entry.timestamp for entry in entries]),
            pack_numbers("I", [len(entry.data) for entry in entries]),
            bytes(flags),
            pack_numbers("I", offsets),
            *(entry.missing_id for entry in entries),
            *(entry.data for entry in entries),
        )
    )


def unpack_entries(payload: bytes, count: int, stored: bytes) -> list[Entry]:
    """The entries of a decompressed payload; `stored` is what it was decompressed from."""
    timestamps = unpack_numbers("q", payload[: 8 * count])
    lengths = unpack_numbers("I", payload[8 * count : 12 * count])
    flags = payload[12 * count : 13 * count]
    cuts = flags.count(_CUT)
    id_at = 13 * count + 4 * cuts
    data_at = id_at + _ID_BYTES * flags.count(_GIVEN)
    offsets = iter(unpack_numbers("I", payload[13 * count : id_at]))
    uuids = _texts(stored[len(stored) - _ID_BYTES * cuts :]) if cuts else b""
    uuid_at = 0
    entries: list[Entry] = []
    for timestamp, length, flag in zip(timestamps, lengths, flags, strict=True):
        missing_id, data = b"", payload[data_at : data_at + length]
        data_at += length
        if flag == _CUT:
            offset = next(offsets)
            data = data[:offset] + uuids[uuid_at : uuid_at + _UUID_CHARACTERS] + data[offset:]
            uuid_at += _UUID_CHARACTERS
        elif flag == _GIVEN:
            missing_id = payload[id_at : id_at + _ID_BYTES]
            id_at += _ID_BYTES
        entries.append(Entry(timestamp, missing_id, data))
    return entries


def _texts(ids: bytes) -> bytes:
    """The texts of UUIDs, one behind the other: a place of all of them at a time, a fifth of the time of one by one."""
    texts = bytearray(b"-" * (len(ids) // _ID_BYTES * _UUID_CHARACTERS))
    digits = ids.hex().encode()
    for number, place in enumerate(_DIGITS):
        texts[place::_UUID_CHARACTERS] = digits[number :: len(_DIGITS)]
    return bytes(texts)


class Compressor:
    """Compresses payloads, with a trained dictionary or without. Not to be shared by threads."""

    def __init__(self, dictionary: bytes | None = None, level: int = LEVEL) -> None:
        trained = zstandard.ZstdCompressionDict(dictionary) if dictionary is not None else None
        if trained is not None:
            trained.precompute_compress(level=level)
        self._zstd = zstandard.ZstdCompressor(
            level=level, dict_data=trained, write_checksum=False, write_dict_id=False, write_content_size=True
        )

    def compress(self, payload: bytes) -> bytes:
        """The stored form of a payload."""
        return self._zstd.compress(payload)


class Decompressor:
    """Decompresses payloads written with the same dictionary, or with none. Not to be shared by threads."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        trained = zstandard.ZstdCompressionDict(dictionary) if dictionary is not None else None
        self._zstd = zstandard.ZstdDecompressor(dict_data=trained)

    def decompress(self, stored: bytes) -> bytes:
        """The payload of a stored form, which may have other bytes behind its zstd frame."""
        return self._zstd.decompress(stored, allow_extra_data=True)


def train_dictionary(samples: Sequence[bytes]) -> bytes:
    """A zstd dictionary of at most 64 KiB for records like the samples.

    Raises zstandard.ZstdError where they are too few or too alike.
    """
    return zstandard.train_dictionary(64 << 10, list(samples)).as_bytes()


def pack_numbers(kind: str, numbers: Sequence[int]) -> bytes:
    """Integers, little-endian, of a type code of `array`."""
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_numbers(kind: str, packed: bytes | memoryview) -> "array[int]":
    """The integers that `pack_numbers` packed."""
    numbers = array(kind)
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
