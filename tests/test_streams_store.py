"""The commit protocol by its steps (see `streams.store`); neither split nor order of events shows in the tables."""

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import Any, NamedTuple

import pytest
from events import Traffic
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import streams.store
from schema.blocks import Decompressor, unpack_entries
from schema.decoding import decode_edge, decode_functions
from schema.errors import StoreRetired
from schema.events import EdgeEvent, Invocation, PlacedReject, Source
from schema.histogram import decode, encode
from schema.messages import Reject
from schema.tables import migrate
from schema.timestamps import DAY
from schema.url_blocks import unpack_urls
from streams.adding import KEPT_REJECT_BYTES, KEPT_REJECTS
from streams.batch import FetchedBatch, Topic
from streams.fold import fold_edge, fold_invocations
from streams.packing import Packer, Rows
from streams.store import FoldedBatch, LastRecord, Position, Store, is_transient

NOW = 1_750_000_000_123_456
EDGE, FUNCTIONS = Source("log-1", "edge", 0), Source("log-1", "functions", 0)
LOCK = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN IMMEDIATE');"
LOCK += "print('locked', flush=True); sys.stdin.readline(); db.execute('ROLLBACK')"
POSITION = "log, topic, partition, next_offset, last_offset, last_timestamp, last_crc, end_offset, applied_at, gaps"
CRASH = """
import os, sys, pathlib
from streams.store import *
store = Store(pathlib.Path(sys.argv[1]), lambda: 1)
store._db.set_trace_callback(lambda statement: os.kill(os.getpid(), 9) if statement == sys.argv[2] else None)
batch = FoldedBatch(Source("log-1", "edge", 0), 0, 5, 5, LastRecord(4, 1, 1), counts={"messages": 5})
print(store.apply(batch), flush=True)
os.kill(os.getpid(), 9)
"""


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes | None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return migrate(tmp_path)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    with closing(Store(path, lambda: NOW)) as store:
        store.open_positions({EDGE: 0, FUNCTIONS: 0})
        yield store


def folded(start: int, end: int, source: Source = EDGE) -> FoldedBatch:
    """A batch with something for every table."""
    messages = [m for m in Traffic(start, NOW, "edge", "functions").messages(200) if m.topic == source.topic]
    records = [Received(start + n, m.timestamp_ms, m.value) for n, m in enumerate(messages[: end - start])]
    topic: Topic[Any] = (
        Topic(decode_edge, fold_edge) if source.topic == "edge" else Topic(decode_functions, fold_invocations)
    )
    return topic.folded(FetchedBatch(source, start, end, end, 1, records), Packer())


def dump(path: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}  # noqa: S608


def rows(path: Path, select: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(select).fetchall()


def test_steps_1_to_5_write_all_of_a_batch_and_its_position(path: Path, store: Store) -> None:
    for source, tables in (
        (EDGE, ("entry_blocks", "url_blocks", "origin_hits", "rejects")),
        (FUNCTIONS, ("invocations",)),
    ):
        batch = folded(0, 80, source)
        assert store.apply(batch)
        written = dump(path)
        assert all(written[table] for table in tables)
        assert batch.last is not None
        position = (*source, 80, *batch.last, 80, NOW, "[]")
        assert position in rows(path, f"SELECT {POSITION} FROM positions")  # noqa: S608
        assert {(source.topic, *counter) for counter in batch.counts.items()} <= set(written["counters"])


def test_step_2_a_retired_generation_takes_nothing(path: Path, store: Store) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE store SET retired = 1")
    before = dump(path)
    for write in (
        lambda: store.apply(folded(0, 5)),
        lambda: store.open_positions({Source("log-2", "edge", 0): 0}),
        lambda: store.note_gap(EDGE, 0, 7),
        lambda: store.add_dictionary(b"x"),
        lambda: store.accept_recreation("log", "edge"),
    ):
        with pytest.raises(StoreRetired, match=r"freshet-1\.db was replaced"):
            write()
    assert dump(path) == before


def test_step_3_a_batch_that_starts_elsewhere_writes_nothing_at_all(path: Path, store: Store) -> None:
    assert store.apply(folded(0, 5))
    before = dump(path)
    for start, end in ((0, 5), (0, 9), (4, 9), (6, 9), (5 + 2**40, 9 + 2**40)):
        assert not store.apply(folded(start, end))
    for source in (Source("log-1", "edge", 1), Source("log-2", "edge", 0)):
        assert not store.apply(FoldedBatch(source, 5, 9, 9, counts={"messages": 4}))
    assert dump(path) == before
    assert store.apply(folded(5, 9))


@pytest.mark.parametrize("rows", [1, 3, 4, 35, 36, 256, 293, 700])
def test_as_many_rows_as_a_batch_has_are_added_to_those_there(path: Path, store: Store, rows: int) -> None:
    """They go in statements of 256, 32, 4 and 1; each is added once, to its own."""
    hits = [("p", f"https://{number}.test", 60, 0, 1, number + 1) for number in range(rows)]
    times = [("p", f"f{number}", 60, 0, *(1,) * 11, encode({number: 1})) for number in range(rows)]
    for turn in range(2):
        assert store.apply(FoldedBatch(EDGE, turn, turn + 1, 2, rows=Rows(invocations=times, origin_hits=hits)))
    stored = dump(path)
    assert sorted(row[-1] for row in stored["origin_hits"]) == [2 * (number + 1) for number in range(rows)]
    found = {row[1]: (row[4], decode(row[-1])) for row in stored["invocations"]}
    assert found == {f"f{number}": (2, [(number, 2)]) for number in range(rows)}


def test_step_3_lets_one_of_two_workers_apply_a_batch(path: Path) -> None:
    batch = folded(0, 60)
    together, applied = Barrier(2), list[bool]()

    def work() -> None:
        with opened(path) as store:
            together.wait()
            applied.append(store.apply(batch))

    workers = [Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(applied) == [False, True]
    assert ("edge", "messages", 60) in dump(path)["counters"]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (FoldedBatch(EDGE, 0, 5, 5, rows=Rows(invocations=[("p", "f") + (None,) * 14])), sqlite3.IntegrityError),
        (FoldedBatch(EDGE, 0, 5, 5, rows=Rows(url_blocks=[(1, 2, 3, None)])), sqlite3.IntegrityError),
        (FoldedBatch(EDGE, 0, 5, 5, rejects=[PlacedReject(2**63, Reject(0, "not_json", b"x"))]), OverflowError),
        (FoldedBatch(EDGE, 0, 5, 5, counts={"a": 1, "b": 2**63}), OverflowError),
    ],
)
def test_step_4_an_error_in_the_middle_leaves_nothing(
    path: Path, store: Store, broken: FoldedBatch, error: type[Exception]
) -> None:
    before = dump(path)
    with pytest.raises(error) as raised:
        store.apply(broken)
    assert not is_transient(raised.value)
    assert dump(path) == before
    assert store.apply(folded(0, 5))


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT", "never"])
def test_step_5_is_where_a_killed_workers_batch_is_there(path: Path, store: Store, statement: str) -> None:
    before = dump(path)
    command = [sys.executable, "-c", CRASH, str(path), statement]
    worker = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (worker.returncode, worker.stderr) == (-9, "")
    if statement == "never":
        assert (worker.stdout, dump(path)["counters"]) == ("True\n", [("edge", "messages", 5)])
        assert store.open_positions({EDGE: 0}) == {EDGE: Position(5, LastRecord(4, 1, 1))}
    else:
        assert (worker.stdout, dump(path)) == ("", before)
        assert store.apply(folded(0, 5))


def test_a_partitions_position_is_made_at_the_seek_and_kept(path: Path, store: Store) -> None:
    new = Source("log-1", "edge", 7)
    assert store.open_positions({new: 40, EDGE: 3}) == {new: Position(40, None), EDGE: Position(0, None)}
    assert store.apply(FoldedBatch(new, 40, 45, 50, LastRecord(44, 1_700_000_000_000, 0xFFFF_FFFF)))
    assert store.apply(FoldedBatch(new, 45, 47, 50))  # offsets without records
    assert store.open_positions({new: 1}) == {new: Position(47, LastRecord(44, 1_700_000_000_000, 0xFFFF_FFFF))}
    assert rows(path, "SELECT end_offset, applied_at FROM positions WHERE partition = 7") == [(50, NOW)]


def test_a_gap_is_stepped_over_and_remembered(path: Path, store: Store) -> None:
    assert store.apply(FoldedBatch(EDGE, 0, 5, 5, LastRecord(4, 1, 1)))
    store.note_gap(EDGE, 5, 9)
    store.note_gap(EDGE, 5, 8)  # no longer there
    store.note_gap(EDGE, 9, 12)
    assert store.open_positions({EDGE: 0}) == {EDGE: Position(12, None)}
    assert rows(path, "SELECT gaps FROM positions WHERE topic = 'edge'") == [(f"[[5,9,{NOW}],[9,12,{NOW}]]",)]
    assert store.apply(FoldedBatch(EDGE, 12, 13, 13))


def test_rejects_are_bounded_in_number_and_bytes_and_their_counters_are_not(path: Path, store: Store) -> None:
    many = [PlacedReject(offset, Reject(-1, "not_json", b"x" * 5000)) for offset in range(KEPT_REJECTS + 500)]
    assert store.apply(FoldedBatch(EDGE, 0, 10_500, 10_500, rejects=many, counts={"reject.not_json": len(many)}))
    assert rows(path, "SELECT count(*), min(offset), max(length(data)) FROM rejects") == [
        (KEPT_REJECTS, 500, KEPT_REJECT_BYTES)
    ]
    few = [PlacedReject(10_500, Reject(index, "future", b"{}")) for index in range(3)]
    assert store.apply(FoldedBatch(EDGE, 10_500, 10_501, 10_501, rejects=few, counts={"reject.future": 3}))
    assert rows(path, "SELECT count(*), min(offset) FROM rejects") == [(KEPT_REJECTS, 503)]
    assert rows(path, "SELECT element, reason, data FROM rejects ORDER BY id DESC LIMIT 1") == [(2, "future", b"{}")]
    assert rows(path, "SELECT name, count FROM counters ORDER BY name") == [
        ("reject.future", 3),
        ("reject.not_json", 10_500),
    ]


def test_a_mark_that_is_there_already_stays(path: Path) -> None:
    """As in a replay: the marks are copied, and a batch without a time of its own is applied at another time."""
    batch = FoldedBatch(EDGE, 0, 5, 5, largest_timestamp=7)
    with opened(path) as store:
        assert store.apply(batch)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE positions SET next_offset = 0")
    with closing(Store(path, lambda: NOW + DAY)) as store:
        assert store.apply(batch)
    assert rows(path, 'SELECT "offset", largest_timestamp, marked_at FROM marks') == [(5, 7, NOW)]


def test_the_first_dictionary_stays_and_recreations_are_counted_by_topic(path: Path, store: Store) -> None:
    assert store.dictionary() == (0, None)
    with opened(path) as other:
        assert other.add_dictionary(b"first") == (1, b"first")
    assert store.add_dictionary(b"second") == store.dictionary() == (1, b"first")
    assert [store.accept_recreation("c", topic) for topic in ("edge", "edge", "functions")] == [1, 2, 1]
    assert store.recreations("c") == {"edge": 2, "functions": 1}
    assert store.recreations("other") == {}


def test_a_database_that_another_process_has_locked_is_a_passing_failure(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.store, "_BUSY_SECONDS", 0.05)
    with opened(path) as store:
        command = [sys.executable, "-c", LOCK, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(sqlite3.OperationalError, match="locked") as error:
                store.apply(folded(0, 5))
            assert is_transient(error.value)
            holder.communicate("\n")
        assert store.apply(folded(0, 5))


def test_a_full_disk_is_a_passing_failure_that_leaves_nothing(path: Path, store: Store) -> None:
    before = dump(path)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full") as error:
        store.apply(folded(0, 80))
    assert is_transient(error.value)
    assert dump(path) == before
    store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert store.apply(folded(0, 80))


def test_what_time_does_not_mend_is_no_passing_failure(store: Store) -> None:
    store._db.execute("PRAGMA query_only = 1")
    with pytest.raises(sqlite3.OperationalError, match="readonly") as error:
        store.apply(folded(0, 5))
    assert not is_transient(error.value)
    with pytest.raises(sqlite3.OperationalError, match="no such table") as error:
        store._db.execute("SELECT * FROM missing")
    assert not is_transient(error.value)
    assert not any(
        map(is_transient, (ValueError(), StoreRetired(), sqlite3.OperationalError(), sqlite3.IntegrityError()))
    )


def test_a_bucket_takes_its_first_time_after_records_without_one(path: Path, store: Store) -> None:
    times = (None, 5_000, None, 3_000, 9_499)
    for start, time in enumerate(times):
        delta = fold_invocations([Invocation(NOW, "p", "", 200, time)])
        assert store.apply(FoldedBatch(FUNCTIONS, start, start + 1, 5, rows=Packer().pack(delta)))
    select = "SELECT DISTINCT count, timed_count, sum_time, min_time, max_time FROM invocations"
    assert rows(path, select) == [(5, 3, 17_499, 3_000, 9_499)]


def content(path: Path) -> dict[str, Any]:
    """What the tables say, however it was cut into blocks."""
    decompress = Decompressor().decompress
    entries, hits = Counter[Any](), Counter[Any]()
    for project, first, last, count, payload in rows(
        path, "SELECT project, min_timestamp, max_timestamp, count, payload FROM entry_blocks"
    ):
        block = unpack_entries(decompress(payload), count, payload)
        assert (first, last) == (block[0].timestamp, block[-1].timestamp)
        entries.update((project, entry) for entry in block)
    for first, last, count, payload in rows(
        path, "SELECT min_timestamp, max_timestamp, count, payload FROM url_blocks"
    ):
        found = [(run.project, run.origin, hit) for run in unpack_urls(decompress(payload)) for hit in run.hits()]
        times = [hit.timestamp for _, _, hit in found]
        assert (first, last, count) == (min(times), max(times), len(times))
        hits.update(found)
    tables = {name: sorted(rows(path, f"SELECT * FROM {name}")) for name in ("invocations", "origin_hits")}  # noqa: S608
    return {**tables, "entries": entries, "hits": hits}


def applied(parts: Sequence[tuple[Sequence[EdgeEvent], Sequence[Invocation]]]) -> dict[str, Any]:
    """What a new store says after these batches, applied in their order."""
    packer = Packer()
    with TemporaryDirectory() as folder:
        path = migrate(Path(folder))
        with opened(path) as store:
            for start, (requests, invocations) in enumerate(parts):
                for source, deltas in ((EDGE, fold_edge(requests)), (FUNCTIONS, fold_invocations(invocations))):
                    assert store.apply(FoldedBatch(source, start, start + 1, len(parts), rows=packer.pack(deltas)))
        return content(path)


@given(st.integers(0, 2**32), st.integers(1, 12), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None, phases=[Phase.reuse, Phase.generate])  # shrinking would take minutes
def test_a_fold_of_any_split_and_order_gives_the_same_answers(seed: int, batches: int, random: Random) -> None:
    traffic = Traffic(seed, NOW, "edge", "functions")
    messages = traffic.messages(300)
    records = [Received(offset, message.timestamp_ms, message.value) for offset, message in enumerate(messages)]
    requests = decode_edge(EDGE, [records[n] for n, m in enumerate(messages) if m.topic == "edge"]).events
    invocations = decode_functions(FUNCTIONS, [records[n] for n, m in enumerate(messages) if m.topic != "edge"]).events
    parts: list[tuple[list[EdgeEvent], list[Invocation]]] = [([], []) for _ in range(batches)]
    for request in random.sample(requests, len(requests)):
        random.choice(parts)[0].append(request)
    for invocation in random.sample(invocations, len(invocations)):
        random.choice(parts)[1].append(invocation)
    assert len(requests) > 100 < len(invocations) * 3
    assert applied(parts) == applied([(requests, invocations)])
