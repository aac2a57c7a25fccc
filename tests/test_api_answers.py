"""An answer's body, and the computing of answers in threads of their own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from oracle import Record
from test_api_reader import NOW, fill, query_of

from api.answers import Answers
from api.bodies import body
from api.cache import Cache
from api.questions import Kept, Question, question
from api.reader import Answer, Reader
from schema.errors import QueryTimeout, StoreMissing
from schema.saved_queries import SavedQuery, load_saved_queries
from schema.timestamps import SECOND

PLAIN = query_of("SELECT 1")
WITH_JSON = query_of("-- column: more json or null\nSELECT 1", column="metadata json or null")


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
        for time in values:
            metadata: dict[str, Any] = {"project_ref": "p", "function_id": function, "execution_time_ms": time}
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
