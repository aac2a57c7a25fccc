"""Sealing changes how events are cut into blocks and nothing else, whoever else is at work on the store."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, given
from hypothesis import settings as properties
from hypothesis import strategies as st
from test_streams_store import EDGE, content, rows

from schema.blocks import train_dictionary
from schema.errors import StoreRetired
from schema.events import EdgeEvent
from schema.retention import ENTRIES, NO_GRAIN, NOTHING_EXPIRED, URLS, Horizons
from schema.settings import Settings
from schema.tables import make_store, migrate
from schema.timestamps import DAY, HOUR, MINUTE
from streams.content import Digest, Range, digests, snapshot
from streams.fold import fold_edge
from streams.generations import set_retired
from streams.kept import EVERYTHING, Keeper
from streams.packing import Packer
from streams.retention import Pruner
from streams.sealing import GRACE, Merge, Sealer, commit
from streams.store import FoldedBatch, Store
from streams.unsealed import FANOUT

NOW = 1_750_000_000_000_000 // DAY * DAY + 12 * HOUR
OVER = NOW - 2 * HOUR
"""An hour that has been over for a while, when it is NOW."""
RECORDS = (
    '{"n":"NUMBER"}',
    '{"id":"0f8fad5b-d9cb-469f-a165-70867728NUMBER"}',
    '{"id":"0F8FAD5B-D9CB-469F-A165-70867728NUMBER"}',
    ' {"n" : "0f8fad5b-d9cb-469f-a165-70867728NUMBER", "id" : "7c9e6679-7425-40de-944b-e07fc1f9NUMBER" }\r',
    '{"id":"0f8fad5b-d9cb-469f-a165-70867728NUMBER0"}',
)
ALL_SEALED = "SELECT min(sealed) FROM (SELECT sealed FROM entry_blocks UNION ALL SELECT sealed FROM url_blocks)"


def request(timestamp: int, number: int = 0, project: str = "p") -> EdgeEvent:
    url = f"https://{project}.host/rest/{number % 7}"
    missing_id = bytes(16) if number % 4 == 3 else b""
    data = RECORDS[number % len(RECORDS)].replace("NUMBER", f"{number:04x}"[-4:]).encode()
    return EdgeEvent(timestamp, project, url, f"https://{project}.host", number % 4, missing_id, data)


def digest(path: Path, horizons: Horizons = NOTHING_EXPIRED) -> dict[Range, Digest]:
    """The digest of all ranges of a store."""
    with snapshot(path) as db:
        return digests(db, horizons)


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

    def prepared(self) -> list[Merge]:
        """All merges of one round."""
        before, merges = self.sealer._round, list[Merge]()
        while self.sealer._round is before:
            merges += self.sealer.prepare()
        return merges

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
    before = content(work.path), digest(work.path)
    assert work.seal() >= 600
    assert (content(work.path), digest(work.path)) == before
    assert rows(work.path, ALL_SEALED) == [(1,)]
    assert sum(work.counts(ENTRIES)) == sum(work.counts(URLS)) == 300
    assert len(work.counts(ENTRIES)) <= 5
    assert len(work.counts(URLS)) == 1
    assert work.seal() == 0


def test_an_hour_that_is_not_over_is_merged_by_tiers_and_each_event_is_rewritten_few_times(work: Work) -> None:
    rewritten = 0
    for number in range(1500):
        work.apply([request(NOW - HOUR + number * 1_000_000, number)])
        merges = work.prepared()
        rewritten += sum(row[2] for merge in merges if merge.table == URLS for row in merge.rows)
        commit(work.store, merges)
        for table in (ENTRIES, URLS):
            unsealed = rows(work.path, f"SELECT count FROM {table} WHERE sealed = 0")  # noqa: S608
            assert len(unsealed) <= 3 * FANOUT
    assert rewritten / 1500 < 3
    assert sum(work.counts(URLS)) == sum(work.counts(ENTRIES)) == 1500


def test_what_comes_late_is_sealed_later_and_with_what_is_small_alone(work: Work) -> None:
    work.apply([request(OVER + number, number) for number in range(1000)])
    work.seal()
    full = rows(work.path, "SELECT id, payload FROM entry_blocks WHERE count >= 64 ORDER BY id")
    assert len(full) == 8
    for number in range(3):
        work.apply([request(OVER + 5000 + number, number)])
        assert rows(work.path, ALL_SEALED) == [(0,)]
        work.seal()
        assert rows(work.path, ALL_SEALED) == [(1,)]
    assert work.counts(ENTRIES)[-1] == 3
    assert set(full) <= set(rows(work.path, "SELECT id, payload FROM entry_blocks"))


def test_the_end_of_an_hour_is_waited_for_with_some_grace(work: Work) -> None:
    work.apply([request(NOW - 1)])
    for work.now in (NOW - 1, NOW, NOW + GRACE - 1):
        assert work.seal() == 0
    work.now = NOW + GRACE
    assert work.seal() == 2


def test_entries_are_compressed_anew_with_the_newest_dictionary(work: Work) -> None:
    texts = [f'{{"a long key that comes in all of them":"{number}","n":{number * 7919}}}' for number in range(2000)]
    for number in range(40):
        one = request(OVER + number, number)
        one.data = texts[number].encode()
        work.apply([one])
    before = digest(work.path)
    stored = "SELECT sum(length(payload)), min(dictionary), max(dictionary) FROM entry_blocks"
    ((without, *_),) = rows(work.path, stored)
    work.store.add_dictionary(train_dictionary([text.encode() for text in texts]))
    work.seal()
    assert rows(work.path, stored)[0][1:] == (1, 1)
    assert rows(work.path, stored)[0][0] < without / 4
    assert digest(work.path) == before


def test_entries_are_compressed_anew_without_what_was_trained_when_less_was_redacted(work: Work) -> None:
    samples = [f'{{"a long key that comes in all of them":"{number}"}}'.encode() for number in range(2000)]
    work.store.add_dictionary(train_dictionary(samples))
    for number in range(40):
        work.apply([request(OVER + number, number)])
    before = digest(work.path)
    named = "SELECT DISTINCT dictionary FROM entry_blocks"
    with closing(Sealer(work.path, lambda: work.now, close_every=0, redacted=["tokens"])) as sealer:
        assert rows(work.path, named) == [(1,)]
        while commit(work.store, sealer.prepare()):
            pass
        assert rows(work.path, named) == [(0,)]
        work.apply([request(OVER + 50)])
        work.store.add_dictionary(train_dictionary(samples[:1500]), ["tokens", "addresses"])
        for number in range(51, 60):
            work.apply([request(OVER + number)])
        while commit(work.store, sealer.prepare()):
            pass
    assert rows(work.path, named) == [(2,)]
    assert sum(work.counts(ENTRIES)) == 50
    assert digest(work.path).keys() == before.keys()


def test_a_replay_copies_the_dictionaries_that_kept_blocks_name_beside_its_own(work: Work, tmp_path: Path) -> None:
    contents = [train_dictionary([os.urandom(20).hex().encode() * 3 for _ in range(300)]) for _ in range(3)]
    for content_ in contents:
        with work.store.transaction() as db:
            db.execute("INSERT INTO dictionaries (trained_at, content) VALUES (1, ?)", (content_,))
    for number in range(600):
        work.apply([request(OVER + number * 1_000_000, number)])
    own = train_dictionary([os.urandom(20).hex().encode() * 3 for _ in range(300)])
    new = tmp_path / "freshet-2.db"
    make_store(new)
    copied: dict[str, int] = {}
    with closing(Store(new, lambda: work.now)) as store:
        store.add_dictionary(own, ["tokens"])
        with snapshot(work.path) as old:
            Keeper(store, 0, 0).copy_frame(old)
            for _ in Keeper(store, EVERYTHING, EVERYTHING).copy_blocks(old, copied):
                pass
        assert copied[ENTRIES] == 600
        assert rows(new, "SELECT id, content FROM dictionaries") == [(1, own), (2, contents[2])]
        assert rows(new, "SELECT DISTINCT dictionary FROM entry_blocks") == [(2,)]
        assert store.dictionary(["tokens"]) == (1, own)
        blocks = {span: found for span, found in digest(work.path).items() if span.table in (ENTRIES, URLS)}
        assert {span: found for span, found in digest(new).items() if span.table in (ENTRIES, URLS)} == blocks


def test_large_records_make_blocks_of_few(work: Work) -> None:
    for number in range(40):
        one = request(OVER + number, number)
        one.data = os.urandom(300 << 10)
        work.apply([one])
    before = digest(work.path)
    work.seal()
    assert rows(work.path, ALL_SEALED) == [(1,)]
    assert sum(work.counts(ENTRIES)) == 40
    assert max(work.counts(ENTRIES)) * (300 << 10) < 5 << 20
    assert digest(work.path) == before


@pytest.mark.parametrize("table", [ENTRIES, URLS])
def test_blocks_that_are_gone_when_a_merge_is_committed_are_left_alone(work: Work, table: str) -> None:
    for number in range(5):
        work.apply([request(OVER + number, number)])
    merges = work.prepared()
    with closing(sqlite3.connect(work.path)) as db, db:
        db.execute(f"DELETE FROM {table} WHERE id = 3")  # noqa: S608
    assert commit(work.store, merges) == 5
    assert len(work.counts(table)) == 4
    assert commit(work.store, merges) == 0
    assert work.seal() == 4
    assert sum(work.counts(table)) == 4


def test_a_retired_generation_is_not_sealed(work: Work) -> None:
    for number in range(5):
        work.apply([request(OVER + number, number)])
    merges = work.prepared()
    set_retired(work.path, True)
    with pytest.raises(StoreRetired):
        commit(work.store, merges)
    assert work.counts(URLS) == [1] * 5


def test_a_damaged_block_is_left_as_it_is_and_the_others_are_sealed(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        work.apply([request(OVER + number, number), request(OVER + HOUR // 2 + number, number, "q")])
    with closing(sqlite3.connect(work.path)) as db, db:
        db.execute("UPDATE entry_blocks SET payload = x'00' WHERE id = 3")
    work.seal()
    assert sorted(work.counts(ENTRIES)) == [1] * 5 + [5]
    assert work.counts(URLS) == [10]
    assert "can't be read" in caplog.text


def test_a_reader_in_a_long_transaction_sees_what_was_there(work: Work) -> None:
    for number in range(50):
        work.apply([request(OVER + number, number)])
    with closing(sqlite3.connect(f"file:{work.path}?mode=ro", uri=True, isolation_level=None)) as db:
        db.execute("BEGIN")
        select = "SELECT id, payload FROM entry_blocks ORDER BY id"
        before = db.execute(select).fetchall()
        assert work.seal() == 100
        assert db.execute(select).fetchall() == before
        db.execute("COMMIT")
        assert len(db.execute(select).fetchall()) == 1


def test_pages_that_sealing_frees_are_used_again(work: Work) -> None:
    sizes = []
    for hour in range(12):
        for number in range(150):
            one = request(OVER - (12 - hour) * HOUR + number, number)
            one.data = os.urandom(200)
            work.apply([one])
        work.seal()
        sizes += [pages for (pages,) in rows(work.path, "PRAGMA page_count")]
    growth = [after - before for before, after in pairwise(sizes[2:])]
    assert max(growth) * 4096 < 150 * 200 * 4  # about what the sealed blocks hold, not what small ones took


class Step(NamedTuple):
    """Something that is done to a store: what, and with which events."""

    what: str
    events: Sequence[EdgeEvent] = ()


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    moments = st.builds(
        lambda hours, rest: NOW - hours * HOUR + rest,
        st.integers(-1, 30),
        st.sampled_from((0, 1, HOUR - 1, HOUR // 2, 17 * MINUTE)),
    )
    events = st.builds(request, moments, st.integers(0, 50), st.sampled_from(("p", "q", "")))
    batches = st.builds(Step, st.just("apply"), st.lists(events, min_size=1, max_size=40))
    others = st.sampled_from((Step("seal"), Step("round"), Step("prune"), Step("hour")))
    return draw(st.lists(batches | batches | others, min_size=1, max_size=30))


@given(histories())
@properties(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_any_sequence_of_batches_prunings_and_sealings_holds_what_it_held_without_sealing(history: list[Step]) -> None:
    kept = {(ENTRIES, NO_GRAIN): 20 * HOUR, (URLS, NO_GRAIN): 10 * HOUR}
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        working(Path(first)) as sealed,
        working(Path(second)) as plain,
    ):
        for step in history:
            for work in (sealed, plain):
                if step.what == "apply":
                    work.apply(step.events)
                elif step.what == "prune":
                    Pruner(work.store, lambda: sealed.now, {**Settings().kept, **kept}).step()
                elif step.what == "hour":
                    work.now += HOUR
                elif work is sealed:
                    work.seal() if step.what == "seal" else work.round()
        horizons = sealed.store.horizons()
        assert horizons == plain.store.horizons()
        assert digest(sealed.path, horizons) == digest(plain.path, horizons)
        content(sealed.path)


SEAL = """
import os, signal, sqlite3, sys, time
from pathlib import Path
from streams.sealing import Sealer, commit
from streams.store import Store
path, die_at = Path(sys.argv[1]), sys.argv[2]
store = Store(path, lambda: int(sys.argv[3]))
seen = 0
def look(statement):
    if die_at and statement.startswith(die_at):
        os.kill(os.getpid(), signal.SIGKILL)
store._db.set_trace_callback(look)
sealer = Sealer(path, lambda: int(sys.argv[3]), close_every=0)
print("ready", flush=True)
sys.stdin.readline()
replaced = idle = 0
while idle < 100:  # a second: there is nothing to prepare while another process does it
    try:
        some = commit(store, sealer.prepare())
    except sqlite3.OperationalError:
        continue
    replaced += some
    idle = 0 if some else idle + 1
    time.sleep(0.01 * (not some))
print(replaced, flush=True)
"""


def sealing_process(path: Path, die_at: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SEAL, str(path), die_at, str(NOW)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("die_at", ["BEGIN", "DELETE FROM entry_blocks", "DELETE FROM url_blocks", "INSERT", "COMMIT"])
def test_a_process_that_is_killed_while_it_seals_loses_and_doubles_nothing(work: Work, die_at: str) -> None:
    for number in range(60):
        work.apply([request(OVER + number, number), request(OVER - HOUR + number, number, "q")])
    before = content(work.path), digest(work.path)
    with sealing_process(work.path, die_at) as process:
        process.communicate("\n", timeout=60)
        assert process.returncode == -signal.SIGKILL
    assert (content(work.path), digest(work.path)) == before
    work.seal()
    assert (content(work.path), digest(work.path)) == before
    assert rows(work.path, ALL_SEALED) == [(1,)]


def test_two_processes_seal_one_store_while_a_third_applies_and_prunes(work: Work) -> None:
    for number in range(400):
        work.apply([request(OVER - number % 5 * HOUR + number, number, "pqr"[number % 3])])
    with sealing_process(work.path) as first, sealing_process(work.path) as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        pruner = Pruner(work.store, lambda: work.now, Settings().kept)
        for number in range(400, 500):
            work.apply([request(OVER - number % 5 * HOUR + number, number, "pqr"[number % 3])])
            if number % 10 == 0:
                pruner.step()
        replaced = sum(int(process.communicate(timeout=60)[0]) for process in (first, second))
    assert replaced >= 900
    work.seal()
    assert sum(work.counts(ENTRIES)) == sum(work.counts(URLS)) == 500
    with tempfile.TemporaryDirectory() as folder, working(Path(folder)) as plain:
        for number in range(500):
            plain.apply([request(OVER - number % 5 * HOUR + number, number, "pqr"[number % 3])])
        assert content(work.path) == content(plain.path)
        assert digest(work.path) == digest(plain.path)


def test_a_replay_that_copies_while_blocks_are_sealed_keeps_each_event_once(work: Work, tmp_path: Path) -> None:
    def more(first: int, last: int) -> None:
        for number in range(first, last):
            work.apply([request(OVER - number % 3 * HOUR + number, number)])

    new = tmp_path / "freshet-2.db"
    make_store(new)
    copied: dict[str, int] = {}
    with closing(Store(new, lambda: work.now)) as store:
        keeper = Keeper(store, EVERYTHING, EVERYTHING)
        for first in (0, 50, 100):
            more(first, first + 50)
            with snapshot(work.path) as old:
                assert sum(keeper.copy_blocks(old, copied)) > 0
            work.seal()
        with closing(sqlite3.connect(work.path)) as db, db:
            db.execute("DELETE FROM entry_blocks WHERE id = (SELECT min(id) FROM entry_blocks)")  # as the pruner does
        set_retired(work.path, True)
        with snapshot(work.path) as old:
            assert sum(keeper.copy_blocks(old, copied)) > 0
        for table in (ENTRIES, URLS):
            select = f"SELECT max_timestamp, count, sealed, payload FROM {table} ORDER BY 1, 2"  # noqa: S608
            assert rows(new, select) == rows(work.path, select)
        store.finish_replay()
        assert rows(new, "SELECT * FROM copies") == []
