"""The two kinds of blocks in which edge events are stored (design section 3, figures in docs/decisions/0002).

An entry block holds up to 128 entries of one project and one UTC hour, oldest first, each in the bytes in which it
was received. A URL block holds the URLs of one batch and one UTC hour, sorted into runs of one project and origin,
so that a search reads a run's text at once. Integers are little-endian; payloads are compressed with zstd.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import zstandard

ENTRIES_PER_BLOCK = 128
LEVEL = 1  # zstd's: level 3 takes twice the time for 2 % (docs/decisions/0002)
NO_DICTIONARY = 0
_ID_BYTES = 16
_directory_encode = msgspec.msgpack.Encoder().encode
_directory_decode = msgspec.msgpack.Decoder(list[tuple[str, str, int, int]]).decode


class Entry(NamedTuple):
    """A stored edge entry: its time in µs, the id it was given if it came without one, and its bytes as received."""

    timestamp: int
    missing_id: bytes
    data: bytes


class Hit(NamedTuple):
    """A request in a URL run: time in µs, family set, and URL in UTF-8."""

    timestamp: int
    families: int
    url: bytes


class Run:
    """The requests of one project and origin in a URL block. Only what is asked for is taken out of the payload."""

    __slots__ = ("_base", "_block", "count", "origin", "project", "text")

    def __init__(
        self, block: "_UrlPayload", project: str, origin: str, base: int, count: int, text: memoryview
    ) -> None:
        self._block, self._base = block, base
        self.project, self.origin, self.count = project, origin, count
        self.text = text
        """All URLs of the run, joined by newlines (a URL may hold a newline itself)."""

    def hits(self) -> Iterator[Hit]:
        """The run's requests, in the order in which they were received."""
        start = 0
        end = self._base + self.count
        block = self._block
        for at in range(self._base, end):
            stop = start + block.lengths[at]
            yield Hit(block.timestamps[at], block.families[at], bytes(self.text[start:stop]))
            start = stop + 1

    def pieces(self, size: int) -> Iterator[memoryview]:
        """The run's text cut between URLs into pieces of about `size` bytes; a URL is never cut."""
        start = end = 0
        for length in self._block.lengths[self._base : self._base + self.count]:
            end += length + 1
            if end - start >= size:
                yield self.text[start : end - 1]
                start = end
        if start < end:
            yield self.text[start : end - 1]

    def times(self) -> Iterator[tuple[int, int]]:
        """Pairs (time in µs, family set) of the run's requests."""
        block = self._block
        span = slice(self._base, self._base + self.count)
        return zip(block.timestamps[span], block.families[span], strict=True)


class _UrlPayload(NamedTuple):
    timestamps: "array[int]"
    families: bytes
    lengths: "array[int]"


def pack_entries(entries: Sequence[Entry]) -> bytes:
    """The payload, not yet compressed, of up to 128 entries in ascending order of time."""
    return b"".join(
        (
            _pack("q", [entry.timestamp for entry in entries]),
            _pack("I", [len(entry.data) for entry in entries]),
            bytes(1 if entry.missing_id else 0 for entry in entries),
            *(entry.missing_id for entry in entries),
            *(entry.data for entry in entries),
        )
    )


def unpack_entries(payload: bytes, count: int) -> list[Entry]:
    """The entries of a decompressed payload."""
    timestamps = _unpack("q", payload[: 8 * count])
    lengths = _unpack("I", payload[8 * count : 12 * count])
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


def pack_urls(runs: Sequence[tuple[str, str, Sequence[Hit]]]) -> bytes:
    """The payload, not yet compressed, of runs (project, origin, requests) in ascending order of project and origin."""
    directory: list[tuple[str, str, int, int]] = []
    texts: list[bytes] = []
    hits: list[Hit] = []
    for project, origin, requests in runs:
        text = b"\n".join([hit.url for hit in requests])
        directory.append((project, origin, len(requests), len(text)))
        texts.append(text)
        hits += requests
    head = _directory_encode(directory)
    return b"".join(
        (
            _pack("I", [len(hits), len(head)]),
            head,
            _pack("q", [hit.timestamp for hit in hits]),
            bytes([hit.families for hit in hits]),
            _pack("I", [len(hit.url) for hit in hits]),
            *texts,
        )
    )


def unpack_urls(payload: bytes) -> list[Run]:
    """The runs of a decompressed payload."""
    count, head = _unpack("I", payload[:8])
    at = 8 + head
    directory = _directory_decode(payload[8:at])
    timestamps = _unpack("q", payload[at : at + 8 * count])
    families = payload[at + 8 * count : at + 9 * count]
    lengths = _unpack("I", payload[at + 9 * count : at + 13 * count])
    block = _UrlPayload(timestamps, families, lengths)
    text = memoryview(payload)[at + 13 * count :]
    runs: list[Run] = []
    base = start = 0
    for project, origin, requests, length in directory:
        runs.append(Run(block, project, origin, base, requests, text[start : start + length]))
        base += requests
        start += length
    return runs


class Compressor:
    """Compresses payloads, with a trained dictionary or without. Not to be shared by threads."""

    def __init__(self, dictionary: bytes | None = None) -> None:
        trained = zstandard.ZstdCompressionDict(dictionary) if dictionary is not None else None
        if trained is not None:
            trained.precompute_compress(level=LEVEL)
        self._zstd = zstandard.ZstdCompressor(
            level=LEVEL, dict_data=trained, write_checksum=False, write_dict_id=False, write_content_size=True
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


def _pack(kind: str, numbers: list[int]) -> bytes:
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(kind: str, packed: bytes) -> "array[int]":
    numbers = array(kind)
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
