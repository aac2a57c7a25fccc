"""The cache: how long answers are kept, who computes, what a failure costs, and how much memory it takes."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_api_reader import NOW, query_of

from api.cache import _ENTRY_BYTES, BYPASS, FRESH, HIT, MISS, SHARED, Cache
from api.questions import Kept, Question, question
from schema.errors import QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.timestamps import SECOND

LIFE, PERIOD = 900, 300
MINE = query_of("SELECT 1", cache_seconds=LIFE, warming_seconds=PERIOD)
BIG = 1 << 30
QUERIES = load_saved_queries()


def ask(number: int = 0) -> Question:
    return question(MINE, {"n": number}, None, False)


class Database:
    """What the cache asks: answers tell how often it was asked before; a test holds them back or has them fail."""

    def __init__(self) -> None:
        self.now = NOW
        self.asked = 0
        self.fails = False
        self.size = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def clock(self) -> int:
        return self.now

    async def compute(self, asked: Question) -> Kept:
        self.asked += 1
        number, fails, as_of = self.asked, self.fails, self.now
        await self.gate.wait()
        await asyncio.sleep(0)
        if fails:
            raise QueryTimeout("too long")
        return Kept(b"%d" % number + bytes(self.size), "", as_of, {}, 0)

    def cache(self, max_bytes: int = BIG) -> Cache:
        return Cache(self.compute, self.clock, max_bytes)


def run(act: Callable[[Database], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await act(Database())

    asyncio.run(main())


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def body(answer: Awaitable[tuple[Kept, str]]) -> tuple[bytes, str]:
    kept, origin = await answer
    return kept.body, origin


def test_an_answer_is_kept_until_it_is_as_old_as_its_endpoint_allows() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        assert await body(cache.answer(ask(), 1)) == (b"1", MISS)
        database.now += LIFE * SECOND - 1
        assert await body(cache.answer(ask(), 1)) == (b"1", HIT)
        database.now += 1
        assert await body(cache.answer(ask(), 1)) == (b"2", MISS)
        assert (database.asked, cache.hits, cache.misses) == (2, 1, 2)

    run(act)


def test_an_answer_from_the_future_is_not_taken() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        await cache.answer(ask(), 1)
        database.now -= 1
        assert await body(cache.answer(ask(), 1)) == (b"2", MISS)

    run(act)


def test_nothing_is_kept_for_an_endpoint_without_a_cache() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        asked = question(query_of("SELECT 1"), {}, None, False)
        assert [await body(cache.answer(asked, 1)) for _ in range(3)] == [(b"%d" % n, BYPASS) for n in (1, 2, 3)]
        assert len(cache) == 0

    run(act)


def test_one_computes_and_the_others_wait() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        database.gate.clear()
        waiting = [asyncio.create_task(body(cache.answer(ask(), 1))) for _ in range(50)]
        await settle()
        database.gate.set()
        assert await asyncio.gather(*waiting) == [(b"1", MISS), *[(b"1", SHARED)] * 49]
        assert database.asked == 1

    run(act)


def test_a_failure_is_told_to_all_who_wait_and_not_kept() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        database.fails = True
        waiting = [asyncio.create_task(cache.answer(ask(), 1)) for _ in range(3)]
        failures = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(failure) for failure in failures] == [QueryTimeout] * 3
        database.fails = False
        assert await body(cache.answer(ask(), 1)) == (b"2", MISS)

    run(act)


@pytest.mark.parametrize("fails", [False, True])
def test_who_leaves_does_not_take_the_computation_along(fails: bool) -> None:
    async def act(database: Database) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        cache = database.cache()
        database.gate.clear()
        database.fails = fails
        first = asyncio.create_task(cache.answer(ask(), 1))
        await settle()
        first.cancel()
        await settle()
        if not fails:
            second = asyncio.create_task(body(cache.answer(ask(), 1)))
            await settle()
            database.gate.set()
            assert await second == (b"1", SHARED)
        database.gate.set()
        await settle()
        gc.collect()
        assert not complaints
        database.fails = False
        assert await body(cache.answer(ask(), 1)) == ((b"2", MISS) if fails else (b"1", HIT))

    run(act)


def test_a_fresh_answer_is_computed_after_it_was_asked_for_and_kept() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        await cache.answer(ask(), 1)
        assert await body(cache.answer(ask(), 1, fresh=True)) == (b"2", FRESH)
        assert await body(cache.answer(ask(), 1)) == (b"2", HIT)
        database.fails = True
        with pytest.raises(QueryTimeout):
            await cache.answer(ask(), 1, fresh=True)
        assert await body(cache.answer(ask(), 1)) == (b"2", HIT)

    run(act)


def test_those_who_want_fresh_answers_share_the_next_computation_never_the_running_one() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        database.gate.clear()
        running = asyncio.create_task(body(cache.answer(ask(), 1)))
        await settle()
        fresh = [asyncio.create_task(body(cache.answer(ask(), 1, fresh=True))) for _ in range(20)]
        await settle()
        plain = asyncio.create_task(body(cache.answer(ask(), 1)))
        await settle()
        assert database.asked == 1
        database.gate.set()
        assert await running == (b"1", MISS)
        assert await plain == (b"1", SHARED)
        assert await asyncio.gather(*fresh) == [(b"2", FRESH)] * 20
        assert await body(cache.answer(ask(), 1)) == (b"2", HIT)
        assert database.asked == 2

    run(act)


def test_another_generation_forgets_everything_even_what_is_being_computed() -> None:
    async def act(database: Database) -> None:
        cache = database.cache()
        await cache.answer(ask(1), 1)
        database.gate.clear()
        old = asyncio.create_task(body(cache.answer(ask(2), 1)))
        await settle()
        new = asyncio.create_task(body(cache.answer(ask(2), 2)))
        await settle()
        database.gate.set()
        assert (await old, await new) == ((b"2", MISS), (b"3", MISS))
        assert await body(cache.answer(ask(2), 2)) == (b"3", HIT)
        assert await body(cache.answer(ask(1), 2)) == (b"4", MISS)

    run(act)


def test_questions_that_mean_the_same_share_an_answer_and_others_do_not() -> None:
    statistics, counts, logs = (
        QUERIES[name] for name in ("functions.invocation-stats", "usage.api-counts", "logs.all")
    )

    def of(query: Any, projects: frozenset[str] | None = None, redact: bool = False, **given: Any) -> Question:
        parameters = {parameter.name: given.get(parameter.name) for parameter in query.parameters}
        return question(query, {**parameters, "project": "p"}, projects, redact)

    assert of(statistics) == of(statistics, interval="1day") == of(statistics, interval="nonsense")
    assert len({of(statistics, interval=word) for word in ("5min", "15min", "1hr", "1day", "7day")}) == 5
    assert of(statistics) != of(statistics, function_id="f")
    assert of(counts, interval="minutely") == of(counts, interval="1hr") != of(counts, interval="hourly")
    assert of(logs) == of(logs, project_tier="FREE") == of(logs, project_tier="free") != of(logs, project_tier="PRO")
    assert of(logs) != of(logs, iso_timestamp_start=1) != of(logs, iso_timestamp_end=1)
    everybody = [None, frozenset[str](), frozenset({"p"}), frozenset({"p", "q"})]
    assert len({of(statistics, projects, redact) for projects in everybody for redact in (False, True)}) == 8


def test_the_answers_used_last_stay_within_the_bytes_allowed() -> None:
    async def act(database: Database) -> None:
        database.size = 10_000
        cache = database.cache(4 * (10_000 + _ENTRY_BYTES + 200))
        for number in range(4):
            await cache.answer(ask(number), 1)
        await cache.answer(ask(0), 1)
        await cache.refresh(ask(1))  # a refresh is no use
        await cache.answer(ask(4), 1)
        await cache.answer(ask(5), 1)
        assert [question.parameters["n"] for question in cache._entries] == [3, 0, 4, 5]
        database.size = 1 << 20
        await cache.answer(ask(6), 1)  # too large by itself
        assert [question.parameters["n"] for question in cache._entries] == [3, 0, 4, 5]
        await cache.refresh(ask(0))
        assert [question.parameters["n"] for question in cache._entries] == [3, 4, 5]

    run(act)


@pytest.mark.parametrize("size", [0, 500, 20_000])
def test_the_memory_that_answers_take_is_counted_in_full(size: int) -> None:
    async def act(database: Database) -> None:
        database.size = size
        cache = database.cache(2 << 20)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        for number in range(3000):
            text = f"{number}" * 20
            scope = frozenset({f"a{number}", f"b{number}"})
            await cache.answer(question(MINE, {"project": text, "function_id": text[1:]}, scope, False), 1)
        gc.collect()
        taken = sum(line.size_diff for line in tracemalloc.take_snapshot().compare_to(before, "filename"))
        tracemalloc.stop()
        assert len(cache) < 3000
        assert 0.2 * cache.bytes < taken < cache.bytes <= 2 << 20

    run(act)


class Caching(RuleBasedStateMachine):
    """The cache under a moving clock, against the simplest thing that could be right."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = Database()
        self.cache = self.database.cache()
        self.generation = 1
        self.kept: dict[int, tuple[bytes, int]] = {}  # body and time by question
        self.used: dict[int, int] = {}
        self.decided: dict[int, int] = {}  # since when an answer waits for the warmer

    def teardown(self) -> None:
        self.loop.close()

    def compute(self, number: int) -> bytes:
        found = b"%d" % self.database.asked
        self.kept[number] = (found, self.database.now)
        self.decided[number] = self.database.now
        return found

    @rule(seconds=st.sampled_from((1, 60, 299, 300, 301, 599, 600, 899, 900, 901)), micros=st.integers(-1, 1))
    def time_passes(self, seconds: int, micros: int) -> None:
        self.database.now += seconds * SECOND + micros

    @rule(number=st.integers(0, 3), fresh=st.booleans(), fails=st.booleans())
    def somebody_asks(self, number: int, fresh: bool, fails: bool) -> None:
        database, before = self.database, self.database.asked
        database.fails = fails
        body, at = self.kept.get(number, (b"", -LIFE * SECOND))
        if number in self.kept:
            self.used[number] = database.now
        valid = not fresh and database.now - at < LIFE * SECOND
        try:
            kept, origin = self.loop.run_until_complete(self.cache.answer(ask(number), self.generation, fresh))
        except QueryTimeout:
            assert fails
            assert not valid
            return
        assert (origin, database.asked) == ((HIT, before) if valid else (FRESH if fresh else MISS, before + 1))
        assert kept.body == (body if valid else self.compute(number))
        self.used[number] = database.now

    @rule(fails=st.booleans())
    def the_warmer_looks(self, fails: bool) -> None:
        """Everything that waits for longer than the period is decided upon; what was used is computed anew."""
        database, refreshed = self.database, set()
        database.fails = fails
        wanted = {number for number, since in self.decided.items() if database.now - since >= PERIOD * SECOND}
        due = {number for number in wanted if database.now - self.used[number] <= LIFE * SECOND}
        for number in wanted:
            self.decided[number] = database.now
            if number not in due and database.now - self.kept[number][1] >= LIFE * SECOND:
                for about in (self.decided, self.kept, self.used):
                    del about[number]
        while (asked := self.cache.due()) is not None:
            number = next(number for number in range(4) if ask(number) == asked)
            refreshed.add(number)
            try:
                self.loop.run_until_complete(self.cache.refresh(asked))
            except QueryTimeout:
                assert fails
            else:
                self.compute(number)
        assert refreshed == due

    @precondition(lambda self: self.kept)
    @rule()
    def another_generation_answers(self) -> None:
        self.generation += 1
        self.cache.see_generation(self.generation)
        for about in (self.kept, self.used, self.decided):
            about.clear()

    @invariant()
    def nothing_is_left_over(self) -> None:
        assert {question.parameters["n"] for question in self.cache._entries} == set(self.kept)
        assert not self.cache._running
        assert not self.cache._next
        assert self.cache.bytes == sum(entry.size for entry in self.cache._entries.values())


class Crowd(RuleBasedStateMachine):
    """Many who ask at once, leave and wait, while computations end in their time: who gets which."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.cache = Cache(self.compute, lambda: NOW + self.begun, BIG)
        self.generation = 1
        self.begun = 0
        self.running: dict[int, tuple[Question, int, asyncio.Future[Kept]]] = {}  # question, generation, end by number
        self.waiting: list[
            tuple[asyncio.Task[tuple[Kept, str]], bool, int, int]
        ] = []  # fresh, begun before, generation

    def teardown(self) -> None:
        while self.running:
            self.one_ends(0, False)
        self.a_question_is_computed_once_at_a_time_and_fresh_means_begun_afterwards()
        self.loop.close()
        assert not self.waiting

    async def compute(self, asked: Question) -> Kept:
        self.begun += 1
        end: asyncio.Future[Kept] = self.loop.create_future()
        self.running[self.begun] = (asked, self.generation, end)
        return await end

    def settle(self) -> None:
        self.loop.run_until_complete(settle())

    @rule(number=st.integers(0, 1), fresh=st.booleans(), crowd=st.integers(1, 3))
    def some_ask(self, number: int, fresh: bool, crowd: int) -> None:
        for _ in range(crowd):
            task = self.loop.create_task(self.cache.answer(ask(number), self.generation, fresh))
            self.waiting.append((task, fresh, self.begun, self.generation))
        self.settle()

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 3), fails=st.booleans())
    def one_ends(self, which: int, fails: bool) -> None:
        number = sorted(self.running)[which % len(self.running)]
        _, _, end = self.running.pop(number)
        if fails:
            end.set_exception(QueryTimeout(str(number)))
        else:
            end.set_result(Kept(b"%d" % number, "", NOW + number, {}, 0))
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 9))
    def one_leaves(self, which: int) -> None:
        task, *_ = self.waiting.pop(which % len(self.waiting))
        task.cancel()
        self.settle()

    @rule()
    def another_generation_answers(self) -> None:
        self.generation += 1
        self.cache.see_generation(self.generation)

    @invariant()
    def a_question_is_computed_once_at_a_time_and_fresh_means_begun_afterwards(self) -> None:
        now = [(asked, generation) for asked, generation, _ in self.running.values() if generation == self.generation]
        assert len(now) == len(set(now))
        for waiter in [waiter for waiter in self.waiting if waiter[0].done()]:
            self.waiting.remove(waiter)
            task, fresh, before, _ = waiter
            failure = task.exception()
            number = int(str(failure)) if failure is not None else int(task.result()[0].body)
            assert number not in self.running
            assert number > before or not fresh

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        for task, *_ in self.waiting:
            assert self.running or task.done()


Crowd.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCrowd = Crowd.TestCase
Caching.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCaching = Caching.TestCase
