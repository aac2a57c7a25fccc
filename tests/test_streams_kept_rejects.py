"""Which rejects a replay of a cut log takes over, and what it notes of them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from schema.events import PlacedReject, Source
from schema.messages import Reject
from schema.tables import make_store
from streams.adding import KEPT_REJECTS
from streams.kept_rejects import Replayed, take_over_rejects
from streams.store import FoldedBatch, Store

NOW, CUT = 1_750_000_000_123_456, 1_750_032_000_000_000
FIRST, SECOND, OTHER = Source("log", "edge", 0), Source("log", "edge", 1), Source("former", "edge", 0)
Stores = tuple[Store, Store]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """An old store and a new one."""
    with ExitStack() as stack:
        made = []
        for name in ("old", "new"):
            make_store(tmp_path / name)
            made.append(stack.enter_context(closing(Store(tmp_path / name, lambda: NOW))))
            made[-1].open_positions({FIRST: 0, SECOND: 0, OTHER: 0})
        yield made[0], made[1]


def reject(store: Store, source: Source, places: Sequence[tuple[int, int]], data: bytes = b"{}") -> None:
    start = store.open_positions({source: 0})[source].next_offset
    rejects = [PlacedReject(offset, Reject(element, "too_deep", data), 5) for offset, element in places]
    assert store.apply(FoldedBatch(source, start, start + 1, start + 1, rejects=rejects))


def taken_over(stores: Stores, cut: int = CUT) -> dict[tuple[Source, int, int], int | None]:
    """What the new store keeps after a replay of the first two partitions from offset 10: the cut noted by place."""
    old, new = stores
    replayed = {FIRST: Replayed(10, cut), SECOND: Replayed(10, cut)}
    with closing(sqlite3.connect(old.path)) as source, new.transaction() as target:
        take_over_rejects(source, target, "edge", replayed)
    rows = new.connection.execute('SELECT log, topic, partition, "offset", element, folded_from FROM rejects')
    return {(Source(*row[:3]), row[3], row[4]): row[5] for row in rows}


def test_what_the_replay_has_read_and_not_rejected_is_noted(stores: Stores) -> None:
    old, new = stores
    reject(old, FIRST, [(9, 0), (10, 0), (11, 0), (11, 2), (12, -1)])
    reject(old, SECOND, [(10, 1)])
    reject(old, OTHER, [(30, 0)])
    reject(new, FIRST, [(10, 0), (11, 2), (12, 0), (12, 1)])
    expected = {
        **{(FIRST, 9, 0): None, (FIRST, 10, 0): None, (FIRST, 11, 0): CUT, (FIRST, 11, 2): None, (FIRST, 12, -1): CUT},
        **{(SECOND, 10, 1): CUT, (OTHER, 30, 0): None},
    }
    assert taken_over(stores) == expected
    assert taken_over(stores) == expected  # by a replay that is resumed
    with old.transaction() as db:
        db.execute('DELETE FROM rejects WHERE "offset" = 11')  # by a retry meanwhile
    assert taken_over(stores) == {place: noted for place, noted in expected.items() if place[1] != 11}


def test_what_the_replay_rejects_too_has_the_bytes_that_it_keeps(stores: Stores) -> None:
    """It may redact what the old store did not."""
    old, new = stores
    reject(old, FIRST, [(9, 0), (10, 0), (11, 0)], b'{"token":"abc"}')
    reject(new, FIRST, [(10, 0)], b"REDACTED: 15 bytes")
    for _ in range(2):  # the second by a replay that is resumed
        taken_over(stores)
        rows = new.connection.execute('SELECT "offset", size, data FROM rejects ORDER BY id').fetchall()
        assert rows == [(9, 15, b'{"token":"abc"}'), (10, 18, b"REDACTED: 15 bytes"), (11, 15, b'{"token":"abc"}')]


def test_a_later_replay_with_an_earlier_cut_counts_and_a_later_one_does_not(stores: Stores) -> None:
    old, _ = stores
    reject(old, FIRST, [(10, 0), (11, 0)])
    with old.transaction() as db:
        db.execute("UPDATE rejects SET folded_from = ?", (CUT,))
    assert set(taken_over(stores, CUT + 1).values()) == {CUT}
    with stores[1].transaction() as db:
        db.execute("DELETE FROM rejects")
    assert set(taken_over(stores, CUT - 1).values()) == {CUT - 1}


def test_where_the_replay_made_more_than_are_kept_what_cannot_be_told_goes(stores: Stores) -> None:
    old, new = stores
    reject(old, FIRST, [(9, 0), (10, 0), (20, 0), (21, 0), (22, 0)])
    reject(old, SECOND, [(9, 0), (10, 0)])
    reject(new, FIRST, [(number, 0) for number in range(10, 20)])
    reject(new, FIRST, [(20, element) for element in range(1, KEPT_REJECTS)])
    reject(new, FIRST, [(22, 0)])
    assert taken_over(stores) == {(FIRST, 9, 0): None, (FIRST, 21, 0): CUT, (FIRST, 22, 0): None, (SECOND, 9, 0): None}
