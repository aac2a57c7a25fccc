"""From deltas to rows: the part of a write that needs no lock (histograms encoded, blocks compressed)."""

from dataclasses import dataclass, field
from typing import Any

from schema import histogram
from schema.blocks import NO_DICTIONARY, Compressor, pack_entries, pack_urls
from streams.fold import Deltas

_LARGEST_SUM = (1 << 63) - 1  # µs: sums stay there, 292,000 years of execution, rather than become inexact

Row = tuple[Any, ...]


@dataclass(slots=True)
class Rows:
    """The rows that one batch adds, by table, their columns in the order of the statements in `streams.store`."""

    invocations: list[Row] = field(default_factory=list)
    origin_hits: list[Row] = field(default_factory=list)
    entry_blocks: list[Row] = field(default_factory=list)
    url_blocks: list[Row] = field(default_factory=list)


class Packer:
    """Packs deltas with one version of the entries' dictionary. Not to be shared by threads."""

    def __init__(self, dictionary_id: int = NO_DICTIONARY, dictionary: bytes | None = None) -> None:
        self.dictionary_id = dictionary_id
        self._entries = Compressor(dictionary)
        self._urls = Compressor()

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
            payload = self._entries.compress(pack_entries(entries))
            span = (entries[0].timestamp, entries[-1].timestamp)
            rows.entry_blocks.append((project, *span, len(entries), self.dictionary_id, payload))
        for runs in deltas.url_blocks:
            times = [hit.timestamp for _, _, hits in runs for hit in hits]
            rows.url_blocks.append((min(times), max(times), len(times), self._urls.compress(pack_urls(runs))))
        return rows
