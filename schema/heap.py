"""How the C library keeps the memory that it has in hand: glibc's mallopt. Elsewhere nothing happens."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def tune_heap(mapped_from: int, kept: int | None = None, heaps: int | None = None) -> None:
    """Pieces from so many bytes on are given back as soon as they are free, smaller ones where more than `kept` are.

    At most so many `heaps` are there for the process's threads. What is None stays as the library has it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, mapped_from)
    if kept is not None:
        mallopt(_TRIM_THRESHOLD, kept)
    if heaps is not None:
        mallopt(_ARENA_MAX, heaps)
