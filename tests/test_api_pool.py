"""Queries run few at a time, wait in a bounded number and for a bounded time, and are refused beyond that."""

import asyncio
import threading
import time

import pytest

from api.pool import Pool
from schema.errors import Overloaded


def test_no_more_run_than_there_are_threads_and_no_more_wait_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return 1

    async def ask() -> list[int | BaseException]:
        pool = Pool(2, 5)
        try:
            return await asyncio.gather(*(pool.run(work) for _ in range(30)), return_exceptions=True)
        finally:
            pool.close()

    results = asyncio.run(ask())
    assert most == 2
    assert results[:7] == [1] * 7
    assert all(isinstance(result, Overloaded) for result in results[7:])


def test_whoever_waits_too_long_is_refused_and_its_place_is_free_again() -> None:
    async def ask() -> None:
        pool, release = Pool(1, 1, wait_seconds=0.1), threading.Event()
        running = asyncio.create_task(pool.run(release.wait))
        await asyncio.sleep(0)
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(Overloaded, match=r"no query ended within 0\.1 s"):
                await pool.run(lambda: 1)
            assert 0.05 < time.monotonic() - begun < 2
        release.set()
        assert await running is True
        assert await pool.run(lambda: 2) == 2
        pool.close()

    asyncio.run(ask())


def test_who_leaves_while_waiting_frees_its_place_but_a_thread_is_taken_until_it_is_done() -> None:
    async def ask() -> None:
        pool, release, calls = Pool(1, 1), threading.Event(), []
        running = asyncio.create_task(pool.run(release.wait))
        waiting = asyncio.create_task(pool.run(lambda: calls.append("waited")))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded):
            await pool.run(lambda: 1)
        waiting.cancel()
        running.cancel()
        await asyncio.sleep(0.01)
        assert waiting.cancelled()
        assert running.cancelled()
        after = asyncio.create_task(pool.run(lambda: 3))
        await asyncio.sleep(0.01)
        assert not after.done()
        with pytest.raises(Overloaded):
            await pool.run(lambda: 1)
        release.set()
        assert await after == 3
        assert calls == []
        pool.close()

    asyncio.run(ask())


def test_what_a_call_raises_is_raised_and_frees_the_thread() -> None:
    def fail() -> None:
        raise ValueError("it")

    async def ask() -> None:
        pool = Pool(1, 0)
        for _ in range(3):
            with pytest.raises(ValueError, match="it"):
                await pool.run(fail)
        assert await pool.run(lambda: 1) == 1
        pool.close()

    asyncio.run(ask())
