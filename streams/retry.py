"""Retrying rejects: what can be decoded now is folded into the tables, exactly once (docs/decisions/0010-retry.md).

Of one message, in one transaction: its rejects that are decoded now are deleted, what they come to is added. Whoever
finds one of them gone, because another was faster, writes nothing and begins that message anew with those left. What is
decoded is what a replay would decode: the message in the log, or where that no longer has it, the bytes kept.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schema.clock import Clock
from schema.events import Decoded, Source
from schema.messages import WHOLE_MESSAGE
from schema.parts import OneElement, SomeElements
from streams.adding import add
from streams.batch import Topic
from streams.packing import Packer
from streams.rejects import KeptReject, with_ids
from streams.retry_log import Log, Message
from streams.store import Store

CUT = "the log no longer has its message, and its bytes are not kept whole"
NOT_READ = "its topic is not read"


@dataclass(slots=True)
class Retried:
    """What a retry came to, each by reason: rejects folded and rejects that still are.

    `new` are elements of messages rejected whole before; `impossible` rejects that can't be decoded again, by why;
    `events` how many were folded; `gone` how many rejects another took, or were pruned meanwhile.
    """

    folded: Counter[str] = field(default_factory=Counter)
    still: Counter[str] = field(default_factory=Counter)
    new: Counter[str] = field(default_factory=Counter)
    impossible: Counter[str] = field(default_factory=Counter)
    events: int = 0
    gone: int = 0


class Retry:
    """Retries rejects of one store, message by message. `topics` has what becomes of each topic's records."""

    def __init__(self, store: Store, log: Log, topics: dict[str, Topic[Any]], clock: Clock) -> None:
        self._store = store
        self._log = log
        self._topics = topics
        self._clock = clock
        self._packer = Packer(*store.dictionary({kind for topic in topics.values() for kind in topic.redacted}))
        self.retried = Retried()

    async def message(self, source: Source, ids: Sequence[int]) -> None:
        """Retry rejects of one message. Raises StoreRetired, and sqlite3.Error where the write fails."""
        count, rejects = len(ids), with_ids(self._store.connection, ids)
        topic = self._topics.get(source.topic)
        if rejects and topic is None:
            self.retried.impossible[NOT_READ] += len(rejects)
        elif rejects and topic is not None:
            message = await self._log.message(source, rejects[0].offset, rejects[0].timestamp)
            if message is None:
                whole = [reject for reject in rejects if reject.whole]
                self.retried.impossible += Counter({CUT: len(rejects) - len(whole)})
                count, rejects = count - len(rejects) + len(whole), whole
            while rejects and not self._fold(topic, message, rejects):
                rejects = with_ids(self._store.connection, [reject.id for reject in rejects])
        self.retried.gone += count - len(rejects)

    def _fold(self, topic: Topic[Any], message: Message | None, rejects: list[KeptReject]) -> bool:
        """Fold those of a message's rejects that are decoded now; False, and nothing is done, where one is gone."""
        decoded, now_taken = _decode(topic, message, rejects)
        source, folded_from = rejects[0].source, rejects[0].folded_from
        events = [event for event in decoded.events if folded_from is None or event.timestamp < folded_from]
        deltas = topic.fold(events, self._store.horizons())
        counts = decoded.counts + Counter(f"retried.{reject.reason}" for reject in now_taken)
        counts["events"] += len(decoded.events)
        new = [] if rejects[0].element != WHOLE_MESSAGE else decoded.rejects
        counts += Counter(f"reject.{placed.reject.reason}" for placed in new)
        counts += Counter({f"expired.{kind}": count for kind, count in deltas.expired.items()})
        rows = self._packer.pack(deltas)
        if now_taken:
            with self._store.transaction() as db:
                if len(with_ids(db, [reject.id for reject in rejects])) < len(rejects):
                    return False
                db.executemany("DELETE FROM rejects WHERE id = ?", [(reject.id,) for reject in now_taken])
                add(db, source, rows, new, counts, self._clock())
                if events:
                    largest = max(event.timestamp for event in events)
                    self._store.note_largest(db, source, rejects[0].offset, largest)
        self.retried.events += len(events)
        self.retried.new.update(placed.reject.reason for placed in new if now_taken)
        self.retried.folded.update(reject.reason for reject in now_taken)
        self.retried.still.update(reject.reason for reject in rejects if reject not in now_taken)
        return True


def _decode(
    topic: Topic[Any], message: Message | None, rejects: list[KeptReject]
) -> tuple[Decoded[Any], list[KeptReject]]:
    """What rejects of one message come to, and those of them that are none any more."""
    source = rejects[0].source
    if rejects[0].element == WHOLE_MESSAGE:
        decoded = topic.decode(source, [message or _kept(rejects[0])])
        failed = any(placed.reject.index == WHOLE_MESSAGE for placed in decoded.rejects)
        return (Decoded(), []) if failed else (decoded, rejects)
    if message is not None:
        some = SomeElements({reject.element for reject in rejects})
        decoded = topic.decode(source, [message], some)
        seen = some.seen
    else:
        decoded, seen = Decoded(), {reject.element for reject in rejects}
        for reject in rejects:
            one = topic.decode(source, [_kept(reject)], OneElement(reject.element))
            decoded.events += one.events
            decoded.rejects += one.rejects
            decoded.counts += one.counts
    good = seen - {placed.reject.index for placed in decoded.rejects}
    now_taken = [reject for reject in rejects if reject.element in good]
    if now_taken and len(now_taken) < len(rejects):
        return _decode(topic, message, now_taken)  # so that nothing of the others is counted
    return decoded, now_taken


def _kept(reject: KeptReject) -> Message:
    return Message(reject.offset, reject.timestamp, reject.data)
