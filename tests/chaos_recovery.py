"""How long it takes after a fault until rows are applied again, for the chaos harness."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

Place = tuple[str, int]
"""(topic, partition)."""
Seconds = defaultdict[str, list[float]]
"""Durations by kind of fault."""


@dataclass
class _Recovery:
    """What is waited for: rows of any partition, then of every partition that there was."""

    kind: str
    before: Mapping[Place, int]
    disturbed: bool
    since: float = field(default_factory=time.monotonic)
    first_seen: bool = False


@dataclass
class Recoveries:
    """Seconds from a fault's end to the first rows applied after it, and to rows of every partition.

    `undisturbed` are those of the latter during which there was no other fault.
    """

    first_rows: Seconds = field(default_factory=lambda: defaultdict(list))
    all_partitions: Seconds = field(default_factory=lambda: defaultdict(list))
    undisturbed: Seconds = field(default_factory=lambda: defaultdict(list))
    awaited: list[_Recovery] = field(default_factory=list)

    def begin(self, kind: str, applied: Mapping[Place, int], *, disturbed: bool) -> None:
        """A fault is over, at these positions; `disturbed` where another one is not."""
        self.awaited.append(_Recovery(kind, applied, disturbed))

    def disturb(self) -> None:
        """Another fault has begun."""
        for recovery in self.awaited:
            recovery.disturbed = True

    def look(self, applied: Mapping[Place, int]) -> None:
        """See what has come about at these positions."""
        now = time.monotonic()
        for recovery in list(self.awaited):
            moved = [applied.get(place, 0) > offset for place, offset in recovery.before.items()]
            took = now - recovery.since
            if any(moved) and not recovery.first_seen:
                recovery.first_seen = True
                self.first_rows[recovery.kind].append(took)
            if moved and all(moved):
                self.awaited.remove(recovery)
                self.all_partitions[recovery.kind].append(took)
                if not recovery.disturbed:
                    self.undisturbed[recovery.kind].append(took)

    def forget(self) -> None:
        """Nothing is written any more: what has not come about can't."""
        self.awaited.clear()
