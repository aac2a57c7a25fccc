"""Recent entries as one array: the same as row by row, whatever is kept, within the memory given."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from oracle import Record
from test_api_reader import NOW, fill, in_another_process, reading
from test_api_remembered import seal

from api import entry_arrays
from api.bodies import body, row_count
from api.deadline import Deadline
from api.entry_arrays import Written, WrittenBlocks, recent_entries_array
from api.recent_entries import recent_entries
from schema.blocks import Decompressor
from schema.errors import QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.tables import store_path
from schema.timestamps import HOUR, SECOND

ODD = ("ü", 'say "hi"', "", "\u2028", "😀", "a\\b", "x" * 500)
PRUNE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("DELETE FROM entry_blocks")
db.commit()
"""
METADATA: tuple[Any, ...] = ({}, {"a": [1, 2.50, "é"]}, [{"b": None}], None, "text", {"c": {"d": "😀"}})


def plain(_: int, payload: bytes) -> bytes:
    return Decompressor().decompress(payload)


def events(random: Random, count: int, project: str = "p") -> list[bytes]:
    """Entries that share times and ids by the dozen, over three hours."""
    return [
        json.dumps(
            {
                "id": random.choice(["a", "b", f"{number}"]),
                "timestamp": NOW - random.choice([0, 1, SECOND, random.randrange(3 * HOUR)]),
                "project": project,
                "event_message": random.choice(ODD),
                "metadata": random.choice(METADATA),
                "n": number,
            },
            ensure_ascii=random.random() < 0.5,
        ).encode()
        for number in range(count)
    ]


def store(data: Path, batches: list[list[bytes]]) -> None:
    offset = 0
    records: list[list[Record]] = []
    for batch in batches:
        records.append([Record("edge", 0, offset + place, NOW // 1000, value) for place, value in enumerate(batch)])
        offset += len(batch)
    fill(data, records)


def one_by_one(db: apsw.Connection, after: int, until: int | None, limit: int, project: str = "p") -> list[object]:
    rows = recent_entries(db, plain, Deadline(10), project, after, until, limit)
    return [
        {"id": name, "timestamp": timestamp, "event_message": message, "metadata": json.loads(metadata)}
        for _, timestamp, name, message, metadata, _ in rows
    ]


def opened(data: Path) -> apsw.Connection:
    return apsw.Connection(str(store_path(data, 1)), flags=apsw.SQLITE_OPEN_READONLY)


@pytest.mark.parametrize("most_bytes", [0, 20_000, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_an_array_holds_what_is_answered_row_by_row(tmp_path: Path, seed: int, most_bytes: int) -> None:
    random = Random(seed)
    store(tmp_path, [events(random, random.choice([1, 30, 90])) for _ in range(8)] + [events(random, 9, "other")])
    written = WrittenBlocks(most_bytes)
    with closing(opened(tmp_path)) as db:
        for _ in range(60):
            after = NOW - random.choice([0, 1, SECOND, random.randrange(4 * HOUR), 4 * HOUR])
            until = random.choice([None, NOW, NOW - 1, NOW - random.randrange(3 * HOUR)])
            limit = random.choice([1, 7, 100, 1000])
            [(array, count)] = recent_entries_array(db, plain, Deadline(10), written, 1, "p", after, until, limit)
            assert json.loads(array) == one_by_one(db, after, until, limit)
            assert count == len(json.loads(array))
            assert written.bytes <= most_bytes


def test_a_block_is_read_once_as_long_as_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, [events(Random(1), 50), events(Random(2), 50, "other")])
    read: list[int] = []
    whole: Callable[..., entry_arrays.Block] = entry_arrays._read

    def reading(db: apsw.Connection, decompress: Callable[[int, bytes], bytes], number: int) -> entry_arrays.Block:
        read.append(number)
        return whole(db, decompress, number)

    monkeypatch.setattr(entry_arrays, "_read", reading)
    written = WrittenBlocks(1 << 20)
    with closing(opened(tmp_path)) as db:
        first = recent_entries_array(db, plain, Deadline(10), written, 1, "p", 0, None, 100)
        blocks = len(read)
        assert blocks > 0
        assert recent_entries_array(db, plain, Deadline(10), written, 1, "p", 0, None, 100) == first
        assert len(read) == blocks
        assert recent_entries_array(db, plain, Deadline(10), written, 2, "p", 0, None, 100) == first
        assert len(read) == 2 * blocks, "another generation's blocks are others"


def test_a_block_that_is_larger_than_the_memory_leaves_the_others_there() -> None:
    small, large = (Written(NOW, "a", b"x"),), (Written(NOW, "b", bytes(20_000)),)
    written = WrittenBlocks(10_000)
    written.keep(1, 1, small)
    written.keep(1, 2, large)
    assert written.get(1, 1) is small
    assert written.get(1, 2) is None
    assert 0 < written.bytes <= 10_000


def test_what_is_sealed_or_pruned_meanwhile_is_not_answered_from_memory(tmp_path: Path) -> None:
    store(tmp_path, [events(Random(3), 40) for _ in range(3)])
    written = WrittenBlocks(1 << 20)
    with closing(opened(tmp_path)) as db:
        (numbers,) = {tuple(row) for row in db.execute("SELECT min(id), max(id) FROM entry_blocks")}

        def array() -> list[object]:
            [(found, _)] = recent_entries_array(db, plain, Deadline(10), written, 1, "p", 0, None, 1000)
            rows: list[object] = json.loads(found)
            return rows

        before = array()
        assert len(before) == 120
        seal(tmp_path)
        assert not list(db.execute("SELECT id FROM entry_blocks WHERE id BETWEEN ? AND ?", numbers))
        assert array() == before
        in_another_process(PRUNE, store_path(tmp_path, 1))
        assert array() == []


def test_reading_past_the_time_limit_is_given_up(tmp_path: Path) -> None:
    store(tmp_path, [events(Random(4), 5)])
    with closing(opened(tmp_path)) as db, pytest.raises(QueryTimeout):
        recent_entries_array(db, plain, Deadline(0), WrittenBlocks(0), 1, "p", 0, None, 100)


def test_entries_that_are_more_than_sqlite_takes_as_a_value_are_answered(tmp_path: Path) -> None:
    message = "m" * (14 << 20)
    events = [{"id": f"{n}", "timestamp": NOW - n, "project": "p", "event_message": message} for n in range(5)]
    store(tmp_path, [[json.dumps(event).encode()] for event in events])
    parameters = {"project": "p", "project_tier": None, "iso_timestamp_start": None, "iso_timestamp_end": None}
    query = load_saved_queries()["logs.all"]
    with reading(tmp_path) as reader:
        answer = reader.run(query, parameters, None, NOW, 30)
    rows = json.loads(body(query, answer))["result"]
    assert [(row["id"], len(row["event_message"])) for row in rows] == [(f"{n}", len(message)) for n in range(5)]
    assert row_count(query, answer) == 5
