"""What patterns gave is remembered in bounded memory, follows what becomes of the blocks, and a search goes on."""

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import COUNTS_INTERVALS, DAY, HOUR, MINUTE, SECOND, rows_agree
from test_api_reader import SET_GENERATION, in_another_process, reading
from test_api_request_counts import NOW, PATTERNS, QUERY, Request, answered, histories, oracle_of, stored

import api.origins
import api.remembered
import api.request_counts
from api.background import Background, Stopped
from api.reader import Reader, Searches
from api.remembered import BlockCounts, CountsArray, Edge, Known, Remembered, Subject
from api.searching import Search
from schema.errors import QueryTimeout
from schema.tables import make_store, store_path
from schema.url_blocks import UrlBlock, pack_urls

SEAL = """
import sys
from pathlib import Path
from streams.sealing import Sealer, commit
from streams.store import Store
path, now = Path(sys.argv[1]), int(sys.argv[2])
store, sealer = Store(path, lambda: now), Sealer(path, lambda: now, close_every=0)
idle = 0
while idle < 2:
    idle = 0 if commit(store, sealer.prepare()) else idle + 1
"""
RUN = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2])"
BEGIN_IDS = "INSERT INTO sqlite_sequence VALUES ('url_blocks', {})"
MORE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_api_request_counts as counts
counts.stored(Path(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4], {"Request": counts.Request}))
"""


def seal(data: Path, now: int = NOW) -> None:
    """Have another process seal all hours of a store that are over."""
    in_another_process(SEAL, store_path(data, 1), now + 2 * HOUR)


def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that are searched from now on, by id."""
    blocks: list[int] = []
    read = api.request_counts._block

    def reading_block(db: Any, decompress: Any, number: int) -> UrlBlock | None:
        blocks.append(number)
        return read(db, decompress, number)

    monkeypatch.setattr(api.request_counts, "_block", reading_block)
    return blocks


def of_arrays(known: Known) -> int:
    """The bytes that a subject's arrays take, those of empty ones too."""
    return sum(array.size for array in known.arrays.values())


@settings(max_examples=12, deadline=None)
@given(histories(), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4, unique=True), st.booleans())
def test_remembered_counts_answer_as_the_oracle_does(history: Any, patterns: list[str], first: bool) -> None:
    now, requests = history
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        oracle = stored(data, now, requests)
        if first:
            seal(data, now)
        with reading(data) as reader:
            for _ in range(2):
                for later in (0, 1, MINUTE - 1, HOUR + 3):
                    for pattern in patterns:
                        for interval in COUNTS_INTERVALS:
                            rows = answered(reader, now + later, pattern, interval)
                            rows_agree(rows, oracle.api_counts(now + later, pattern, interval))
                seal(data, now)


@pytest.mark.parametrize("pattern", ["aaa", "/rest", "v1/x$"])
def test_the_first_partial_minute_is_exact_with_remembered_counts(tmp_path: Path, pattern: str) -> None:
    now = NOW - NOW % MINUTE
    ages = [span + step for span, _ in COUNTS_INTERVALS.values() for step in range(-5, 6)]
    oracle = stored(tmp_path, now, [Request(age) for age in ages])
    seal(tmp_path)
    reader = Reader(tmp_path)
    for step in (0, 5, -5, 1, -1, 2, MINUTE, 0):
        for interval in COUNTS_INTERVALS:
            rows = answered(reader, now + step, pattern, interval)
            rows_agree(rows, oracle.api_counts(now + step, pattern, interval))


@pytest.mark.parametrize("interval", ["minutely", "daily"])
def test_an_origin_that_comes_later_decides_at_once(tmp_path: Path, interval: str) -> None:
    url = "https://bbb.supabase.co/rest/v1/x"
    stored(tmp_path, NOW, [Request(2 * MINUTE)])
    with reading(tmp_path) as reader:
        assert answered(reader, NOW, "bbb", interval) == []
        others = f"[Request(3 * 60_000_000, 'bbb', {url!r}), Request(4 * 60_000_000, 'bbb', {url!r})]"
        in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, f"[Request(0, batch=8), *{others}]")
        rows = answered(reader, NOW, "bbb", interval)
        assert sum(row["total_rest_requests"] for row in rows) == 2


@pytest.mark.parametrize("at_once", [1, 1000])
def test_origins_decide_once_until_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(api.origins, "_ORIGINS_AT_ONCE", at_once)
    stored(tmp_path, NOW, [Request(2 * MINUTE), Request(MINUTE, "bbb", "https://bbb/x")])
    decided: list[str] = []
    decide = api.origins._decide

    def deciding(db: Any, search: Search) -> api.origins.Decided:
        decided.append(search.pattern.text)
        return decide(db, search)

    monkeypatch.setattr(api.origins, "_decide", deciding)
    with reading(tmp_path) as reader:

        def ask(later: str = "") -> list[str]:
            """The patterns that had to decide, in each of two scopes, after this came."""
            in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, f"[{later}]")
            decided.clear()
            for pattern, scope in product(("aaa", "bbb"), (None, frozenset({"aaa"}))):
                answered(reader, NOW, pattern, "daily", scope)
            return [*decided]

        assert ask() == ["aaa", "aaa", "bbb", "bbb"]
        assert ask() == []
        assert ask("Request(0, batch=7), Request(0, 'bbb', 'https://bbb/y', batch=8)") == []
        assert ask("Request(0, 'ccc', 'https://b/aaa', batch=7)") == ["aaa", "bbb"]
        assert ask("Request(0, 'aaa', 'https://b/aaa', batch=7)") == ["aaa", "aaa", "bbb", "bbb"]


def test_what_origins_decided_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.origins, "_MOST_LISTED", 10)
    stored(tmp_path, NOW, [Request(MINUTE, "aaa", f"https://aaa{n}.co/rest") for n in range(4)])
    with reading(tmp_path) as reader:
        for number in range(20):
            assert len(answered(reader, NOW, f"aaa|zzz{number}", "daily")) == 1
            assert 4 <= sum(len(decided.origins) for decided in reader._decided._known.values()) <= 10
        monkeypatch.setattr(api.origins, "_MOST_LISTED", 3)
        for number in range(2):
            assert len(answered(reader, NOW, f"aaa|yyy{number}", "daily")) == 1
            assert len(reader._decided._known) == 1


@pytest.mark.parametrize("interval", ["1hr", "3hr", "1day", "7day"])
@pytest.mark.parametrize("pattern", ["aaa", "/rest", "aaa|/rest"])
def test_a_late_event_in_the_first_minute_alone_is_seen(tmp_path: Path, pattern: str, interval: str) -> None:
    now = NOW - NOW % HOUR - 30 * SECOND
    span = COUNTS_INTERVALS[interval][0]
    stored(tmp_path, now, [Request(MINUTE)])
    with reading(tmp_path) as reader:
        assert sum(row["total_rest_requests"] for row in answered(reader, now, pattern, interval)) == 1
        in_another_process(MORE, Path(__file__).parent, tmp_path, now, f"[Request({span} - 1, batch=7)]")
        assert sum(row["total_rest_requests"] for row in answered(reader, now, pattern, interval)) == 2


@pytest.mark.parametrize(("ids_before", "blocks"), [(0, 2), (3, 3)])
def test_other_blocks_of_the_same_number_or_the_same_sum_are_others(
    tmp_path: Path, ids_before: int, blocks: int
) -> None:
    """One and two become three, and four comes; four, five and six become seven, and eight comes."""
    stored(tmp_path, NOW, [])
    in_another_process(RUN, store_path(tmp_path, 1), BEGIN_IDS.format(ids_before))
    more = ", ".join(f"Request(2 * 3600_000_000 + {number}, batch={number})" for number in range(blocks))
    in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, f"[{more}]")
    with reading(tmp_path) as reader:
        assert answered(reader, NOW, "/rest", "1day")[0]["total_rest_requests"] == blocks
        seal(tmp_path)
        in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, "[Request(2 * 3600_000_000 + 9, batch=9)]")
        assert sorted(reader._searches.remembered.known(Subject(1, "/rest", None)).blocks)[-1] == ids_before + blocks
        assert answered(reader, NOW, "/rest", "1day")[0]["total_rest_requests"] == blocks + 1


LATER = (  # to what has been there already: in the same minutes, in others, of an origin that decides and of others
    "Request(0, batch=7), Request(59 * 60_000_000, batch=8)",
    "Request(3 * 60_000_000, 'bbb', 'https://bbb.supabase.co/auth/aaa', batch=9)",
    "Request(26 * 3600_000_000, url='wss://bbb/rest?aaa', batch=7), Request(5 * 86_400_000_000, batch=8)",
    "Request(3600_000_000, 'bbb', 'https://aaa.supabase.co/storage', batch=7)",
)


@pytest.mark.parametrize("pattern", ["aaa", "aaa|/rest", "/rest", ".*"])
def test_what_comes_later_is_in_the_arrays_that_were_asked_for_before(tmp_path: Path, pattern: str) -> None:
    told = [Request(age * MINUTE, batch=age % 3) for age in (1, 2, 61, 25 * 60)]
    stored(tmp_path, NOW, told)
    with reading(tmp_path) as reader:
        for later in (None, *LATER):
            if later is not None:
                told += eval(f"[{later}]", {"Request": Request})  # noqa: S307  # texts of this file
                in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, f"[{later}]")
            oracle = oracle_of(NOW, told)
            for _, after in product(range(2), (0, 5 * SECOND)):
                for interval in COUNTS_INTERVALS:
                    rows = answered(reader, NOW + after, pattern, interval)
                    rows_agree(rows, oracle.api_counts(NOW + after, pattern, interval))


def test_whole_minutes_are_counted_once_while_nothing_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, NOW, [Request(age * MINUTE - 9 * SECOND, batch=age % 3) for age in range(1, 70)])
    counted: list[str] = []
    count = api.request_counts.RequestCounts._in_whole_minutes

    def counting(self: api.request_counts.RequestCounts) -> Iterator[api.request_counts.Row]:
        counted.append(self._search.pattern.text)
        return count(self)

    monkeypatch.setattr(api.request_counts.RequestCounts, "_in_whole_minutes", counting)
    with reading(tmp_path) as reader:
        for after in range(5):
            for pattern in ("aaa", "/rest"):
                assert len(answered(reader, NOW + after * SECOND, pattern, "minutely")) == 60
        assert counted == ["aaa", "/rest"]
        in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, "[Request(0, 'bbb', 'https://bbb/x', batch=7)]")
        assert len(answered(reader, NOW, "aaa", "minutely")) == 60
        assert len(answered(reader, NOW + MINUTE, "aaa", "minutely")) == 59
        assert counted == ["aaa", "/rest", "aaa", "aaa"]  # another block to look at, and another minute


def test_a_block_is_searched_once_and_anew_when_it_has_been_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, NOW, [Request(2 * HOUR + number, batch=number) for number in range(5)])
    reader, blocks = Reader(tmp_path), searched(monkeypatch)
    for _ in range(2):
        assert answered(reader, NOW, "/rest", "1day")[0]["total_rest_requests"] == 5
    assert sorted(blocks) == [1, 2, 3, 4, 5]
    seal(tmp_path)
    blocks.clear()
    for _ in range(3):
        assert answered(reader, NOW, "/rest", "1day")[0]["total_rest_requests"] == 5
        assert answered(reader, NOW, "/storage", "1day") == []
    assert blocks == [6, 6]
    assert len(reader._searches.remembered.known(Subject(1, "/rest", None)).blocks) == 1


def test_remembered_counts_follow_sealing_pruning_and_late_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, NOW, [Request(hours * HOUR, batch=hours) for hours in (2, 3, 4)])
    seal(tmp_path)
    reader, blocks = Reader(tmp_path), searched(monkeypatch)
    known = reader._searches.remembered.known(Subject(1, "/rest", None))

    def total() -> int:
        return sum(row["total_rest_requests"] for row in answered(reader, NOW, "/rest", "1day"))

    assert total() == 3
    assert sorted(known.blocks) == [4, 5, 6]
    late = "[Request(3 * 3600_000_000 + 1, batch=9)]"
    in_another_process(MORE, Path(__file__).parent, tmp_path, NOW, late)
    blocks.clear()
    assert total() == 4
    assert blocks == [7]
    seal(tmp_path)
    blocks.clear()
    assert (total(), total()) == (4, 4)
    assert blocks == [8]
    assert 8 in known.blocks
    assert len(known.blocks) == 3
    in_another_process(RUN, store_path(tmp_path, 1), "DELETE FROM url_blocks WHERE id = 8")
    assert total() == 2
    assert len(known.blocks) == 2
    assert 0 < reader._searches.remembered.size - of_arrays(known) < 2000
    in_another_process(RUN, store_path(tmp_path, 1), "DELETE FROM url_blocks")
    assert total() == 0
    assert reader._searches.remembered.size == of_arrays(known)


def test_another_generation_is_searched_anew(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [Request(2 * HOUR)])
    seal(tmp_path)
    make_store(store_path(tmp_path, 2))
    reader = Reader(tmp_path)
    assert len(answered(reader, NOW, "/rest", "1day")) == 1
    in_another_process(SET_GENERATION, tmp_path, 2)
    assert answered(reader, NOW, "/rest", "1day") == []
    remembered = reader._searches.remembered
    assert remembered.size == of_arrays(remembered.known(Subject(2, "/rest", None)))


def test_scopes_are_remembered_apart(tmp_path: Path) -> None:
    stored(tmp_path, NOW, [Request(2 * HOUR, project=project) for project in ("aaa", "aaa", "bbb")])
    seal(tmp_path)
    reader = Reader(tmp_path)
    for _ in range(2):
        for projects, total in ((None, 3), (frozenset({"aaa"}), 2), (frozenset({"bbb"}), 1), (frozenset[str](), 0)):
            rows = answered(reader, NOW, "/rest", "1day", projects)
            assert sum(row["total_rest_requests"] for row in rows) == total


def counted(minutes: int) -> BlockCounts:
    """What a block gave, with so many cells."""
    times = [minute * MINUTE for minute in range(minutes)]
    block = UrlBlock(pack_urls(NOW - NOW % HOUR, [("p", "o", {(1, b"u"): times})]))
    return BlockCounts(block, [(1, 0, minutes)])


def test_memory_is_bounded_and_what_was_asked_for_longest_ago_goes_first() -> None:
    remembered = Remembered(20_000)
    subjects = [Subject(1, str(number), None) for number in range(100)]
    for subject in subjects:
        for block in range(5):
            remembered.keep(remembered.known(subject), block, counted(60))
            remembered.known(subjects[0])
            assert remembered.size <= 20_000
    assert len(remembered.known(subjects[0]).blocks) == 5
    assert len(remembered.known(subjects[-1]).blocks) == 5
    assert remembered.known(subjects[1]).blocks == {}


def test_one_subject_that_takes_all_room_keeps_what_fits() -> None:
    remembered = Remembered(20_000)
    known = remembered.known(Subject(1, "a", None))
    for block in range(1000):
        remembered.keep(known, block, counted(60))
    assert 10 < len(known.blocks) < 50
    assert 15_000 < remembered.size <= 20_000
    remembered.forget_gone(known, (), NOW, NOW)
    assert remembered.size <= 20_000
    remembered.forget_gone(known, (), NOW + DAY, NOW)
    assert (remembered.size, known.blocks) == (0, {})


def test_edges_are_bounded_in_number_and_memory_and_answer_from_a_time_on() -> None:
    remembered = Remembered(20_000)
    known = remembered.known(Subject(1, "p", None))
    empty = remembered.size
    edge = Edge(0, [(3, 1), (1, 2), (2, 4), (2, 1)])
    assert [list(edge.since(since)) for since in (0, 1, 2, 3, 4)] == [[2, 1, 4, 1], [2, 1, 4, 1], [1, 4, 1], [1], []]
    for block in range(1000):
        remembered.keep_edge(known, block % 300, Edge(block, [(block, 1)] * (block % 7)))
        assert remembered.size == empty + sum(edge.size for edge in known.edges.values()) <= 20_000
    remembered.keep_edge(known, 0, Edge(0, [(0, 1)] * 10_000))  # too much
    assert 0 not in known.edges
    assert remembered.size == empty + sum(edge.size for edge in known.edges.values())
    for number in range(2):
        remembered.known(Subject(2 + number, "q", None))  # a newer generation
    assert remembered.size == 0


def test_arrays_are_bounded_in_number_and_memory() -> None:
    remembered = Remembered(20_000)
    known = remembered.known(Subject(1, "p", None))
    for number in range(100):
        window = 60, number % 20
        remembered.keep_array(known, window, CountsArray(((), (), None), 0, (), bytes(100 * (number % 9)), ()))
        assert window in known.arrays
        assert remembered.size == known.size == of_arrays(known) <= 20_000
        assert len(known.arrays) <= 8
    assert [number for _, number in known.arrays] == list(range(12, 20))
    remembered.keep_array(known, (60, 0), CountsArray(((), (), None), 0, (), bytes(100_000), ()))  # too much
    assert (60, 0) not in known.arrays
    assert remembered.size == known.size == of_arrays(known)


def test_arrays_and_edges_of_those_asked_for_longest_ago_make_room() -> None:
    remembered, edge = Remembered(20_000), Edge(0, [(0, 1)] * 20)
    array = CountsArray(((), (), None), 0, (), bytes(1000), ())
    assert array._replace(edges=[edge]).size == array.size + edge.size
    for number in range(100):
        known = remembered.known(Subject(1, str(number), None))
        for window in range(4):
            remembered.keep_array(known, (60, window), array)
            remembered.keep_edge(known, window, edge)
        assert len(known.arrays) == len(known.edges) == 4
        assert remembered.size <= 20_000
    assert remembered.size == sum(one.size for one in remembered._known.values()) > 10_000


def test_no_more_subjects_are_known_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.remembered, "_MOST_SUBJECTS", 10)
    remembered = Remembered(20_000)
    for number in range(30):
        known = remembered.known(Subject(1, str(number), None))
        remembered.keep(known, 1, counted(1))
        remembered.known(Subject(1, "0", None))
    assert [subject.pattern for subject in remembered._known] == [*map(str, range(21, 30)), "0"]
    assert remembered.size == sum(one.size for one in remembered._known.values())


def test_what_is_forgotten_meanwhile_is_not_kept() -> None:
    remembered = Remembered(20_000)
    known = remembered.known(Subject(1, "a", None))
    remembered.known(Subject(2, "a", None))
    remembered.keep(known, 1, counted(60))
    remembered.keep_array(known, (60, 0), CountsArray(((), (), None), 0, (), b"", ()))
    assert (remembered.size, known.blocks) == (0, {})


def test_threads_share_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = stored(tmp_path, NOW, [Request(hours * HOUR + 1, batch=hours) for hours in range(1, 20)])
    seal(tmp_path)
    searches, wrong = Searches(), list[BaseException]()

    def ask() -> None:
        try:
            with reading(tmp_path) as reader:
                reader._searches = searches
                for number in range(40):
                    pattern = ("/rest", "x$", "never", "v1")[number % 4]
                    rows_agree(answered(reader, NOW, pattern, "daily"), oracle.api_counts(NOW, pattern, "daily"))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    blocks = searched(monkeypatch)
    ask()
    assert blocks == []


def test_a_search_past_the_time_limit_is_found_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = stored(tmp_path, NOW, [Request(hours * HOUR, batch=hours) for hours in range(1, 160)])
    seal(tmp_path)
    searches = Searches()
    reader = Reader(tmp_path, searches)
    with pytest.raises(QueryTimeout):
        reader.run(QUERY, {"project": "/rest", "interval": "7day"}, None, NOW, 0)
    assert searches.background.idle(30)
    blocks = searched(monkeypatch)
    rows_agree(answered(reader, NOW, "/rest", "7day"), oracle.api_counts(NOW, "/rest", "7day"))
    assert blocks == []
    searches.background.close()


def test_a_search_in_the_background_keeps_to_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {project: f"https://{project}.supabase.co/rest/v1/x" for project in ("aaa", "bbb")}
    requests = [Request(hours * HOUR, project, url) for hours in range(2, 20) for project, url in urls.items()]
    stored(tmp_path, NOW, requests)
    seal(tmp_path)
    searches = Searches()
    reader = Reader(tmp_path, searches)
    with pytest.raises(QueryTimeout):
        reader.run(QUERY, {"project": "/rest", "interval": "7day"}, frozenset({"bbb"}), NOW, 0)
    assert searches.background.idle(30)
    blocks = searched(monkeypatch)
    found = answered(reader, NOW, "/rest", "7day", frozenset({"bbb"}))
    assert (sum(row["total_rest_requests"] for row in found), blocks) == (18, [])
    searches.background.close()


def test_searches_in_the_background_are_few_make_way_for_queries_and_stop() -> None:
    background, begun, ran = Background(), threading.Event(), list[int]()

    def search() -> None:
        begun.set()
        for number in range(1000):
            background.make_way()
            ran.append(number)
            time.sleep(0.001)

    with background.query():
        background.go_on("first", search)
        assert begun.wait(10)
        time.sleep(0.3)
        held = len(ran)
        assert held < 20  # without a query it would be some 250
    for number in range(100):
        background.go_on(number, search)
    assert len(background._waiting) == 16
    assert not background.idle(0.1)
    background.close()
    assert len(ran) < 1000
    background.go_on("later", search)
    with pytest.raises(Stopped):
        background.make_way()


def test_a_search_that_fails_in_the_background_leaves_it_at_work(caplog: pytest.LogCaptureFixture) -> None:
    background, ran = Background(), threading.Event()

    def fails() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    background.go_on("fails", fails)
    background.go_on("works", ran.set)
    assert ran.wait(10)
    assert "disk I/O error" in caplog.text
    background.close()


def test_a_hard_pattern_does_not_outlast_the_time_limit(tmp_path: Path) -> None:
    urls = [f"https://aaa.supabase.co/{os.urandom(1000).hex()}" for _ in range(2000)]  # RE2 is quick with what repeats
    stored(tmp_path, NOW, [Request(HOUR, url=url, batch=number % 3) for number, url in enumerate(urls)])
    reader = Reader(tmp_path)
    began = time.monotonic()
    with pytest.raises(QueryTimeout):
        reader.run(QUERY, {"project": "(?:[0-7][^z]{0,60}){3}zz", "interval": "daily"}, None, NOW, 0.2)
    assert time.monotonic() - began < 4  # all of it would take some 10 s of CPU
    reader._searches.background.close()
