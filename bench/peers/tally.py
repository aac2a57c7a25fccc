"""How many events a peer has handled, told to the benchmark through eight shared bytes."""

import mmap
import struct
from pathlib import Path

_COUNT = struct.Struct("<q")


class Tally:
    """A counter in a file; one process adds, another reads."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_COUNT.pack(0))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _COUNT.size)
        self._count = 0

    def add(self, events: int) -> None:
        """Count events that have been handled for good."""
        self._count += events
        _COUNT.pack_into(self._shared, 0, self._count)

    def read(self) -> int:
        """The events counted so far."""
        (count,) = _COUNT.unpack_from(self._shared, 0)
        return int(count)
