"""The warmer: what it computes anew and when, that users come first, and that processes keep out of step."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from test_api_cache import LIFE, PERIOD, Database, ask, body, settle

from api import warmer as module
from api.cache import HIT, Cache
from api.warmer import Warmer
from schema.errors import StoreMissing
from schema.timestamps import SECOND


class Warmed:
    """A cache with a warmer, on a database that is idle, and a generation that a test may change."""

    def __init__(self) -> None:
        self.database = Database()
        self.generation = 1
        self.idle = True
        self.cache: Cache = self.database.cache()
        self.warmer = Warmer(self.cache, lambda: self.generation, lambda: self.idle)

    async def warm(self) -> int:
        """Step until nothing is due; how often the database was asked."""
        before = self.database.asked
        while await self.warmer.step() is not None:
            pass
        return self.database.asked - before


def run(act: Callable[[Warmed], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await act(Warmed())

    asyncio.run(main())


def test_an_answer_is_computed_anew_every_period_as_long_as_it_was_used_within_its_lifetime() -> None:
    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.now += PERIOD * SECOND - 1
        assert await warmed.warm() == 0
        warmed.database.now += 1
        assert await warmed.warm() == 1
        assert await warmed.warm() == 0
        warmed.database.now += PERIOD * SECOND
        assert await warmed.warm() == 1
        assert await body(warmed.cache.answer(ask(), 1)) == (b"3", HIT)
        for _ in range(LIFE // PERIOD):
            warmed.database.now += PERIOD * SECOND
            assert await warmed.warm() == 1
        for _ in range(5):
            warmed.database.now += PERIOD * SECOND
            assert await warmed.warm() == 0
        assert len(warmed.cache) == 0

    run(act)


def test_a_refresh_gives_an_answer_a_new_life() -> None:
    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.now += 800 * SECOND
        assert await warmed.warm() == 1
        warmed.database.now += LIFE * SECOND - 1
        assert await body(warmed.cache.answer(ask(), 1)) == (b"2", HIT)

    run(act)


def test_a_refresh_that_fails_keeps_the_last_good_answer_until_its_life_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.fails = True
        for _ in range(2):
            warmed.database.now += PERIOD * SECOND
            assert await warmed.warm() == 1
            assert await body(warmed.cache.answer(ask(), 1)) == (b"1", HIT)
        warmed.database.now += PERIOD * SECOND - 1
        assert await body(warmed.cache.answer(ask(), 1)) == (b"1", HIT)
        warmed.database.now += 1
        warmed.database.fails = False
        assert (await body(warmed.cache.answer(ask(), 1)))[0] == b"4"
        assert (warmed.warmer.failed, warmed.warmer.refreshed) == (2, 0)

    run(act)
    assert "too long" in caplog.text


def test_a_user_waits_with_the_warmer_rather_than_asking_twice() -> None:
    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.now += LIFE * SECOND
        warmed.database.gate.clear()
        step = asyncio.create_task(warmed.warmer.step())
        await settle()
        user = asyncio.create_task(body(warmed.cache.answer(ask(), 1)))
        await settle()
        warmed.database.gate.set()
        assert (await user)[0] == b"2"
        await step
        assert warmed.database.asked == 2

    run(act)


def test_the_warmer_waits_while_users_have_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0)

    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.now += PERIOD * SECOND
        warmed.idle = False
        step = asyncio.create_task(warmed.warmer.step())
        await settle()
        assert not step.done()
        assert warmed.database.asked == 1
        warmed.idle = True
        await step
        assert warmed.database.asked == 2

    run(act)


def test_another_generation_has_nothing_to_warm() -> None:
    async def act(warmed: Warmed) -> None:
        await warmed.cache.answer(ask(), 1)
        warmed.database.now += PERIOD * SECOND
        warmed.generation = 2
        assert await warmed.warm() == 0
        assert len(warmed.cache) == 0

    run(act)


def test_a_store_that_is_gone_stops_neither_the_warmer_nor_answers() -> None:
    async def act(warmed: Warmed) -> None:
        def missing() -> int:
            raise StoreMissing("gone")

        await warmed.cache.answer(ask(), 1)
        warmed.database.now += PERIOD * SECOND
        lost = Warmer(warmed.cache, missing, lambda: True)
        await lost.step()
        assert lost.failed == 1
        assert await warmed.warm() == 1

    run(act)


def test_it_runs_by_itself_goes_on_after_failures_and_asks_one_question_at_a_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rests: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await real_sleep(0)

    async def act(warmed: Warmed) -> None:
        for number in range(5):
            await warmed.cache.answer(ask(number), 1)
        warmed.database.now += PERIOD * SECOND
        due, together, most = warmed.cache.due, 0, 0
        compute = warmed.database.compute

        def fail_once() -> Any:
            warmed.cache.due = due  # type: ignore[method-assign]
            raise RuntimeError("unforeseen")

        async def count(question: Any) -> Any:
            nonlocal together, most
            together += 1
            most = max(most, together)
            await settle()
            together -= 1
            return await compute(question)

        warmed.cache.due = fail_once  # type: ignore[method-assign]
        warmed.cache._compute = count
        monkeypatch.setattr(asyncio, "sleep", sleep)
        warmed.warmer.start()
        while warmed.warmer.refreshed < 5:
            await real_sleep(0.001)
        await warmed.warmer.stop()
        assert (warmed.database.asked, most, warmed.warmer.failed) == (10, 1, 1)

    run(act)
    assert "unforeseen" in caplog.text
    pauses = [rest for rest in rests if rest > 0]
    assert all(0.5 <= rest <= 1.5 for rest in pauses)
    assert len(set(pauses)) == len(pauses) >= 6
