"""What the transport hands to the agents: one fetched batch of one partition."""

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

from schema.decoding import IsDuplicate, Record
from schema.events import Decoded, EdgeEvent, Event, Source
from schema.parts import Parts, Redacted, parts_of_message
from schema.redaction import redactor
from schema.retention import NOTHING_EXPIRED, Horizons
from streams.duplicates import RecentIds
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


class _Sample(NamedTuple):
    """A record to train a dictionary on."""

    offset: int
    timestamp: int
    value: bytes


def last_record(record: Record) -> LastRecord:
    """What is remembered of a record in order to know its log again."""
    return LastRecord(record.offset, record.timestamp, zlib.crc32(record.value or b""))


@dataclass(frozen=True, slots=True)
class Topic(Generic[Event]):
    """How one topic's records become deltas: `decode_edge` or `decode_functions`, and the fold of its events."""

    decode: Callable[..., Decoded[Event]]
    fold: Callable[[Sequence[Event], Horizons], Deltas]
    redacted: tuple[str, ...] = ()

    def redacting(self, kinds: Collection[str]) -> "Topic[Event]":
        """The topic with these kinds taken out of its records (`schema.redaction.KINDS`)."""
        redact = redactor(kinds)
        if redact is None:
            return self

        def decode(
            source: Source,
            records: Sequence[Record],
            parts: Parts = parts_of_message,
            is_duplicate: IsDuplicate | None = None,
        ) -> Decoded[Event]:
            return self.decode(source, records, Redacted(parts, redact), is_duplicate)

        return replace(self, decode=decode, redacted=tuple(kinds))

    def folded(
        self,
        batch: FetchedBatch,
        packer: Packer,
        horizons: Horizons = NOTHING_EXPIRED,
        cut: int = 0,
        recent: RecentIds | None = None,
    ) -> FoldedBatch:
        """All that a batch writes; pure, and the same whoever does it.

        Events before `cut` (µs) are left out: a replay keeps what the tables held of them (`streams.replay`). So are
        duplicates, where there are `recent` ids as of the batch's start, which are those as of its end afterwards.
        """
        if recent is not None:
            recent.begin(batch.start)
        is_duplicate = recent.is_duplicate if recent is not None else None
        decoded = self.decode(batch.source, batch.records, is_duplicate=is_duplicate)
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
            id_changes=recent.end(batch.end) if recent is not None else None,
        )

    def samples(self, batch: FetchedBatch) -> Sequence[Record]:
        """Records of entries to train a dictionary on, which holds parts of them: redacted ones, where any are."""
        if not self.redacted:
            return batch.records
        events = self.decode(batch.source, batch.records).events
        return [_Sample(batch.start, 0, event.data) for event in events if isinstance(event, EdgeEvent)]
