"""Searching URL blocks for a pattern: which of their requests it matches, but for those whose origin has decided."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from api.patterns import Pattern
from schema.url_blocks import UrlBlock

Look = Callable[[], None]
"""Called between two pieces of a search; raises where it is to be given up."""
_SMALLEST_PIECE, _LARGEST_PIECE = 16 << 10, 256 << 10  # bytes of text in one call of RE2, which nothing interrupts
_QUICK, _SLOW = 0.001, 0.005  # seconds of a call: smaller or larger pieces next time
_URLS_BETWEEN_LOOKS = 64
Matched = tuple[int, int, int]
"""A family set, and the span of the matched requests' places in `UrlBlock.offsets`."""


class Origins(dict[str, bool]):
    """Whether a pattern is found in an origin's own text, whatever follows; asked once of each."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self._pattern = pattern

    def decide(self, origins: Sequence[str]) -> None:
        """Ask for all of these at once."""
        self.update(zip(origins, self._pattern.matching_whatever_follows(origins), strict=True))

    def __missing__(self, origin: str) -> bool:
        decided = self[origin] = self._pattern.matches_whatever_follows(origin.encode())
        return decided


class _Urls(NamedTuple):
    """A block's URLs: where each one's text starts, its family set, and the place of its first request."""

    starts: list[int]
    families: bytes
    requests: list[int]


class Search:
    """One pattern's search, of events of some projects (None: all)."""

    def __init__(self, pattern: Pattern, projects: frozenset[str] | None, look: Look) -> None:
        self.pattern = pattern
        self.origins = Origins(pattern)
        self.projects = projects
        self.look = look
        self._piece = _SMALLEST_PIECE

    def matched(self, block: UrlBlock) -> Iterator[Matched]:
        """The requests of runs in scope and not decided by their origin whose URL the pattern matches."""
        urls: _Urls | None = None
        for first, last, lines in self._stretches(block):
            start, end = block.starts[first], block.text_end(last)
            if not lines:
                urls = urls or _urls(block)
                yield from self._one_by_one(block, urls, start, end)
                continue
            before = -1
            for at in self._lines(block, start, end):
                urls = urls or _urls(block)
                url = bisect_right(urls.starts, at) - 1
                if url != before:  # an empty match at a line's end is found twice
                    yield _request(urls, url)
                before = url

    def matched_between(self, block: UrlBlock, since: int, until: int) -> Iterator[tuple[int, int]]:
        """(time, family set) of all requests in scope that match, decided or not, with since ≤ time < until (µs)."""
        since, until = since - block.hour, until - block.hour
        inside = map(range(since, until).__contains__, block.offsets)  # 30 ns each, in C
        places = list(compress(range(block.count), inside))
        if not places:
            return
        self.look()
        urls = _urls(block)
        for number, place in enumerate(places):
            if number % _URLS_BETWEEN_LOOKS == 0:
                self.look()
            url = bisect_right(urls.requests, place) - 1
            project, origin = block.keys[bisect_right(block.starts, urls.starts[url]) - 1]
            if self.in_scope(project) and (self.origins[origin] or self.pattern.matches(_text(block, urls, url))):
                yield block.hour + block.offsets[place], urls.families[url]

    def in_scope(self, project: str) -> bool:
        """Whether events of a project count."""
        return self.projects is None or project in self.projects

    def _stretches(self, block: UrlBlock) -> Iterator[tuple[int, int, bool]]:
        """Runs to be searched that stand side by side: the first, the last, whether all their URLs are lines."""
        origins, projects = self.origins, self.projects
        if projects is None:
            left_out = [number for number, (_, origin) in enumerate(block.keys) if origins[origin]]
        else:
            keys = enumerate(block.keys)
            left_out = [number for number, (project, origin) in keys if project not in projects or origins[origin]]
        first = 0
        for end in (*left_out, len(block.keys)):
            if first < end:
                if not self.pattern.searches_lines:
                    yield first, end - 1, False
                elif False not in block.lines[first:end]:
                    yield first, end - 1, True
                else:
                    yield from ((number, number, block.lines[number]) for number in range(first, end))
            first = end + 1

    def _lines(self, block: UrlBlock, start: int, end: int) -> Iterator[int]:
        """Places of matches in the payload's text [start, end), whose URLs are lines."""
        payload = block.payload
        view = memoryview(payload)
        while start <= end:  # a URL may be empty
            self.look()
            stop = min(start + self._piece, end)
            if stop < end:
                cut = payload.rfind(b"\n", start, stop)
                stop = cut if cut >= 0 else payload.find(b"\n", stop)
                stop = stop if 0 <= stop < end else end
            began = time.perf_counter()
            for number, at in enumerate(self.pattern.lines(view[start:stop]), 1):
                yield start + at
                if number % _URLS_BETWEEN_LOOKS == 0:
                    self.look()
            self._pace(time.perf_counter() - began)
            start = stop + 1

    def _pace(self, took: float) -> None:
        if took < _QUICK:
            self._piece = min(2 * self._piece, _LARGEST_PIECE)
        elif took > _SLOW:
            self._piece = max(self._piece // 2, _SMALLEST_PIECE)

    def _one_by_one(self, block: UrlBlock, urls: _Urls, start: int, end: int) -> Iterator[Matched]:
        first, last = bisect_left(urls.starts, start), bisect_left(urls.starts, end + 1)
        for url in range(first, last):
            if (url - first) % _URLS_BETWEEN_LOOKS == 0:
                self.look()
            if self.pattern.matches(_text(block, urls, url)):
                yield _request(urls, url)


def _urls(block: UrlBlock) -> _Urls:
    return _Urls(block.url_starts(), block.families(block.all_urls), block.url_requests())


def _request(urls: _Urls, url: int) -> Matched:
    return urls.families[url], urls.requests[url], urls.requests[url + 1]


def _text(block: UrlBlock, urls: _Urls, url: int) -> bytes:
    return block.payload[urls.starts[url] : urls.starts[url + 1] - 1]
