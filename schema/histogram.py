"""A deterministic, mergeable histogram of execution times (design section 3).

Counts of whole milliseconds in sparse log-linear cells: a cell a millisecond below 1,024 ms, above it 1,024 cells an
octave, each standing for its lower edge, which is less than 0.1 % below any time in it. Two histograms merge by
adding their counts, so neither order nor split of the events shows in the result.

Its stored form is a MessagePack array [cell, count, step to the next cell, count, …]: the same counts are always the
same bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate

import msgspec

_CELLS = 1024
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode
_EMPTY = _encode([])


def whole_milliseconds(micros: int) -> int:
    """A duration in µs as whole milliseconds, rounded half up."""
    return (micros + 500) // 1000


def cell_of(milliseconds: int) -> int:
    """The cell in which a whole number of milliseconds (0 or more) is counted."""
    octave = milliseconds.bit_length() - 11
    if octave < 0:
        return milliseconds
    return octave * _CELLS + (milliseconds >> octave)


def lower_edge(cell: int) -> int:
    """The smallest number of milliseconds that is counted in a cell."""
    if cell < 2 * _CELLS:
        return cell
    octave = cell // _CELLS - 1
    return (cell - octave * _CELLS) << octave


def encode(counts: Mapping[int, int]) -> bytes:
    """The stored form of counts by cell."""
    flat: list[int] = []
    previous = 0
    for cell in sorted(counts):
        flat += (cell - previous, counts[cell])
        previous = cell
    return _encode(flat)


def decode(stored: bytes) -> list[tuple[int, int]]:
    """Pairs (cell, count) in ascending order of cell, from the stored form."""
    flat = _decode(stored)
    return list(zip(accumulate(flat[::2]), flat[1::2], strict=True))


def merge(a: bytes, b: bytes) -> bytes:
    """The stored form of two histograms together; commutative and associative."""
    return encode(_added(_added({}, a), b))


def combine(parts: Iterable[bytes]) -> bytes:
    """The stored form of any number of histograms together.

    All but the last are remembered together: of a window's buckets, in their order, only the last one grows.
    """
    *closed, last = [*parts] or [_EMPTY]
    return encode(_added(dict(_together(tuple(closed))), last))


@lru_cache(maxsize=16)  # of up to 200 histograms of 0.1 to 5 KB
def _together(parts: tuple[bytes, ...]) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for part in parts:
        _added(counts, part)
    return counts


def _added(counts: dict[int, int], part: bytes) -> dict[int, int]:
    for cell, count in decode(part):
        counts[cell] = counts.get(cell, 0) + count
    return counts


@lru_cache(maxsize=512)  # of histograms of 0.1 to 5 KB
def percentile(stored: bytes, percent: int, smallest: int, largest: int) -> int | None:
    """The percentile in whole milliseconds: of n sorted times the one at index max(0, ceil(percent·n/100) − 1).

    `smallest` and `largest` are the exact bounds of the times in µs; the answer lies between them, rounded like
    the times themselves. None where there are no times.
    """
    flat = _decode(stored)
    below = list(accumulate(flat[1::2]))  # 9 µs for 200 cells, where a loop takes 45
    if not below:
        return None
    place = bisect_left(below, max(1, -(-percent * below[-1] // 100)))
    cell = sum(flat[: 2 * place + 1 : 2])
    return min(max(lower_edge(cell), whole_milliseconds(smallest)), whole_milliseconds(largest))
