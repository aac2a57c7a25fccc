"""Where a partition goes on."""

from typing import NamedTuple

from schema.errors import LogError
from schema.events import Source
from streams.store import LastRecord


class Seek(NamedTuple):
    """Where a partition goes on: the `number` of this seek, the next offset wanted, and the last record applied.

    That record is fetched once more, where the log still has it, to see that the log is the same.
    """

    number: int
    source: Source
    next_offset: int
    last: LastRecord | None

    @property
    def read_from(self) -> int:
        """The offset at which fetching begins."""
        return self.next_offset if self.last is None else self.last.offset


def recreated(source: Source, why: str) -> LogError:
    """The error for a topic that was deleted and created anew, with the remedy."""
    return LogError(
        f"{source}: {why}. The topic was deleted and created anew, or compacted. What was applied stays; "
        f"to read the new log from its start, run: freshet accept-recreated {source.topic}"
    )
