"""What the transport hands to the agents: one fetched batch of one partition."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from schema.decoding import Record
from schema.events import Decoded, Event, Source
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
    """How one topic's records become deltas."""

    decode: Callable[[Source, Sequence[Record]], Decoded[Event]]
    fold: Callable[[Sequence[Event]], Deltas]

    def folded(self, batch: FetchedBatch, packer: Packer) -> FoldedBatch:
        """All that a batch writes; pure, and the same whoever does it."""
        decoded = self.decode(batch.source, batch.records)
        counts = Counter(decoded.counts)
        counts["messages"] += len(batch.records)
        counts["events"] += len(decoded.events)
        for _, reject in decoded.rejects:
            counts[f"reject.{reject.reason}"] += 1
        return FoldedBatch(
            source=batch.source,
            start=batch.start,
            end=batch.end,
            end_offset=max(batch.end, batch.end_offset),
            last=last_record(batch.records[-1]) if batch.records else None,
            rows=packer.pack(self.fold(decoded.events)),
            rejects=decoded.rejects,
            counts=+counts,
        )
