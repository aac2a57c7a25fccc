"""The event loop's turns: quick queries are computed in it, for a moment between two looks at the connections."""

import asyncio
import time
from collections import deque

from schema.errors import Overloaded

_SECONDS, _MOST_SECONDS = 0.005, 0.05
"""How long one go of the loop computes, at least and at most: with more, kept answers would wait for it."""
_WEIGHT = 0.1  # of a computation in what one is expected to take


class Turns:
    """Who may compute now, and who waits; so many may. It belongs to one event loop.

    Computing gets as much time as all else did in the go before, so that where more is asked than can be answered
    refusing does not take all of it.
    """

    def __init__(self, waiting: int) -> None:
        self._most = waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._left = _SECONDS
        self._used = 0.0
        self._expected = 0.0
        self._since = 0.0
        self._again = 0
        """How many of those that were let in have to wait for the next go, as the first of it."""
        self._armed = False

    def free(self) -> bool:
        """Whether something may be computed at once: nobody waits, and this go of the loop has time left."""
        return self._used < self._left and not self._waiting

    def queued(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def mine(self) -> None:
        """Wait for a turn. Raises Overloaded where too many do already. Who leaves meanwhile is forgotten."""
        if self.free():
            return
        if len(self._waiting) >= self._most:
            raise Overloaded("too many queries are waiting already: try again in a moment")
        place = len(self._waiting)
        while True:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.insert(place, turn)
            self._arm()
            await turn
            if self._used < self._left:
                return
            place = self._again  # those before it took longer than they were expected to
            self._again += 1

    def took(self, seconds: float) -> None:
        """Something was computed in a turn, for so long."""
        self._used += seconds
        self._expected += _WEIGHT * (seconds - self._expected)
        self._arm(seconds)

    def _arm(self, since: float = 0.0) -> None:
        """Begin the next go soon; this one began so many seconds ago."""
        if not self._armed:
            self._armed = True
            self._since = time.perf_counter() - since
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next go, and let those in who fit into its time."""
        self._armed = False
        others = time.perf_counter() - self._since - self._used
        self._left = min(max(_SECONDS, others), _MOST_SECONDS)
        self._used = expected = 0.0
        self._again = 0
        while self._waiting and expected < self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                expected += self._expected
        if self._waiting:
            self._arm()
