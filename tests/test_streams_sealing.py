"""Sealing changes how events are cut into blocks and nothing else, whoever else is at work on the store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_streams_store import EDGE, content, rows

from schema.events import EdgeEvent
from schema.retention import ENTRIES, URLS
from schema.tables import migrate
from schema.timestamps import DAY, HOUR
from streams.content import digests
from streams.fold import fold_edge
from streams.packing import Packer
from streams.sealing import Sealer, commit
from streams.store import FoldedBatch, Store

NOW = 1_750_000_000_000_000 // DAY * DAY + 12 * HOUR
OVER = NOW - 2 * HOUR
"""An hour that has been over for a while, when it is NOW."""
ALL_SEALED = "SELECT min(sealed) FROM (SELECT sealed FROM entry_blocks UNION ALL SELECT sealed FROM url_blocks)"


def request(timestamp: int, number: int = 0, project: str = "p") -> EdgeEvent:
    url = f"https://{project}.host/rest/{number % 7}"
    data = f'{{"n":{number}}}'.encode()
    return EdgeEvent(timestamp, project, url, f"https://{project}.host", number % 4, b"", data)


class Work:
    """A store and who works on it, with a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.path = migrate(folder)
        self.store = Store(self.path, lambda: self.now)
        self.store.open_positions({EDGE: 0})
        self.sealer = Sealer(self.path, lambda: self.now, close_every=0)
        self._offset = 0

    def apply(self, events: Sequence[EdgeEvent]) -> None:
        """One batch."""
        start, self._offset = self._offset, self._offset + 1
        packed = Packer(*self.store.dictionary()).pack(fold_edge(events, self.store.horizons()))
        assert self.store.apply(FoldedBatch(EDGE, start, start + 1, start + 1, rows=packed))

    def seal(self) -> int:
        """Rounds until there is nothing left to merge; returns how many blocks were replaced."""
        replaced = 0
        while some := self.round():
            replaced += some
        return replaced

    def round(self) -> int:
        """One round."""
        before = self.sealer._round
        replaced = 0
        while self.sealer._round is before:
            replaced += commit(self.store, self.sealer.prepare())
        return replaced

    def counts(self, table: str) -> list[int]:
        return [count for (count,) in rows(self.path, f"SELECT count FROM {table} ORDER BY id")]  # noqa: S608


@contextmanager
def working(folder: Path) -> Iterator[Work]:
    work = Work(folder)
    try:
        yield work
    finally:
        work.sealer.close()
        work.store.close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with working(tmp_path) as work:
        yield work


def test_an_hour_that_is_over_is_sealed_into_full_blocks(work: Work) -> None:
    for number in range(300):
        work.apply([request(OVER + number * 1_000_000, number)])
    before = content(work.path), digests(work.path, {})
    assert work.seal() >= 600
    assert (content(work.path), digests(work.path, {})) == before
    assert rows(work.path, ALL_SEALED) == [(1,)]
    assert sum(work.counts(ENTRIES)) == sum(work.counts(URLS)) == 300
    assert len(work.counts(ENTRIES)) <= 5
    assert len(work.counts(URLS)) == 1
    assert work.seal() == 0
