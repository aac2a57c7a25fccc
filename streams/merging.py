"""Merging: what many small blocks of one UTC hour hold, in as few full ones as it takes. Pure."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from schema.blocks import ENTRIES_PER_BLOCK, Entry
from schema.url_blocks import URLS_PER_BLOCK, Requested, UrlBlock, UrlTimes, pack_urls

ENTRY_BYTES_PER_BLOCK = 4 << 20  # of records: blocks of fewer than 128 larger ones
_Runs = Mapping[tuple[str, str], UrlTimes]


def merge_entries(blocks: Sequence[Sequence[Entry]]) -> Iterator[list[Entry]]:
    """The entries of blocks of one project, in ascending order of time, evenly cut into blocks that are about full."""
    entries = [entry for block in blocks for entry in block]
    entries.sort(key=lambda entry: entry.timestamp)
    size = sum(len(entry.data) for entry in entries)
    parts = max(_parts(len(entries), ENTRIES_PER_BLOCK), _parts(size, ENTRY_BYTES_PER_BLOCK))
    rest = iter(entries)
    for count in _even(len(entries), parts):
        yield list(islice(rest, count))


def merge_arrivals(blocks: Sequence[Sequence[Entry]], came_in: Sequence[Sequence[int]]) -> list[int]:
    """In the order of `merge_entries`, the block in which each entry came; `came_in` tells it by block and entry."""
    times = (entry.timestamp for block in blocks for entry in block)
    pairs = sorted(zip(times, (came for block in came_in for came in block), strict=True), key=itemgetter(0))
    return [came for _, came in pairs]


def merge_urls(blocks: Sequence[UrlBlock]) -> Iterator[tuple[int, int, int, bytes]]:
    """The requests of blocks of one hour, by project and origin, evenly cut into blocks that are about full.

    Each as the times of its first and its last request in µs, their number, and its packed payload.
    """
    hour = blocks[0].hour
    merged: dict[tuple[str, str], dict[Requested, array[int]]] = {}
    for block in blocks:
        for run in block.runs():
            urls = merged.setdefault(block.keys[run.number], {})
            for url, times in run.urls_and_times():
                if url in urls:
                    urls[url].extend(times)
                else:
                    urls[url] = times
    total = sum(block.count for block in blocks)
    for runs in _cut(merged, _even(total, _parts(total, URLS_PER_BLOCK))):
        offsets = [offset for urls in runs.values() for times in urls.values() for offset in times]
        packed = pack_urls(hour, ((project, origin, urls) for (project, origin), urls in runs.items()))
        yield hour + min(offsets), hour + max(offsets), len(offsets), packed


def _cut(runs: _Runs, sizes: Iterator[int]) -> Iterator[_Runs]:
    """Cut runs, in their order, into as many requests each as the sizes say."""
    room = next(sizes)
    part: dict[tuple[str, str], dict[Requested, Sequence[int]]] = {}
    for key in sorted(runs):
        for url, times in runs[key].items():
            start = 0
            while start < len(times):
                if not room:
                    yield part
                    part, room = {}, next(sizes)
                some = times[start : start + room]
                part.setdefault(key, {})[url] = some
                start += len(some)
                room -= len(some)
    yield part


def _parts(total: int, full: int) -> int:
    return -(-total // full)


def _even(total: int, parts: int) -> Iterator[int]:
    """So many sizes that differ by one at most and come to the total."""
    for part in range(parts):
        yield total * (part + 1) // parts - total * part // parts
