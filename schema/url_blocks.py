"""The blocks of URLs that patterns are searched in (design section 3, figures in docs/decisions/0007).

A block holds requests of one UTC hour, sorted into runs of one project and origin. A run has each of its distinct pairs
(URL, family set) once, with the times of its requests: about half of the URLs of real traffic are repeated, so a search
reads half the text and decides each URL once. All text is one piece, a URL a line, which one call of RE2 searches.

The payload, integers little-endian: the hour's start in µs (8 bytes), the number of requests, of distinct URLs, and of
bytes in the directory (4 each); the directory in MessagePack; of each request its µs since the hour's start (4); of
each URL the number of its requests (4), its family set (1), and its length with the newline behind it (4); the text.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from schema.blocks import pack_numbers, unpack_numbers

URLS_PER_BLOCK = 5000
_HEAD = 20
Requested = tuple[int, bytes]
"""A family set and a URL in UTF-8."""
UrlTimes = Mapping[Requested, Sequence[int]]
"""The requests of a run: of each distinct URL their times in µs since the hour's start."""


class Hit(NamedTuple):
    """A request in a URL run: time in µs, family set, and URL in UTF-8."""

    timestamp: int
    families: int
    url: bytes


class _Directory(msgspec.Struct, array_like=True, gc=False):
    """Of each run: project, origin, number of requests and of URLs, bytes of text with a newline, and `lines`."""

    projects: list[str]
    origins: list[str]
    requests: list[int]
    urls: list[int]
    sizes: list[int]
    lines: list[bool]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Directory).decode


class UrlBlock:
    """A decompressed payload; only what is asked for is taken out of it.

    `hour` is its start in µs, `keys` the project and origin of each run in ascending order, `lines` whether no URL of
    the run holds a newline, so that each is a line of the text. `starts` is where in `payload` each run's text starts,
    and at last where one more would: there is a newline between any two.
    """

    __slots__ = ("_counts_at", "_directory", "_offsets", "_urls", "count", "hour", "keys", "lines", "payload", "starts")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        (self.hour,) = unpack_numbers("q", payload[:8])
        self.count, self._urls, size = unpack_numbers("I", payload[8:_HEAD])
        offsets_at = _HEAD + size
        self._counts_at = offsets_at + 4 * self.count
        self._directory = directory = _decode(memoryview(payload)[_HEAD:offsets_at])
        self._offsets: array[int] | None = None
        self.keys = list(zip(directory.projects, directory.origins, strict=True))
        self.lines = directory.lines
        text_at = self._counts_at + 9 * self._urls
        self.starts = list(accumulate(directory.sizes, initial=text_at))

    def text_end(self, number: int) -> int:
        """Where in the payload the text of a run ends."""
        return self.starts[number + 1] - 1

    def runs(self) -> Iterator["Run"]:
        """All runs, in ascending order of project and origin."""
        directory = self._directory
        requests, urls = accumulate(directory.requests), accumulate(directory.urls)
        last_request = last_url = 0
        for number, (next_request, next_url) in enumerate(zip(requests, urls, strict=True)):
            yield Run(self, number, slice(last_request, next_request), slice(last_url, next_url))
            last_request, last_url = next_request, next_url

    @property
    def offsets(self) -> "array[int]":
        """Of each request its time in µs since the hour's start, run by run and URL by URL."""
        if self._offsets is None:
            self._offsets = unpack_numbers("I", self.payload[self._counts_at - 4 * self.count : self._counts_at])
        return self._offsets

    def counts(self, urls: slice) -> "array[int]":
        """Of some URLs the number of requests."""
        at = self._counts_at
        return unpack_numbers("I", self.payload[at + 4 * urls.start : at + 4 * urls.stop])

    def families(self, urls: slice) -> bytes:
        """Of some URLs the family sets."""
        at = self._counts_at + 4 * self._urls
        return self.payload[at + urls.start : at + urls.stop]

    def lengths(self, urls: slice) -> "array[int]":
        """Of some URLs the lengths in bytes, with the newline behind each."""
        at = self._counts_at + 5 * self._urls
        return unpack_numbers("I", self.payload[at + 4 * urls.start : at + 4 * urls.stop])

    @property
    def all_urls(self) -> slice:
        """The URLs of all runs."""
        return slice(0, self._urls)

    def url_starts(self) -> list[int]:
        """Where in the payload each URL starts, and at last where one more would."""
        return list(accumulate(self.lengths(self.all_urls), initial=self.starts[0]))

    def url_requests(self) -> list[int]:
        """The place in `offsets` of each URL's first request, and at last their number."""
        return list(accumulate(self.counts(self.all_urls), initial=0))


class Run(NamedTuple):
    """The requests of one project and origin in a block, and which of its requests and URLs they are."""

    block: UrlBlock
    number: int
    requests: slice
    urls: slice

    @property
    def project(self) -> str:
        """The project of its events."""
        return self.block.keys[self.number][0]

    @property
    def origin(self) -> str:
        """The origin that its URLs begin with."""
        return self.block.keys[self.number][1]

    def urls_and_times(self) -> Iterator[tuple[Requested, "array[int]"]]:
        """Of each distinct URL its family set, its bytes, and the times of its requests since the hour's start."""
        block, offsets = self.block, self.block.offsets
        request, start = self.requests.start, block.starts[self.number]
        columns = block.counts(self.urls), block.families(self.urls), block.lengths(self.urls)
        for count, families, length in zip(*columns, strict=True):
            yield (families, block.payload[start : start + length - 1]), offsets[request : request + count]
            request += count
            start += length

    def hits(self) -> Iterator[Hit]:
        """The requests, URL by URL."""
        hour = self.block.hour
        for (families, url), times in self.urls_and_times():
            for time in times:
                yield Hit(hour + time, families, url)


def unpack_urls(payload: bytes) -> list[Run]:
    """The runs of a decompressed payload."""
    return list(UrlBlock(payload).runs())


def pack_urls(hour: int, runs: Iterable[tuple[str, str, UrlTimes]]) -> bytes:
    """The payload, not yet compressed, of runs (project, origin, URLs), ascending; `hour` is its start in µs."""
    directory = _Directory([], [], [], [], [], [])
    offsets, counts, lengths = array("I"), array("I"), array("I")
    families = bytearray()
    texts: list[bytes] = []
    for project, origin, urls in runs:
        before = len(offsets)
        for times in urls.values():
            offsets.extend(times)
            counts.append(len(times))
        texts.append(text := b"\n".join([url for _, url in urls]))
        families += bytes([members for members, _ in urls])
        lengths.extend([len(url) + 1 for _, url in urls])
        directory.projects.append(project)
        directory.origins.append(origin)
        directory.requests.append(len(offsets) - before)
        directory.urls.append(len(urls))
        directory.sizes.append(len(text) + 1)
        directory.lines.append(text.count(b"\n") == len(urls) - 1)
    head = _encode(directory)
    return b"".join(
        (
            pack_numbers("q", [hour]),
            pack_numbers("I", [len(offsets), len(counts), len(head)]),
            head,
            pack_numbers("I", offsets),
            pack_numbers("I", counts),
            families,
            pack_numbers("I", lengths),
            b"\n".join(texts),
        )
    )
