"""What the transport hands to the agents: one fetched batch of one partition."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from schema.decoding import Record
from schema.events import Decoded, Event, Source
from schema.retention import NOTHING_EXPIRED, Horizons
from streams.fold import Deltas
from streams.packing import Packer
from streams.store import FoldedBatch, LastRecord


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Records of offsets [start, end) of one partition.

    `start` is the end of the batch delivered before, or the position sought; `end` the consumer's position after the
    fetch. Transaction markers, aborted and compacted records leave holes between them, so there may be no records at
    all. `end_offset` is the log's end as the broker last told it; `seek` numbers the seek since which it was fetched.
    """

    source: Source
    start: int
    end: int
    end_offset: int
    seek: int
    records: Sequence[Record]


def last_record(record: Record) -> LastRecord:
    """What is remembered of a record in order to know its log again."""
    return LastRecord(record.offset, record.timestamp, zlib.crc32(record.value or b""))


@dataclass(frozen=True, slots=True)
class Topic(Generic[Event]):
    """How one topic's records become deltas: `decode_edge` or `decode_functions`, and the fold of its events."""

    decode: Callable[..., Decoded[Event]]
    fold: Callable[[Sequence[Event], Horizons], Deltas]

    def folded(
        self, batch: FetchedBatch, packer: Packer, horizons: Horizons = NOTHING_EXPIRED, cut: int = 0
    ) -> FoldedBatch:
        """All that a batch writes; pure, and the same whoever does it.

        Events before `cut` (µs) are left out: a replay keeps what the tables held of them (`streams.replay`).
        """
        decoded = self.decode(batch.source, batch.records)
        events = [event for event in decoded.events if event.timestamp >= cut] if cut else decoded.events
        deltas = self.fold(events, horizons)
        counts = Counter(decoded.counts)
        counts["messages"] += len(batch.records)
        counts["events"] += len(decoded.events)
        for placed in decoded.rejects:
            counts[f"reject.{placed.reject.reason}"] += 1
        for kind, count in deltas.expired.items():
            counts[f"expired.{kind}"] += count
        return FoldedBatch(
            source=batch.source,
            start=batch.start,
            end=batch.end,
            end_offset=max(batch.end, batch.end_offset),
            last=last_record(batch.records[-1]) if batch.records else None,
            largest_timestamp=max((event.timestamp for event in decoded.events), default=None),
            rows=packer.pack(deltas),
            rejects=decoded.rejects,
            counts=+counts,
        )
