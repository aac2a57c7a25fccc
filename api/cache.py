"""The cache of answers in one API process's memory (specification section 8, design section 6).

One caller computes an answer, the others wait for it. An answer is given as long as it is younger than its endpoint's
`cache_seconds`, by the injected clock. A computation that fails is told to all who wait and leaves what is there.

Everything here runs in the event loop's thread; only `compute` leaves it. What `at_once` answers is computed before
anybody else is heard, so there is nobody to share it with.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from api.questions import Kept, Question
from schema.clock import Clock
from schema.timestamps import SECOND

HIT, MISS, SHARED, FRESH, BYPASS = "hit", "fwd=miss", "fwd=miss; collapsed", "fwd=request", "fwd=bypass"
"""Where an answer came from, as `Cache-Status` says it (RFC 9211)."""
_ENTRY_BYTES = 3000  # what an entry takes beside its body: tests/test_api_cache.py holds it against the real memory


@dataclass(slots=True)
class Entry:
    """A kept answer, when somebody last asked for it (µs), its bytes of memory, and those of all but its body."""

    answer: Kept
    used_at: int
    size: int
    beside: int


def _never(_: Question, __: int) -> None:
    return None


class Cache:
    """Keeps answers within so many bytes, those used last.

    `compute` gives a new one; `at_once` too where that takes no waiting, else None.
    """

    def __init__(
        self,
        compute: Callable[[Question], Awaitable[Kept]],
        clock: Clock,
        max_bytes: int,
        at_once: Callable[[Question, int], Kept | None] = _never,
    ) -> None:
        self._compute = compute
        self._at_once = at_once
        self._clock = clock
        self._max_bytes = max_bytes
        self._generation = 0
        self._entries: OrderedDict[Question, Entry] = OrderedDict()  # the one used last stands last
        self._warming: dict[int, OrderedDict[Question, int]] = {}  # by period in seconds: since when, in that order
        self._running: dict[Question, asyncio.Task[Kept]] = {}
        self._next: dict[Question, asyncio.Task[Kept]] = {}
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def see_generation(self, generation: int) -> None:
        """Forget everything where another generation answers now; computations under way are not kept either."""
        if generation != self._generation:
            self._generation = generation
            self._entries.clear()
            self._warming.clear()
            self._running = {}
            self._next = {}
            self.bytes = 0

    async def answer(self, question: Question, generation: int, fresh: bool = False) -> tuple[Kept, str]:
        """An answer of this generation, and where it came from.

        `fresh` takes only a computation that begins after this call; those who ask so meanwhile share the next one.
        Raises what `compute` raises.
        """
        query = question.query
        if query.cache_seconds is None:
            self.misses += 1
            return self._at_once(question, generation) or await self._compute(question), BYPASS
        now = self._clock()
        self.see_generation(generation)
        entry = self._entries.get(question)
        if entry is not None:
            entry.used_at = now
            self._entries.move_to_end(question)
            if not fresh and 0 <= now - entry.answer.as_of < query.cache_seconds * SECOND:
                self.hits += 1
                return entry.answer, HIT
        self.misses += 1
        running = self._running.get(question)
        if running is None:
            answer = self._at_once(question, generation)
            if answer is not None:
                self._keep(question, answer)
                return answer, FRESH if fresh else MISS
            task, origin = self._begin(question), FRESH if fresh else MISS
        elif not fresh:
            task, origin = running, SHARED
        else:
            task, origin = self._next.get(question) or self._begin(question, after=running), FRESH
        return await asyncio.shield(task), origin

    def due(self) -> Question | None:
        """The answer that waits longest for being computed anew; one that nobody used for its lifetime is left."""
        now = self._clock()
        for period, waiting in self._warming.items():
            while waiting:
                question, since = next(iter(waiting.items()))
                if 0 <= now - since < period * SECOND:
                    break
                waiting[question] = now
                waiting.move_to_end(question)
                lifetime = (question.query.cache_seconds or 0) * SECOND
                if 0 <= now - self._entries[question].used_at <= lifetime:
                    return question
                if now - self._entries[question].answer.as_of >= lifetime:
                    self._drop(question)
        return None

    async def refresh(self, question: Question) -> None:
        """Compute an answer anew, unless that is being done. Raises what `compute` raises; the old one stays then."""
        await asyncio.shield(self._running.get(question) or self._begin(question))

    def _begin(self, question: Question, after: asyncio.Task[Kept] | None = None) -> asyncio.Task[Kept]:
        """Start a computation, now or as soon as another one is done, that goes on whoever waits for it leaves."""
        task = asyncio.create_task(self._run(question, self._generation, after))
        (self._running if after is None else self._next)[question] = task
        task.add_done_callback(_told)
        return task

    async def _run(self, question: Question, generation: int, after: asyncio.Task[Kept] | None) -> Kept:
        if after is not None:
            await asyncio.wait([after])
            if generation != self._generation:  # a computation of the one that answers now has begun late enough
                return await (self._running.get(question) or self._begin(question))
        try:
            answer = await self._compute(question)
            if generation == self._generation:
                self._keep(question, answer)
            return answer
        finally:
            if self._running.get(question) is asyncio.current_task():
                del self._running[question]
                if question in self._next:
                    self._running[question] = self._next.pop(question)

    def _keep(self, question: Question, answer: Kept) -> None:
        entry = self._entries.get(question)
        beside = question.size + _ENTRY_BYTES if entry is None else entry.beside
        size = len(answer.body) + beside
        if size > self._max_bytes:
            self._drop(question)
            return
        if entry is None:
            entry = self._entries[question] = Entry(answer, answer.as_of, 0, beside)  # a refresh is no use of it
        self.bytes += size - entry.size
        entry.answer, entry.size = answer, size
        if question.query.warming_seconds is not None:
            waiting = self._warming.setdefault(question.query.warming_seconds, OrderedDict())
            waiting[question] = answer.as_of
            waiting.move_to_end(question)
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, question: Question) -> None:
        entry = self._entries.pop(question, None)
        if entry is not None:
            self.bytes -= entry.size
            if question.query.warming_seconds is not None:
                self._warming[question.query.warming_seconds].pop(question, None)


def _told(task: asyncio.Task[Kept]) -> None:
    """Take note of a failure, so that asyncio does not complain where everybody who waited has left."""
    if not task.cancelled():
        task.exception()
