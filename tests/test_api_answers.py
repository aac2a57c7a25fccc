"""An answer's body, and the computing of answers in the event loop and in threads of their own."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from oracle import Record
from test_api_reader import NOW, fill, in_another_process, query_of

import api.answers
from api.answers import Answers
from api.bodies import body
from api.cache import Cache
from api.freshness import COMPLETE_UNTIL
from api.questions import Kept, Question, question
from api.reader import Answer, Reader
from schema.errors import QueryTimeout, StoreMissing
from schema.saved_queries import SavedQuery, load_saved_queries
from schema.timestamps import SECOND

PLAIN = query_of("SELECT 1")
WITH_JSON = query_of("-- column: more json or null\nSELECT 1", column="metadata json or null")
ADD = """
import sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from oracle import Record
from test_api_reader import NOW, fill
fill(Path(sys.argv[1]), [[Record("functions", 0, int(sys.argv[2]), NOW // 1000, sys.argv[3].encode())]])
"""


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as long counts as quick, so that what others run beside a test does not decide."""
    monkeypatch.setattr(api.answers, "_QUICK_SECONDS", 0.02)


async def in_the_loop(answers: Answers, asked: Question) -> Kept:
    """An answer that was computed in the event loop, as soon as the question is known to be quick."""
    for _ in range(100):
        await asyncio.sleep(0.01)  # the loop has its turns again
        kept = answers.at_once(asked, 1)
        if kept is not None:
            return kept
        await answers.answer(asked)
    raise AssertionError("it never was quick")


def plain(query: SavedQuery, **parameters: str | int | None) -> Question:
    """A question by a caller who may see all."""
    return question(query, parameters, None, False)


def test_the_rows_stand_in_a_result_alone() -> None:
    assert body(PLAIN, Answer((), [])) == b'{"result":[]}'
    assert body(PLAIN, Answer(("a", "b"), [(1, "x"), (2, None)])) == b'{"result":[{"a":1,"b":"x"},{"a":2,"b":null}]}'


def test_integers_are_never_written_as_floats_nor_floats_as_integers() -> None:
    answer = Answer(("timestamp", "count", "avg", "min"), [(1_750_000_000_123_456, 2**62, 5.0, 0.001)])
    assert (
        body(PLAIN, answer)
        == b'{"result":[{"timestamp":1750000000123456,"count":4611686018427387904,"avg":5.0,"min":0.001}]}'
    )


def test_text_is_escaped_where_json_wants_it() -> None:
    text = 'quote " back\\slash \n \0 \u2028 é 😀 </script>'
    assert json.loads(body(PLAIN, Answer(("text",), [(text,)]))) == {"result": [{"text": text}]}


def test_columns_of_json_go_in_as_they_were_written() -> None:
    written = '[{"n": 1.50, "big":18446744073709551616, "twice":1,"twice":2, "s":"\\u00e9\\ud83d\\ude00"}]'
    answer = Answer(("metadata", "text", "more"), [(written, written, "{}")])
    encoded = body(WITH_JSON, answer)
    assert encoded == b'{"result":[{"metadata":%b,"text":%b,"more":{}}]}' % (
        written.encode(),
        json.dumps(written).encode(),
    )


def test_a_column_of_json_may_be_null() -> None:
    assert body(WITH_JSON, Answer(("metadata", "more"), [(None, "[]")])) == b'{"result":[{"metadata":null,"more":[]}]}'


def test_answers_are_computed_as_of_the_clock_at_the_time_of_each(tmp_path: Path) -> None:
    event = {"timestamp": NOW, "project": "p", "id": "i", "event_message": "m", "metadata": {"request": {"a": 1}}}
    fill(tmp_path, [[Record("edge", 0, 0, 0, json.dumps(event).encode())]])
    times = iter((NOW, NOW + 86_400_000_000 - 1, NOW + 86_400_000_000))
    answers = Answers(tmp_path, lambda: next(times), 10)
    parameters = {"project": "p", "project_tier": None, "iso_timestamp_start": None, "iso_timestamp_end": None}
    asked = question(load_saved_queries()["logs.all"], parameters, None, False)

    async def compute() -> list[bytes]:
        return [(await answers.answer(asked)).body for _ in range(3)]

    first, second, third = asyncio.run(compute())
    assert first == second
    assert json.loads(first) == {
        "result": [{key: event[key] for key in ("id", "timestamp", "event_message", "metadata")}]
    }
    assert list(json.loads(first)["result"][0]) == ["id", "timestamp", "event_message", "metadata"]
    assert third == b'{"result":[]}'
    answers.close()


def test_many_answers_at_once_do_not_mix(tmp_path: Path) -> None:
    fill(tmp_path, [])
    answers = Answers(tmp_path, lambda: NOW, 30)
    slow = query_of(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT max(i) AS i, @own AS own FROM n"
    )

    async def compute() -> list[Kept]:
        return await asyncio.gather(*(answers.answer(plain(slow, own=number)) for number in range(20)))

    assert [json.loads(found.body) for found in asyncio.run(compute())] == [
        {"result": [{"i": 20_000, "own": number}]} for number in range(20)
    ]
    answers.close()


def test_the_database_is_asked_once_however_many_ask(tmp_path: Path) -> None:
    event = {"timestamp": NOW, "metadata": {"project_ref": "p", "function_id": "f", "response": {}}}
    fill(tmp_path, [[Record("functions", 0, 0, 0, json.dumps(event).encode())]])
    now = NOW
    answers = Answers(tmp_path, lambda: now, 30)
    cache = Cache(answers.answer, lambda: now, 1 << 20)
    asked = plain(load_saved_queries()["functions.invocation-stats"], project="p", function_id=None, interval=None)

    async def many(fresh: bool = False) -> int:
        found = await asyncio.gather(*(cache.answer(asked, 1, fresh) for _ in range(100)))
        assert {json.loads(kept.body)["result"][0]["count"] for kept, _ in found} == {1}
        assert {kept.rows for kept, _ in found} == {1}
        return answers.computed

    async def act() -> None:
        nonlocal now
        assert [await many() for _ in range(3)] == [1, 1, 1]
        now += 900 * SECOND - 1
        assert await many() == 1
        now += 1
        assert await many() == 2
        assert await many(fresh=True) == 4  # that of the first of them, and one for all who came while it ran
        assert await many() == 4

    asyncio.run(act())
    answers.close()


def test_what_fails_is_raised_to_the_one_who_asked(tmp_path: Path) -> None:
    answers = Answers(tmp_path, lambda: NOW, 0.05)
    with pytest.raises(StoreMissing):
        asyncio.run(answers.answer(plain(PLAIN)))
    fill(tmp_path, [])
    answers.close()
    answers = Answers(tmp_path, lambda: NOW, 0.05)
    endless = query_of("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    with pytest.raises(QueryTimeout):
        asyncio.run(answers.answer(plain(endless)))
    assert asyncio.run(answers.answer(plain(PLAIN))).body == b'{"result":[{"1":1}]}'
    answers.close()


def test_statistics_are_integers_where_whole_and_null_without_times(tmp_path: Path) -> None:
    times = {"whole": (3, 5.0), "half": (1.5,), "none": (None,), "text": ("7", "0.0009")}
    records: list[Record] = []
    for function, values in times.items():
        for took in values:
            metadata: dict[str, Any] = {"project_ref": "p", "function_id": function, "execution_time_ms": took}
            value = json.dumps({"timestamp": NOW, "metadata": {**metadata, "response": {}}}).encode()
            records.append(Record("functions", 0, len(records), 0, value))
    fill(tmp_path, [records])
    query, reader = load_saved_queries()["functions.invocation-stats"], Reader(tmp_path)

    def statistics(function: str) -> bytes:
        parameters = {"project": "p", "function_id": function, "interval": "1hr"}
        return body(query, reader.run(query, parameters, None, NOW, 10)).partition(b'"min_')[2]

    assert statistics("whole") == (
        b'execution_time":3,"max_execution_time":5,"avg_execution_time":4.0,"p95_execution_time":5,'
        b'"p99_execution_time":5,"count":2,"error_count":0}]}'
    )
    assert statistics("half") == (
        b'execution_time":1.5,"max_execution_time":1.5,"avg_execution_time":1.5,"p95_execution_time":2,'
        b'"p99_execution_time":2,"count":1,"error_count":0}]}'
    )
    assert statistics("none") == (
        b'execution_time":null,"max_execution_time":null,"avg_execution_time":null,"p95_execution_time":null,'
        b'"p99_execution_time":null,"count":1,"error_count":0}]}'
    )
    assert statistics("text") == (
        b'execution_time":0,"max_execution_time":7,"avg_execution_time":3.5,"p95_execution_time":7,'
        b'"p99_execution_time":7,"count":2,"error_count":0}]}'
    )


GROWING = """WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT @now) SELECT max(i) AS i FROM n"""


@pytest.mark.usefixtures("busy_machine")
def test_what_was_quick_is_computed_in_the_loop_and_what_no_longer_is_in_a_thread(tmp_path: Path) -> None:
    fill(tmp_path, [])
    limit = 10
    threads: list[int] = []

    def clock() -> int:
        threads.append(threading.get_ident())
        return limit

    answers = Answers(tmp_path, clock, 30)
    asked, loop = plain(query_of(GROWING)), threading.get_ident()

    async def ask() -> tuple[int, float]:
        """What is answered, and how long the loop heard nobody at most."""
        longest, last, done = 0.0, time.perf_counter(), False

        async def listen() -> None:
            nonlocal longest, last
            while not done:
                await asyncio.sleep(0)
                longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

        listening = asyncio.create_task(listen())
        found = json.loads((await answers.answer(asked)).body)["result"][0]["i"]
        done = True
        await listening
        return found, longest

    async def act() -> None:
        nonlocal limit
        assert answers.at_once(asked, 1) is None, "nobody knows yet how long it takes"
        assert (await ask())[0] == 10
        assert threads.pop() != loop
        kept = await in_the_loop(answers, asked)
        await asyncio.sleep(0.01)
        assert (await ask())[0] == 10
        assert json.loads(kept.body)["result"] == [{"i": 10}]
        assert threads[-2:] == [loop, loop]
        limit = 3_000_000
        found, longest = await ask()
        assert found == limit
        assert threads[-2] == loop
        assert threads[-1] != loop
        assert longest < 0.5, "a second of computing held up all others"
        assert answers.at_once(asked, 1) is None

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_a_failure_in_the_loop_is_raised_and_the_next_one_is_answered(tmp_path: Path) -> None:
    fill(tmp_path, [])
    answers = Answers(tmp_path, lambda: now, 30)
    asked = plain(query_of("SELECT json_extract(iif(@now = 1, '{', '{}'), '$') AS found"))
    now = 2

    async def act() -> None:
        nonlocal now
        assert (await in_the_loop(answers, asked)).rows == 1
        await asyncio.sleep(0.01)
        now = 1
        with pytest.raises(apsw.SQLError, match="malformed JSON"):
            answers.at_once(asked, 1)
        with pytest.raises(apsw.SQLError, match="malformed JSON"):
            await answers.answer(asked)
        now = 2
        assert (await answers.answer(asked)).rows == 1
        assert answers.queries_waiting() == 0

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_answers_in_the_loop_see_what_others_commit_and_how_far_the_log_is_applied(tmp_path: Path) -> None:
    def value(number: int) -> bytes:
        metadata = {"project_ref": "p", "function_id": "f", "response": {}, "n": number}
        return json.dumps({"timestamp": NOW, "metadata": metadata}).encode()

    fill(tmp_path, [[Record("functions", 0, 0, NOW // 1000, value(0))]])
    answers = Answers(tmp_path, lambda: NOW, 30)
    asked = plain(load_saved_queries()["functions.invocation-stats"], project="p", function_id=None, interval=None)

    async def act() -> None:
        seen: set[str] = set()
        await in_the_loop(answers, asked)
        for number in range(1, 6):
            in_another_process(ADD, tmp_path, number, value(number).decode(), Path(__file__).parent)
            kept = await in_the_loop(answers, asked)
            assert json.loads(kept.body)["result"][0]["count"] == number + 1
            seen.add(kept.headers[COMPLETE_UNTIL])
        assert len(seen) == 5

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_all_of_one_round_of_the_loop_are_answered_from_one_state(tmp_path: Path) -> None:
    fill(tmp_path, [])
    answers = Answers(tmp_path, lambda: NOW, 30)
    query = load_saved_queries()["functions.invocation-stats"]
    asked = [plain(query, project=project, function_id=None, interval=None) for project in ("p", "q")]
    references: list[dict[str, Any]] = [
        {"project_ref": project, "function_id": "f", "response": {}} for project in ("p", "q")
    ]
    event = json.dumps([{"timestamp": NOW, "metadata": metadata} for metadata in references])

    async def act() -> None:
        for one in asked:
            await in_the_loop(answers, one)
        await asyncio.sleep(0.01)
        before = answers.at_once(asked[0], 1)
        in_another_process(ADD, tmp_path, 0, event, Path(__file__).parent)
        same = answers.at_once(asked[1], 1)
        assert before is not None
        assert same is not None
        assert (before.rows, same.rows) == (0, 0)
        assert same.headers == {**before.headers, "etag": same.tag}
        await asyncio.sleep(0)
        following = [await in_the_loop(answers, one) for one in asked]
        assert [kept.rows for kept in following] == [1, 1]
        assert COMPLETE_UNTIL in following[0].headers

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_what_fails_before_a_query_in_the_loop_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, [[Record("functions", 0, 0, NOW // 1000, b"[]")]])
    answers = Answers(tmp_path, lambda: NOW, 30)
    asked = plain(query_of("SELECT 1 AS one"))

    def failing(_: object) -> None:
        raise apsw.IOError("the disk")

    async def act() -> None:
        before = (await in_the_loop(answers, asked)).headers[COMPLETE_UNTIL]
        in_another_process(ADD, tmp_path, 1, "[]", Path(__file__).parent)
        with monkeypatch.context() as patch:
            patch.setattr("api.reader.complete_until", failing)
            for _ in range(2):
                await asyncio.sleep(0)
                with pytest.raises(apsw.IOError, match="the disk"):
                    answers.at_once(asked, 1)
        kept = answers.at_once(asked, 1)
        assert kept is not None
        assert kept.headers[COMPLETE_UNTIL] > before

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_taking_longer_is_forgiven_once_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, [])
    answers = Answers(tmp_path, lambda: NOW, 30)
    asked = plain(query_of("SELECT 1 AS one"))

    async def is_in_the_loop(quick: float) -> bool:
        await asyncio.sleep(0.01)
        monkeypatch.setattr(api.answers, "_QUICK_SECONDS", quick)
        return answers.at_once(asked, 1) is not None

    async def act() -> None:
        await in_the_loop(answers, asked)
        monkeypatch.setattr(api.answers, "_FORGIVEN_SECONDS", 10)
        assert [await is_in_the_loop(quick) for quick in (0, 10, 0, 0, 10)] == [True, True, True, True, False]
        await in_the_loop(answers, asked)
        monkeypatch.setattr(api.answers, "_FORGIVEN_SECONDS", 0)
        assert [await is_in_the_loop(quick) for quick in (0, 10)] == [True, False]

    asyncio.run(act())
    answers.close()


@pytest.mark.usefixtures("busy_machine")
def test_what_takes_long_in_the_loop_without_its_query_takes_a_thread_the_next_time(tmp_path: Path) -> None:
    fill(tmp_path, [])
    length = 10
    answers = Answers(tmp_path, lambda: length, 30)
    asked = question(query_of("SELECT printf('%.*c', @now, '1') AS text"), {}, None, True)

    async def act() -> None:
        nonlocal length
        await in_the_loop(answers, asked)
        await asyncio.sleep(0.01)
        length = 3_000_000  # which the database makes in a moment, but looking for addresses takes longer
        assert answers.at_once(asked, 1) is not None
        await asyncio.sleep(0.1)  # the loop has its turns again
        assert answers.at_once(asked, 1) is None
        assert len((await answers.answer(asked)).body) > length
        assert answers.at_once(asked, 1) is None
        length = 10
        await in_the_loop(answers, asked)

    asyncio.run(act())
    answers.close()
