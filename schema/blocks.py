"""The blocks of entries, and how all blocks are compressed (design section 3, figures in docs/decisions/0002).

An entry block holds up to 128 entries of one project and one UTC hour, oldest first, each in the bytes in which it
was received. Integers are little-endian; payloads are compressed with zstd. `schema.url_blocks` has the other kind.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import zstandard

ENTRIES_PER_BLOCK = 128
LEVEL = 1  # zstd's: level 3 takes twice the time for 2 % (docs/decisions/0002)
NO_DICTIONARY = 0
_ID_BYTES = 16


class Entry(NamedTuple):
    """A stored edge entry: its time in µs, the id it was given if it came without one, and its bytes as received."""

    timestamp: int
    missing_id: bytes
    data: bytes


def pack_entries(entries: Sequence[Entry]) -> bytes:
    """The payload, not yet compressed, of up to 128 entries in ascending order of time."""
    return b"".join(
        (
            pack_numbers("q", [entry.timestamp for entry in entries]),
            pack_numbers("I", [len(entry.data) for entry in entries]),
            bytes(1 if entry.missing_id else 0 for entry in entries),
            *(entry.missing_id for entry in entries),
            *(entry.data for entry in entries),
        )
    )


def unpack_entries(payload: bytes, count: int) -> list[Entry]:
    """The entries of a decompressed payload."""
    timestamps = unpack_numbers("q", payload[: 8 * count])
    lengths = unpack_numbers("I", payload[8 * count : 12 * count])
    given = payload[12 * count : 13 * count]
    id_at = 13 * count
    data_at = id_at + _ID_BYTES * sum(given)
    entries: list[Entry] = []
    for timestamp, length, is_given in zip(timestamps, lengths, given, strict=True):
        missing_id = payload[id_at : id_at + _ID_BYTES] if is_given else b""
        entries.append(Entry(timestamp, missing_id, payload[data_at : data_at + length]))
        id_at += len(missing_id)
        data_at += length
    return entries


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
        """The payload of a stored form."""
        return self._zstd.decompress(stored)


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
