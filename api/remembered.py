"""What patterns have been found to count in URL blocks, kept in bounded memory and shared by a process's threads.

A block never changes and ids are not used again within a generation, so what a block gave once holds for as long as
it is there. docs/decisions/0007 has the figures.
"""

import sys
import threading
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from api.searching import Matched
from schema.timestamps import HOUR, MINUTE
from schema.url_blocks import UrlBlock

_BITS = 4  # of a family set
_MOST_EDGES = 256  # of a subject
_MOST_ARRAYS = 8  # of a subject: those of windows that begin in another minute by now among them
_MOST_SUBJECTS = 4096  # half a kilobyte each beside what is counted
_OF_EACH_ORIGIN = 350  # bytes: its names, its hits, and the tuples around them
_OF_EACH_BLOCK = 200  # bytes: the objects around the counts, and their place in a dict


Stamp = tuple[Sequence[tuple[str, str]], Sequence[Any], Any]
"""Of a state of the database: the origins that decide, the hits of each, the blocks to be searched."""
Window = tuple[int, int]
"""The grain in seconds, and the first whole minute in µs."""


class Subject(NamedTuple):
    """What is remembered: of a generation, a pattern over events of some projects (None: all)."""

    generation: int
    pattern: str
    projects: frozenset[str] | None


class BlockCounts:
    """The requests in a block that a pattern matches: by minute of the hour and family set, and by family set."""

    __slots__ = ("_cells", "hour", "totals")

    def __init__(self, block: UrlBlock, matched: Iterable[Matched]) -> None:
        self.hour = block.hour
        totals: Counter[int] = Counter()
        cells: Counter[int] = Counter()
        for families, first, last in matched:
            totals[families] += last - first
            for offset in block.offsets[first:last]:
                cells[offset // MINUTE << _BITS | families] += 1
        self._cells = array("I", chain.from_iterable(cells.items()))
        self.totals = totals

    def by_minute(self, since: int) -> Iterator[tuple[int, int, int]]:
        """(minute in µs, family set, requests), of minutes from `since` (µs) on."""
        cells = iter(self._cells)
        for code, hits in zip(cells, cells, strict=True):
            minute = self.hour + (code >> _BITS) * MINUTE
            if minute >= since:
                yield minute, code & (1 << _BITS) - 1, hits

    @property
    def size(self) -> int:
        """Roughly its bytes in memory."""
        return _OF_EACH_BLOCK + sys.getsizeof(self._cells) + 120 * len(self.totals)


class Edge:
    """The requests of one minute in a block that a pattern matches, in the order of their times."""

    __slots__ = ("_families", "_times", "minute")

    def __init__(self, minute: int, matched: Iterable[tuple[int, int]]) -> None:
        self.minute = minute
        ordered = sorted(matched)
        self._times = array("q", [time for time, _ in ordered])
        self._families = bytes(families for _, families in ordered)

    def since(self, since: int) -> bytes:
        """The family sets of those at or after `since` (µs)."""
        return self._families[bisect_left(self._times, since) :]

    @property
    def size(self) -> int:
        """Roughly its bytes in memory."""
        return _OF_EACH_BLOCK + 9 * len(self._families)


class HourCounts(NamedTuple):
    """The requests in all blocks of an hour by family set; the blocks' number and the sum of their ids."""

    blocks: Sequence[int]
    totals: Counter[int]

    @property
    def size(self) -> int:
        """Roughly its bytes in memory."""
        return 2 * _OF_EACH_BLOCK + 120 * len(self.totals)


class CountsArray(NamedTuple):
    """A window's counts: how many buckets its whole minutes give, the first with its hits, the rest as answered.

    Beside them the minute in which it begins. All holds for every state of the database that has this stamp.
    """

    stamp: Stamp
    buckets: int
    first: Sequence[tuple[int, ...]]
    rest: bytes
    edges: Sequence[Edge]

    @property
    def size(self) -> int:
        """Roughly its bytes in memory."""
        edges = sum(edge.size for edge in self.edges)
        return 3 * _OF_EACH_BLOCK + _OF_EACH_ORIGIN * len(self.stamp[1]) + len(self.rest) + edges


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


class Known:
    """What is known of one subject: counts and first minutes by block id, counts by hour, and by window.

    Changed by `Remembered` alone.
    """

    __slots__ = ("arrays", "blocks", "edges", "hours", "size", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.blocks: dict[int, BlockCounts] = {}
        self.edges: dict[int, Edge] = {}
        """Of a minute in which a window began, by block id."""
        self.hours: dict[int, HourCounts] = {}
        """By the hour's start in µs."""
        self.arrays: dict[Window, CountsArray] = {}
        self.size = 0


class Remembered:
    """The subjects asked for last, in at most so many bytes. Safe for threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Subject, Known] = OrderedDict()
        self._generation = 0
        self.size = 0

    def known(self, subject: Subject) -> Known:
        """What is known of a subject, which is the last that will be forgotten. Older generations are forgotten."""
        with self._lock:
            if subject.generation > self._generation:
                self._generation = subject.generation
                for other in [old for old in self._known if old.generation < subject.generation]:
                    self._drop(other)
            known = self._known.get(subject)
            if known is None:
                known = self._known[subject] = Known(subject)
                if len(self._known) > _MOST_SUBJECTS:
                    self._drop(next(iter(self._known)))
            self._known.move_to_end(subject)
            return known

    def keep(self, known: Known, block: int, counts: BlockCounts) -> None:
        """Remember what a block gave; the subjects asked for longest ago make room.

        Where one subject takes all the room there is, no more of it is kept: so it is with all that is kept here.
        """
        with self._lock:
            if block not in known.blocks and self._has_room(known, counts.size):
                known.blocks[block] = counts

    def keep_edge(self, known: Known, block: int, edge: Edge) -> None:
        """Remember a minute of a block in the place of another one."""
        with self._lock:
            gone = [block] if len(known.edges) < _MOST_EDGES else list(known.edges)  # of windows that began long ago
            self._shrink(known, [known.edges.pop(number) for number in gone if number in known.edges])
            if self._has_room(known, edge.size):
                known.edges[block] = edge

    def keep_hour(self, known: Known, hour: int, counts: HourCounts) -> None:
        """Remember an hour's counts in the place of former ones."""
        with self._lock:
            self._shrink(known, [known.hours.pop(hour)] if hour in known.hours else [])
            if self._has_room(known, counts.size):
                known.hours[hour] = counts

    def keep_array(self, known: Known, window: Window, counts: CountsArray) -> None:
        """Remember a window's counts in the place of former ones, or of the window asked for longest ago."""
        with self._lock:
            if window not in known.arrays and len(known.arrays) >= _MOST_ARRAYS:
                self._shrink(known, [known.arrays.pop(next(iter(known.arrays)))])
            self._shrink(known, [known.arrays.pop(window)] if window in known.arrays else [])
            if self._has_room(known, counts.size):
                known.arrays[window] = counts

    def forget_gone(self, known: Known, present: Collection[int], oldest: int, since: int) -> None:
        """Forget blocks that are gone: of hours before the `oldest` (µs), or from `since` on and not `present`."""
        gone: list[tuple[int, BlockCounts]] = []
        left: set[int] = set()
        for block, counts in list(known.blocks.items()):
            if counts.hour + HOUR <= oldest or (counts.hour >= since and block not in present):
                gone.append((block, counts))
            else:
                left.add(counts.hour)
        past = [hour for hour in list(known.hours) if hour not in left]
        with self._lock:
            self._shrink(known, [counts for block, counts in gone if known.blocks.pop(block, None) is not None])
            self._shrink(known, [known.hours.pop(hour) for hour in past if hour in known.hours])

    def _has_room(self, known: Known, size: int) -> bool:
        """Whether so many bytes more fit, and are counted: other subjects, asked for longest ago, make room."""
        if self._known.get(known.subject) is not known:  # it was dropped meanwhile
            return False
        while self.size + size > self._most:
            oldest = next(iter(self._known))
            if oldest != known.subject:
                self._drop(oldest)
            elif len(self._known) == 1:
                return False
            else:
                self._known.move_to_end(oldest)
        known.size += size
        self.size += size
        return True

    def _shrink(self, known: Known, gone: Sequence[_Sized]) -> None:
        """Count no more what has been taken away; a subject that was dropped was so with all it had."""
        if self._known.get(known.subject) is known:
            freed = sum(one.size for one in gone)
            known.size -= freed
            self.size -= freed

    def _drop(self, subject: Subject) -> None:
        self.size -= self._known.pop(subject).size
