"""The reader: which file it reads, what it lets a query do, and how long. The store is filled and closed before it."""

import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
from oracle import Record

from api.reader import Reader, Value
from schema import histogram
from schema.clock import system_clock
from schema.decoding import decode_edge, decode_functions
from schema.errors import QueryTimeout, StoreMissing, StoreTooNew
from schema.events import Source
from schema.intervals import USAGE_INTERVALS
from schema.saved_queries import SavedQuery, parse_saved_query
from schema.tables import control_path, make_store, migrate, migrate_control, store_path
from schema.timestamps import DAY, HOUR, SECOND
from streams.batch import FetchedBatch, Topic
from streams.fold import fold_edge, fold_invocations
from streams.packing import Packer
from streams.store import Store

NOW = 1_750_000_000_123_456
LOG = "log"
TOPICS: dict[str, Topic[Any]] = {
    "edge": Topic(decode_edge, fold_edge),
    "functions": Topic(decode_functions, fold_invocations),
}


class Fetched(NamedTuple):
    """A record as a worker fetches it; time in ms."""

    offset: int
    timestamp: int
    value: bytes | None


def fill(data: Path, batches: Iterable[Sequence[Record]], packer: Packer | None = None) -> None:
    """Have a data folder's store apply batches, each of one topic and partition. It is closed when this returns."""
    packer = packer or Packer()
    with closing(Store(migrate(data), system_clock)) as store:
        for records in batches:
            source = Source(LOG, records[0].topic, records[0].partition)
            start = store.open_positions({source: 0})[source].next_offset
            fetched = [Fetched(record.offset, record.timestamp_ms, record.value) for record in records]
            batch = FetchedBatch(source, start, start + 1, start + 1, 1, fetched)
            assert store.apply(TOPICS[source.topic].folded(batch, packer))


@contextmanager
def reading(data: Path) -> Iterator[Reader]:
    """A reader whose files are closed when it is left."""
    reader = Reader(data)
    try:
        yield reader
    finally:
        reader.close()


def query_of(sql: str, **fields: Any) -> SavedQuery:
    """A saved query of the test's own."""
    head = {"name": "mine", **fields}
    return parse_saved_query(Path("mine.sql"), "".join(f"-- {name}: {value}\n" for name, value in head.items()) + sql)


def ask(reader: Reader, sql: str, **parameters: Value) -> list[tuple[Value, ...]]:
    return reader.run(query_of(sql), parameters, None, NOW, 10).rows


def in_another_process(program: str, *args: object) -> None:
    """Run a program that may open a database through sqlite3 while this process has it open through apsw."""
    subprocess.run([sys.executable, "-c", program, *map(str, args)], check=True, timeout=60)


SET_GENERATION = """
import sqlite3, sys
from pathlib import Path
from schema.tables import control_path
data, number = Path(sys.argv[1]), int(sys.argv[2])
with sqlite3.connect(control_path(data)) as db:
    db.execute("UPDATE generation SET current = ?", (number,))
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    migrate(tmp_path)
    return tmp_path


def test_rows_beyond_max_rows_are_cut_from_the_end(data: Path) -> None:
    numbers = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5) SELECT i FROM n"
    for max_rows, expected in ((3, [1, 2, 3]), (5, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])):
        answer = Reader(data).run(query_of(numbers, max_rows=max_rows), {}, None, NOW, 10)
        assert answer[:2] == (("i",), [(number,) for number in expected])


def test_a_query_without_rows_answers_none_of_them(data: Path) -> None:
    assert Reader(data).run(query_of("SELECT 1 AS one WHERE false"), {}, None, NOW, 10).rows == []


def test_now_and_the_parameters_are_known_to_a_query(data: Path) -> None:
    assert ask(Reader(data), "SELECT @now, @text, @nothing, @now", text="a\0é", nothing=None) == [
        (NOW, "a\0é", None, NOW)
    ]


@pytest.mark.parametrize(
    ("micros", "milliseconds"),
    [("0", 0), ("1000", 1), ("1500", 1.5), ("1", 0.001), ("2147483648000", 2**31), ("NULL", None)],
)
def test_milliseconds_are_an_integer_where_whole(data: Path, micros: str, milliseconds: float | None) -> None:
    ((answer,),) = ask(Reader(data), f"SELECT milliseconds({micros})")
    assert (answer, type(answer)) == (milliseconds, type(milliseconds))


def test_every_function_of_saved_queries_can_be_called(data: Path) -> None:
    cells = f"x'{histogram.encode({5: 99, 7: 1}).hex()}'"
    expected: dict[str, tuple[Value, ...]] = {
        f"SELECT percentile({cells}, 95, 5000, 7000), percentile({cells}, 100, 5000, 7000)": (5, 7),
        "SELECT invocation_grain('5min'), invocation_grain(NULL), invocation_grain('7day')": (1, 3600, 86400),
        "SELECT invocation_window_start('1day', @now)": (NOW - NOW % HOUR - DAY,),
        "SELECT tier_retention('PRO'), tier_retention('pro'), tier_retention(NULL)": (7 * DAY, DAY, DAY),
        "SELECT datetime_text(@now)": ("2025-06-15T15:06:40",),
    }
    for word, (span, grain) in USAGE_INTERVALS.items():
        expected[f"SELECT usage_span('{word}'), usage_grain('{word}')"] = (span, grain // SECOND)
    reader = Reader(data)
    for sql, row in expected.items():
        assert ask(reader, sql) == [row]
    assert ask(reader, "SELECT * FROM recent_entries('p', 0, NULL, 9)") == []
    assert ask(reader, "SELECT * FROM request_counts('p', 0, 60)") == []


@pytest.mark.parametrize(
    "statement", ["DELETE FROM counters", "UPDATE store SET retired = 1", "CREATE TABLE t (a)", "DROP TABLE rejects"]
)
def test_a_query_can_not_write(data: Path, statement: str) -> None:
    reader = Reader(data)
    with pytest.raises(apsw.AuthError):
        ask(reader, statement)
    assert ask(reader, "SELECT retired FROM store") == [(0,)]


def test_a_query_past_its_time_limit_is_given_up_and_the_reader_goes_on(data: Path) -> None:
    reader = Reader(data)
    endless = query_of("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    with pytest.raises(QueryTimeout, match=r"longer than 0\.05 s"):
        reader.run(endless, {}, None, NOW, 0.05)
    assert ask(reader, "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT count(*) FROM n") == [
        (100_000,)
    ]


def test_a_failed_query_leaves_no_transaction_behind(data: Path) -> None:
    reader = Reader(data)
    with pytest.raises(apsw.SQLError):
        ask(reader, "SELECT no_such_column FROM store")
    assert ask(reader, "SELECT retired FROM store") == [(0,)]


@pytest.fixture
def two_generations(data: Path) -> Path:
    """A data folder whose second generation counts, and has a counter, and the first has none."""
    with closing(sqlite3.connect(control_path(data))) as db, db:
        db.execute("UPDATE generation SET current = 2")
    with closing(sqlite3.connect(migrate(data))) as db, db:
        db.execute("INSERT INTO counters VALUES ('t', 'in the second', 1)")
    return data


def test_the_reader_follows_the_generation(two_generations: Path) -> None:
    reader = Reader(two_generations)
    assert ask(reader, "SELECT count(*) FROM counters") == [(1,)]
    for number, counters in ((1, 0), (1, 0), (2, 1)):
        in_another_process(SET_GENERATION, two_generations, number)
        assert ask(reader, "SELECT count(*) FROM counters") == [(counters,)]


def test_how_far_the_log_is_applied_is_that_of_the_generation(tmp_path: Path) -> None:
    fill(tmp_path, [[Record("functions", 0, 0, NOW // 1000, b"[]")]])
    make_store(store_path(tmp_path, 2))
    one = query_of("SELECT 1 AS one")
    with reading(tmp_path) as reader:
        assert reader.run(one, {}, None, NOW, 10).complete_until is not None
        in_another_process(SET_GENERATION, tmp_path, 2)
        assert reader.run(one, {}, None, NOW, 10).complete_until is None


def test_the_reader_lets_go_of_the_old_generation(two_generations: Path) -> None:
    reader = Reader(two_generations)
    ask(reader, "SELECT 1")
    in_another_process(SET_GENERATION, two_generations, 1)
    ask(reader, "SELECT 1")
    gc.collect()
    opened = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
    assert [path for path in opened if path.startswith(str(store_path(two_generations, 1)))]
    assert not [path for path in opened if path.startswith(str(store_path(two_generations, 2)))]


def test_a_generation_whose_file_is_not_there_yet_is_missing_until_it_is(data: Path) -> None:
    reader = Reader(data)
    assert ask(reader, "SELECT 1") == [(1,)]
    in_another_process(SET_GENERATION, data, 7)
    with pytest.raises(StoreMissing, match=r"freshet-7\.db is not there yet: start a worker"):
        ask(reader, "SELECT 1")
    in_another_process("import sys, pathlib, schema.tables as t; t.migrate(pathlib.Path(sys.argv[1]))", data)
    assert ask(reader, "SELECT 1") == [(1,)]


def test_before_the_first_worker_the_store_is_missing_and_is_not_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(StoreMissing, match=r"control\.db is not there yet: start a worker"):
        ask(Reader(data), "SELECT 1")
    assert not data.exists()
    migrate_control(data)
    with pytest.raises(StoreMissing, match=r"freshet-1\.db is not there yet: start a worker"):
        ask(Reader(data), "SELECT 1")
    assert not store_path(data, 1).exists()


@pytest.mark.parametrize(
    "statement", ["PRAGMA journal_mode = wal", "CREATE TABLE _sqlite_migrations (migration_set, name)"]
)
def test_while_the_store_is_being_made_it_is_missing(tmp_path: Path, statement: str) -> None:
    migrate_control(tmp_path)
    with closing(sqlite3.connect(store_path(tmp_path, 1))) as db, db:
        db.execute(statement)
    with pytest.raises(StoreMissing):
        ask(Reader(tmp_path), "SELECT 1")


@pytest.mark.parametrize("which", ["control", "store"])
def test_a_store_of_a_newer_version_is_refused_by_name(data: Path, which: str) -> None:
    path = control_path(data) if which == "control" else store_path(data, 1)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO _sqlite_migrations VALUES (NULL, ?, '9999_hence', '')", (f"freshet-{which}",))
    with pytest.raises(StoreTooNew, match=rf"{path.name} was made by a newer Freshet \(it has had 9999_hence\)"):
        ask(Reader(data), "SELECT 1")


@pytest.mark.parametrize(
    "name", ["with space", "what?mode=rwc", "a#b", "100%", "%41", "a&b=c;d", "ünï日", "'quote\"", "a\nb", ":memory:"]
)
def test_a_data_folder_may_have_any_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / name
    migrate(data)
    assert ask(Reader(data), "SELECT retired FROM store") == [(0,)]
    monkeypatch.chdir(tmp_path)
    assert ask(Reader(Path(name)), "SELECT retired FROM store") == [(0,)]


def test_a_connection_that_could_not_be_prepared_is_not_used(tmp_path: Path) -> None:
    fill(tmp_path, [])
    busy = [True]

    class Unlucky(Reader):
        def register(self, db: apsw.Connection) -> None:
            if busy and busy.pop():
                raise apsw.BusyError("database is locked")
            super().register(db)

    reader = Unlucky(tmp_path, hurried=True)
    with pytest.raises(apsw.BusyError):
        ask(reader, "SELECT datetime_text(0)")
    assert ask(reader, "SELECT datetime_text(0)") == [("1970-01-01T00:00:00",)]
    reader.close()


MOVE_POSITIONS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE positions SET applied_at = applied_at + 1")
db.commit()
"""


def test_what_fails_while_a_new_state_is_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, [[Record("functions", 0, 0, NOW // 1000, b"[]")]])
    one = query_of("SELECT 1 AS one")
    with reading(tmp_path) as reader:
        before = reader.run(one, {}, None, NOW, 10).complete_until
        assert before is not None
        in_another_process(MOVE_POSITIONS, store_path(tmp_path, 1))

        def failing(_: object) -> None:
            raise apsw.InterruptError("interrupted")

        with monkeypatch.context() as patch:
            patch.setattr("api.reader.complete_until", failing)
            with pytest.raises(apsw.InterruptError):
                reader.run(one, {}, None, NOW, 10)
        assert reader.run(one, {}, None, NOW, 10).complete_until == before + 1
