"""Reading exports: lines of JSON, plain or packed by gzip or zstd, with the place of each."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zstandard

from schema.errors import FreshetError
from schema.messages import LARGEST_MESSAGE

_PIECE = 1 << 16
_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


class Line(NamedTuple):
    """A line without its end: its number from 1, where the next one starts (in unpacked bytes), and its text.

    The last counts as ended, so that it is the same line once its file has grown. Of one that is longer than any
    message may be, the text holds the beginning alone.
    """

    number: int
    end: int
    text: bytes


class Export:
    """A file of lines. A context manager; it is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> "Export":
        self._file: BinaryIO = self._path.open("rb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def read(self) -> int:
        """How many bytes of the file, as it is stored, have been read."""
        return self._file.tell()

    def lines(self) -> Iterator[Line]:
        """The lines in their order. Raises FreshetError where the file is packed and damaged or breaks off."""
        number = end = size = 0
        held: list[bytes] = []

        def line() -> Line:
            text = b"".join(held)
            held.clear()
            return Line(number, end, text)

        for piece in self._pieces():
            *whole, rest = piece.split(b"\n")
            for text in whole:
                held.append(text)
                number, end, size = number + 1, end + size + len(text) + 1, 0
                yield line()
            size += len(rest)
            if rest and size <= LARGEST_MESSAGE + _PIECE:
                held.append(rest)
        if size:
            number, end = number + 1, end + size + 1
            yield line()

    def _pieces(self) -> Iterator[bytes]:
        start = self._file.read(4)
        self._file.seek(0)
        make = next((make for magic, make in _UNPACKERS.items() if start.startswith(magic)), None)
        if make is None:
            while piece := self._file.read(_PIECE):
                yield piece
            return
        unpacker = make()
        while piece := self._file.read(_PIECE):
            while piece:
                if unpacker.eof:  # another member follows
                    unpacker = make()
                try:
                    unpacked = unpacker.decompress(piece)
                except (zlib.error, zstandard.ZstdError) as error:
                    raise FreshetError(f"{self._path} is damaged near byte {self.read}: {error}") from error
                piece = unpacker.unused_data
                yield unpacked
        if not unpacker.eof:
            raise FreshetError(f"{self._path} breaks off: it has not been copied to its end")
