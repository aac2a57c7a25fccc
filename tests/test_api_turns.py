"""Quick queries have the event loop in turns: a moment each go, a bounded number waiting, nobody who has left."""

import asyncio
import time

import pytest

from api.turns import Turns
from schema.errors import Overloaded


def compute(turns: Turns, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    turns.took(seconds)


def test_one_go_of_the_loop_computes_for_a_moment_and_the_next_begins_anew() -> None:
    async def ask() -> None:
        turns = Turns(9)
        assert turns.free()
        compute(turns, 0.001)
        assert turns.free()
        compute(turns, 0.006)
        assert not turns.free()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns.free()

    asyncio.run(ask())


def test_who_waits_comes_in_the_order_of_asking_and_others_are_heard_meanwhile() -> None:
    async def ask() -> None:
        turns, heard = Turns(50), list[int | str]()

        async def query(number: int) -> None:
            await turns.mine()
            compute(turns, 0.002)
            heard.append(number)

        async def other() -> None:
            while len(heard) < 40:
                heard.append("other")
                await asyncio.sleep(0)

        await asyncio.gather(*(query(number) for number in range(20)), other())
        assert [number for number in heard if number != "other"] == list(range(20))
        assert heard[:20].count("other") >= 2
        assert turns.queued() == 0

    asyncio.run(ask())


def test_what_takes_longer_than_before_has_a_go_of_its_own_in_the_order_of_asking() -> None:
    async def ask() -> None:
        turns, heard = Turns(50), list[int]()
        for _ in range(20):
            turns.took(0.0001)
            await asyncio.sleep(0)
        gaps, before = list[int](), 0

        async def query(number: int) -> None:
            await turns.mine()
            turns.took(0.02)
            heard.append(number)

        async def other() -> None:
            nonlocal before
            while len(heard) < 20:
                gaps.append(len(heard) - before)
                before = len(heard)
                await asyncio.sleep(0)

        await asyncio.gather(*(query(number) for number in range(20)), other())
        assert heard == list(range(20))
        assert max(gaps) == 1

    asyncio.run(ask())


def test_no_more_wait_than_may_and_who_leaves_is_forgotten() -> None:
    async def ask() -> None:
        turns = Turns(3)

        async def first() -> None:
            compute(turns, 0.006)

        async def last() -> None:
            assert turns.queued() == 3
            with pytest.raises(Overloaded, match="too many queries"):
                await turns.mine()
            waiting[0].cancel()
            waiting[1].cancel()

        begun = asyncio.create_task(first())
        waiting = [asyncio.create_task(turns.mine()) for _ in range(3)]
        refused = asyncio.create_task(last())
        await asyncio.wait([begun, *waiting, refused])
        assert refused.exception() is None
        assert [task.cancelled() for task in waiting] == [True, True, False]
        assert turns.queued() == 0
        await asyncio.wait_for(turns.mine(), 1)

    asyncio.run(ask())


def test_answers_get_as_much_time_as_refusals() -> None:
    async def ask() -> tuple[int, int]:
        turns, answered, refused = Turns(8), 0, 0
        end = time.perf_counter() + 0.5

        async def client() -> None:
            nonlocal answered, refused
            while time.perf_counter() < end:
                time.sleep(0.0002)  # what a request costs, answered or not
                try:
                    await turns.mine()
                except Overloaded:
                    refused += 1
                    await asyncio.sleep(0)
                    continue
                compute(turns, 0.001)
                answered += 1
                await asyncio.sleep(0)

        await asyncio.gather(*(client() for _ in range(100)))
        return answered, refused

    answered, refused = asyncio.run(ask())
    assert refused > 0
    assert answered * 0.001 > 0.4 * (answered + refused) * 0.0002, "seconds of answering, and of what all requests cost"
