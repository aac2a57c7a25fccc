"""The warmer: computes kept answers anew before somebody waits for them (specification section 8, design section 6).

One runs in the background of each API process. It asks one question at a time, only while a reader's thread is free,
and rests after each, at least as long as that took: users' queries come first, and however many answers are due at
once, however many processes there are, warming has at most half of one of each process's two threads.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from api.cache import Cache
from schema.errors import FreshetError

log = logging.getLogger("freshet.api")
_LOOK_SECONDS = 1.0  # between two looks at what is due
_SPREAD_SECONDS = 100.0  # over which answers that are due at once are spread at most
_BUSY_SECONDS = 0.05


class Warmer:
    """Keeps a cache warm between `start` and `stop`.

    `generation` tells which one answers now, `has_free_thread` whether a user's query would not have to wait.
    """

    def __init__(self, cache: Cache, generation: Callable[[], int], has_free_thread: Callable[[], bool]) -> None:
        self._cache = cache
        self._generation = generation
        self._has_free_thread = has_free_thread
        self._task: asyncio.Task[None] | None = None
        self.refreshed = 0
        self.failed = 0

    def start(self) -> None:
        """Begin; the event loop has to run."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; a computation in hand goes on without being waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def step(self) -> float | None:
        """Compute anew what is due for longest. Returns the seconds that it took, None where nothing is due."""
        if not len(self._cache):
            return None
        while not self._has_free_thread():
            await asyncio.sleep(_BUSY_SECONDS)
        try:
            self._cache.see_generation(self._generation())
            question = self._cache.due()
            if question is None:
                return None
            start = time.monotonic()
            await self._cache.refresh(question)
            self.refreshed += 1
        except FreshetError as error:
            self.failed += 1
            log.warning("an answer was not computed anew, the former one stays for its time: %s", error)
            return _LOOK_SECONDS
        return time.monotonic() - start

    async def _run(self) -> None:
        rest = _LOOK_SECONDS
        while True:
            await asyncio.sleep(rest * random.uniform(0.5, 1.5))  # noqa: S311  # processes must not keep step
            try:
                took = await self.step()
            except Exception:
                self.failed += 1
                log.exception("warming failed")
                took = None
            spread = _SPREAD_SECONDS / max(1, len(self._cache))
            rest = _LOOK_SECONDS if took is None else max(2 * took, min(_LOOK_SECONDS, spread))
