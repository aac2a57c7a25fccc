"""What one worker does with its partitions: where it seeks, and which batches it applies."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from events import Traffic
from faust.types import TP

import streams.store
from schema.blocks import Decompressor, unpack_entries
from schema.decoding import decode_edge, decode_functions
from schema.errors import LogError
from schema.events import Source
from schema.settings import Settings
from schema.tables import control_path, migrate, store_path
from streams.batch import FetchedBatch, Topic, last_record
from streams.fold import fold_edge, fold_invocations
from streams.ingest import Ingest
from streams.packing import Packer
from streams.seeks import Seek
from streams.store import Store

NOW = 1_750_000_000_123_456
EDGE, FUNCTIONS = TP("edge", 0), TP("functions", 2)
EDGE_SOURCE = Source("log-1.0", "edge", 0)
TOPIC = Topic(decode_edge, fold_edge)
PATIENCE = 30.0  # seconds
LOCK = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN IMMEDIATE');"
LOCK += "print('locked', flush=True); sys.stdin.readline(); db.execute('ROLLBACK')"


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes | None


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(streams.store, "_BUSY_SECONDS", 0.05)
    return migrate(tmp_path)


@pytest.fixture
def ingest(path: Path) -> Iterator[Ingest]:
    with closing(Store(path, lambda: NOW)) as store:
        store.accept_recreation("log-1", "functions")
    settings = Settings(data=path.parent, topic_edge="edge", topic_functions="functions")
    with closing(Ingest(settings, lambda: NOW, "log-1")) as ingest:
        yield ingest


def seek(ingest: Ingest, beginning: int = 0, end: int = 100) -> Seek:
    return asyncio.run(ingest.seeks({EDGE: beginning}, {EDGE: end}))[EDGE]


def fetched(start: int, end: int, seek: int = 1, values: list[bytes] | None = None) -> FetchedBatch:
    if values is None:
        values = [json.dumps({"timestamp": NOW, "project": "p", "id": f"{at}"}).encode() for at in range(start, end)]
    records = [Received(start + number, NOW // 1000, value) for number, value in enumerate(values)]
    return FetchedBatch(EDGE_SOURCE, start, end, 100, seek, records)


def apply(ingest: Ingest, batch: FetchedBatch) -> bool:
    return asyncio.run(asyncio.wait_for(ingest.prepare(TOPIC, batch)(), PATIENCE))


def rows(path: Path, select: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(select).fetchall()


def entries(path: Path) -> int:
    return int(rows(path, "SELECT coalesce(sum(count), 0) FROM entry_blocks")[0][0])


def position(path: Path) -> int:
    return int(rows(path, "SELECT next_offset FROM positions WHERE topic = 'edge'")[0][0])


def test_a_new_partition_is_read_from_the_logs_beginning(path: Path, ingest: Ingest) -> None:
    seeks = asyncio.run(ingest.seeks({EDGE: 7, FUNCTIONS: 0}, {EDGE: 9, FUNCTIONS: 0}))
    functions = Source("log-1.1", "functions", 2)
    assert seeks == {EDGE: Seek(1, EDGE_SOURCE, 7, None), FUNCTIONS: Seek(1, functions, 0, None)}
    assert (ingest.applied, ingest.ends) == ({EDGE: 7, FUNCTIONS: 0}, {EDGE: 9, FUNCTIONS: 0})
    assert position(path) == 7


def test_a_known_partition_goes_on_where_the_store_stands_and_reads_the_last_record_again(ingest: Ingest) -> None:
    seek(ingest)
    batch = fetched(0, 5)
    assert apply(ingest, batch)
    assert ingest.applied == {EDGE: 5}
    again = seek(ingest)
    assert again == Seek(2, EDGE_SOURCE, 5, last_record(batch.records[-1]))
    assert again.read_from == 4


def test_the_last_record_is_not_looked_for_where_the_log_no_longer_has_it(ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 5))
    assert seek(ingest, beginning=4).last is not None
    again = seek(ingest, beginning=5)
    assert (again.next_offset, again.last, again.read_from) == (5, None, 5)


def test_a_batch_without_records_moves_the_position_alone(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 3, values=[]))
    assert (position(path), entries(path), ingest.applied) == (3, 0, {EDGE: 3})


def test_a_logs_end_is_never_told_to_be_before_what_was_read_of_it(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, replace(fetched(0, 5), end_offset=3))
    assert rows(path, "SELECT next_offset, end_offset FROM positions") == [(5, 5)]


def test_a_batch_fetched_before_the_last_seek_is_left_out(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    early = fetched(0, 5, seek=1)
    seek(ingest)
    assert apply(ingest, early)  # no reason to seek once more
    assert (position(path), entries(path), ingest.applied) == (0, 0, {EDGE: 0})
    assert apply(ingest, fetched(0, 5, seek=2))
    assert entries(path) == 5


def test_a_batch_of_a_partition_that_was_never_sought_is_left_out(path: Path, ingest: Ingest) -> None:
    assert apply(ingest, fetched(0, 5))
    assert rows(path, "SELECT * FROM positions") == []


def test_a_batch_that_another_worker_has_applied_is_refused(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    with closing(Store(path, lambda: NOW)) as other:
        assert other.apply(TOPIC.folded(fetched(0, 3), Packer()))
    assert not apply(ingest, fetched(0, 5))
    assert (position(path), entries(path)) == (3, 3)
    assert seek(ingest).next_offset == 3
    assert apply(ingest, fetched(3, 5, seek=2))
    assert entries(path) == 5


def test_a_batch_after_one_that_was_lost_is_refused(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    assert not apply(ingest, fetched(5, 9))
    assert (position(path), entries(path)) == (0, 0)


def test_a_position_beyond_the_logs_end_is_a_log_created_anew(ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 50))
    assert seek(ingest, end=50).next_offset == 50
    with pytest.raises(LogError, match=r"edge\[0\]: offset 50 is next, but the log ends at 49") as error:
        seek(ingest, end=49)
    assert "freshet accept-recreated edge" in str(error.value)


def test_a_log_cut_past_the_position_leaves_a_gap_that_is_noted(
    path: Path, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 5))
    assert seek(ingest, beginning=9) == Seek(2, EDGE_SOURCE, 9, None)
    assert "edge[0]: offsets 5 to 8 are gone from the log; going on at 9" in caplog.messages
    assert rows(path, "SELECT next_offset, gaps FROM positions") == [(9, f"[[5,9,{NOW}]]")]
    assert apply(ingest, fetched(9, 12, seek=2))
    assert entries(path) == 8


def test_a_fetch_is_a_sign_of_life_and_tells_the_logs_end(ingest: Ingest) -> None:
    before = ingest.last_fetch
    ingest.fetched({})
    assert ingest.last_fetch > before
    assert ingest.ends == {}
    ingest.fetched({EDGE: [fetched(0, 5)]})
    assert ingest.ends == {EDGE: 100}


class Release(logging.Handler):
    """Has another process let go of its lock at the first attempt that failed."""

    def __init__(self, holder: "subprocess.Popen[str]") -> None:
        super().__init__()
        self._holder = holder
        self.attempts = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.attempts += "database is locked: trying again" in record.getMessage()
        if self.attempts == 1:
            self._holder.communicate("\n", timeout=30)


def test_a_write_is_tried_again_while_another_process_holds_the_database(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    command = [sys.executable, "-c", LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        release = Release(holder)
        logging.getLogger("freshet.ingest").addHandler(release)
        try:
            assert apply(ingest, fetched(0, 5))
        finally:
            logging.getLogger("freshet.ingest").removeHandler(release)
    assert release.attempts == 1
    assert (position(path), entries(path)) == (5, 5)


def test_what_time_does_not_mend_is_raised_and_nothing_applied(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    rows(path, "DROP TABLE url_blocks")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        apply(ingest, fetched(0, 5))
    assert (position(path), entries(path), ingest.applied) == (0, 0, {EDGE: 0})


def test_when_another_generation_takes_its_place_the_worker_seeks_and_goes_on_there(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 5))
    new = store_path(path.parent, 2)
    swap(path)
    with closing(Store(new, lambda: NOW)) as store:
        store.open_positions({EDGE_SOURCE: 5})
    assert not apply(ingest, fetched(5, 9))  # it was packed for the other generation, with its dictionary
    assert (position(path), position(new), entries(new)) == (5, 5, 0)
    assert seek(ingest) == Seek(2, EDGE_SOURCE, 5, None)
    assert apply(ingest, fetched(5, 9, seek=2))
    assert (position(path), entries(path)) == (5, 5)
    assert (position(new), entries(new)) == (9, 4)


def test_pruning_goes_on_where_another_generation_has_taken_the_place(path: Path, ingest: Ingest) -> None:
    asyncio.run(ingest.prune())
    swap(path)
    asyncio.run(ingest.prune())
    asyncio.run(ingest.prune())
    assert rows(store_path(path.parent, 2), "SELECT count(*) > 0 FROM horizons") == [(1,)]


def swap(path: Path) -> None:
    """What a replay does at its end: retire the old generation, and name the new one."""
    with closing(sqlite3.connect(control_path(path.parent))) as db, db:
        db.execute("UPDATE generation SET current = 2")
    migrate(path.parent)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE store SET retired = 1")


def test_a_batch_of_nothing_but_poison_leaves_its_rejects_and_its_position(path: Path, ingest: Ingest) -> None:
    seek(ingest)
    assert apply(ingest, fetched(0, 3, values=[b"\xff", b"plain text", b"17"]))
    assert rows(path, "SELECT offset, reason FROM rejects ORDER BY offset") == [
        *((0, "not_utf8"), (1, "not_json"), (2, "not_object"))
    ]
    assert (position(path), entries(path)) == (3, 0)


def test_blocks_from_before_and_after_the_dictionary_name_the_one_they_need(path: Path, ingest: Ingest) -> None:
    seek(ingest, end=5000)
    messages = [
        message.value for message in Traffic(1, NOW, "edge", "functions").messages(5000) if message.topic == "edge"
    ]
    values = [value for value in messages if value and len(value) < 5000][:2500]
    for start in range(0, 2500, 500):
        assert apply(ingest, fetched(start, start + 500, values=values[start : start + 500]))
    ((identifier, content),) = rows(path, "SELECT id, content FROM dictionaries")
    decompressors = {0: Decompressor(), identifier: Decompressor(content)}
    blocks = rows(path, "SELECT dictionary, count, payload FROM entry_blocks ORDER BY id")
    assert {block[0] for block in blocks} == decompressors.keys()
    assert sorted(blocks, key=lambda block: block[0]) == blocks
    for dictionary, count, payload in blocks:
        assert len(unpack_entries(decompressors[dictionary].decompress(payload), count, payload)) == count
    with closing(Store(path, lambda: NOW)) as store:
        assert store.dictionary() == (identifier, content)


def test_the_functions_topic_is_applied_alike(path: Path, ingest: Ingest) -> None:
    asyncio.run(ingest.seeks({FUNCTIONS: 0}, {FUNCTIONS: 1}))
    value = json.dumps({"timestamp": NOW, "metadata": {"project_ref": "p", "response": {"status_code": 500}}}).encode()
    batch = FetchedBatch(ingest.source(FUNCTIONS), 0, 1, 1, 1, [Received(0, NOW // 1000, value)])
    assert asyncio.run(ingest.prepare(Topic(decode_functions, fold_invocations), batch)())
    assert rows(path, "SELECT DISTINCT project, function, count, error_count FROM invocations") == [("p", "", 1, 1)]


def test_a_partition_does_not_look_complete_before_its_first_batch(path: Path, ingest: Ingest) -> None:
    seek(ingest, end=100)
    assert rows(path, "SELECT next_offset, end_offset FROM positions") == [(0, 100)]
    assert apply(ingest, fetched(0, 5))
    assert rows(path, "SELECT next_offset, end_offset FROM positions") == [(5, 100)]
