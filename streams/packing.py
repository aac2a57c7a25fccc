"""From deltas to rows: the part of a write that needs no lock (histograms encoded, blocks compressed)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schema import histogram
from schema.blocks import LEVEL, NO_DICTIONARY, SEALED_LEVEL, Compressor, Entry, pack_cut_entries, pack_entries
from schema.url_blocks import pack_urls
from streams.fold import Deltas

URL_LEVEL = 6  # zstd's, of sealed blocks: a fifth smaller than level 1; read far more often than written
_LARGEST_SUM = (1 << 63) - 1  # µs: sums stay there, 292,000 years of execution, rather than become inexact

Row = tuple[Any, ...]


@dataclass(slots=True)
class Rows:
    """The rows that one batch adds, by table, their columns in the order of the statements in `streams.adding`."""

    invocations: list[Row] = field(default_factory=list)
    origin_hits: list[Row] = field(default_factory=list)
    entry_blocks: list[Row] = field(default_factory=list)
    url_blocks: list[Row] = field(default_factory=list)


class Packer:
    """Packs deltas with one version of the entries' dictionary. Not to be shared by threads."""

    def __init__(
        self, dictionary_id: int = NO_DICTIONARY, dictionary: bytes | None = None, url_level: int = LEVEL
    ) -> None:
        self.dictionary_id = dictionary_id
        self._entries = Compressor(dictionary)
        self._urls = Compressor(level=url_level)

    def pack(self, deltas: Deltas) -> Rows:
        """The rows of a batch's deltas."""
        rows = Rows()
        for key, d in deltas.invocations.items():
            counts = (d.count, d.error_count, *d.classes, d.timed_count)
            rows.invocations.append(
                (*key, *counts, min(d.sum_time, _LARGEST_SUM), d.min_time, d.max_time, histogram.encode(d.cells))
            )
        rows.origin_hits = [(*key, hits) for key, hits in deltas.origin_hits.items()]
        for project, entries in deltas.entry_blocks:
            rows.entry_blocks.append(self.entry_block(project, entries))
        for hour, runs in deltas.url_blocks:
            times = [time for _, _, urls in runs for of_url in urls.values() for time in of_url]
            packed = pack_urls(hour, runs)
            rows.url_blocks.append(self.url_block(hour + min(times), hour + max(times), len(times), packed))
        return rows

    def entry_block(self, project: str, entries: Sequence[Entry]) -> Row:
        """The row of entries of one project and UTC hour in ascending order of time."""
        return self._entry_row(project, entries, self._entries.compress(pack_entries(entries)))

    def _entry_row(self, project: str, entries: Sequence[Entry], payload: bytes) -> Row:
        return (project, entries[0].timestamp, entries[-1].timestamp, len(entries), self.dictionary_id, payload)

    def url_block(self, first: int, last: int, count: int, packed: bytes) -> Row:
        """The row of a packed block of `count` requests from `first` to `last` (µs)."""
        return (first, last, count, self._urls.compress(packed))


class SealedPacker(Packer):
    """Packs what is to be sealed as well: slowly, for what is seldom written again."""

    def __init__(self, dictionary_id: int = NO_DICTIONARY, dictionary: bytes | None = None) -> None:
        super().__init__(dictionary_id, dictionary, URL_LEVEL)
        self._sealed = Compressor(dictionary, SEALED_LEVEL)

    def sealed_entry_block(self, project: str, entries: Sequence[Entry]) -> Row:
        """The row of a sealed block of entries, with UUIDs cut out."""
        payload, ids = pack_cut_entries(entries)
        return self._entry_row(project, entries, self._sealed.compress(payload) + ids)
