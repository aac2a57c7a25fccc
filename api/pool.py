"""The threads that run queries: few at a time, a bounded number waiting, the rest refused at once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from schema.errors import Overloaded

WAIT_SECONDS = 2.0
"""How long a query waits for a thread before it is refused."""
T = TypeVar("T")


class Pool:
    """So many threads, before which so many calls may wait. It belongs to one event loop."""

    def __init__(self, threads: int, waiting: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reader")
        self._free = asyncio.Semaphore(threads)
        self._room = threads + waiting
        self._waiting = waiting
        self._wait_seconds = wait_seconds

    async def run(self, function: Callable[[], T]) -> T:
        """What the function returns, called in a thread. Raises Overloaded where it would wait too long for one.

        Whoever asked may leave: a call that waits is forgotten then, one that runs keeps its thread until it is done.
        """
        if self._room == 0:
            raise Overloaded("too many queries are running and waiting already: try again in a moment")
        self._room -= 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            self._room += 1
            raise Overloaded(f"no query ended within {self._wait_seconds:g} s: try again in a moment") from None
        except asyncio.CancelledError:
            self._room += 1
            raise
        running = asyncio.get_running_loop().run_in_executor(self._threads, function)
        running.add_done_callback(self._done)
        return await asyncio.shield(running)

    def has_free_thread(self) -> bool:
        """Whether a call would be taken up at once."""
        return self._room > self._waiting

    def queued(self) -> int:
        """How many calls wait for a thread."""
        return max(0, self._waiting - self._room)

    def close(self) -> None:
        """Let the queries in hand finish."""
        self._threads.shutdown()

    def _done(self, running: "asyncio.Future[T]") -> None:
        self._room += 1
        self._free.release()
        if not running.cancelled():
            running.exception()  # has been seen, even where nobody waits any more
