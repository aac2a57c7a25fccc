"""Answers computed from the tables: in threads of their own, the quick ones in the event loop.

SQLite gives Python's lock away at each row, and in a busy process a thread waits for it each time: 90 µs of a query
become 800. So what was quick the last time is computed in the loop, where nobody takes the lock; it has so much time
there, and takes a thread where that is not enough. docs/decisions/0005-readers.md has the figures.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from functools import partial
from pathlib import Path

import apsw
import falcon
from xxhash import xxh3_128_hexdigest

from api.bodies import MetadataShape, body, row_count
from api.freshness import COMPLETE_UNTIL, time_text
from api.meters import QUERY_SECONDS
from api.pool import Pool
from api.questions import Kept, Question
from api.reader import Reader, Searches
from api.redaction import HEADER as REDACTION_HEADER
from api.turns import Turns
from schema.clock import Clock
from schema.errors import QueryTimeout

_THREADS = 2  # with a connection each; docs/decisions/0005-readers.md
_QUICK_SECONDS = 0.002
"""Of CPU time: the longest that a query may take to be called quick."""
_FORGIVEN_SECONDS = 0.02
"""Once in a row it may take so long: the first after a commit looks for new origins, and searches what has come."""
_MOST_SECONDS = 0.05
"""How long a query that was quick may hold up the event loop; one that takes longer begins anew in a thread."""
_MOST_QUICK = 4096  # questions remembered
_HEADERS = {
    "content-type": falcon.MEDIA_JSON,
    "cache-control": "private, max-age=0, must-revalidate",
    "vary": f"Authorization, X-API-KEY, {REDACTION_HEADER}",
}


class Answers:
    """Computes answers as of now. What keeps answers for later goes in front of it (api/cache.py)."""

    def __init__(
        self, data: Path, clock: Clock, query_seconds: float, shape: MetadataShape = "as-sent", waiting: int = 32
    ) -> None:
        self._data = data
        self._clock = clock
        self._seconds = query_seconds
        self._shape = shape
        self._searches = Searches()
        self._pool = Pool(_THREADS, waiting)
        self._turns = Turns(waiting)
        self.has_free_thread = self._pool.has_free_thread
        self._quick: OrderedDict[Question, bool] = OrderedDict()
        """Those to be computed in the loop, and whether they were quick the last time, too."""
        self._own = Reader(data, self._searches, hurried=True)
        self._holding = False
        self._local = threading.local()
        self._readers = [self._own]
        self.computed = 0
        """How often the database was asked."""

    async def answer(self, question: Question) -> Kept:
        """The answer as of now. Raises what `Reader.run`, `Turns.mine` and `Pool.run` raise."""
        if question in self._quick:
            await self._turns.mine()
            in_the_loop = self._in_the_loop(question)
            if in_the_loop is not None:
                return in_the_loop
        self.computed += 1
        kept, seconds = await self._pool.run(partial(self._in_a_thread, question))
        self._note(question, seconds)
        return kept

    def at_once(self, question: Question, generation: int) -> Kept | None:
        """The answer of this generation as of now, computed before this returns; None where it has to be waited for.

        Raises what `Reader.run` raises.
        """
        return self._in_the_loop(question, generation) if question in self._quick and self._turns.free() else None

    def queries_waiting(self) -> int:
        """How many queries wait for a thread or a turn in the loop."""
        return self._pool.queued() + self._turns.queued()

    def background_searches(self) -> int:
        """How many searches go on, or wait, past their time limit."""
        return self._searches.background.count()

    def close(self) -> None:
        """Let the query in hand finish, give up what is searched in the background, and close the files."""
        self._searches.background.close()
        self._pool.close()
        for reader in self._readers:
            reader.close()

    def _in_the_loop(self, question: Question, generation: int | None = None) -> Kept | None:
        self.computed += 1
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            if not self._holding:
                self._hold(generation)
            kept = self._answer(self._own, question, _MOST_SECONDS, generation)
        except (QueryTimeout, apsw.BusyError):
            self._quick.pop(question, None)
            return None
        finally:
            took = time.perf_counter() - began
            self._turns.took(took)
        self._note(question, time.thread_time() - cpu)
        return kept

    def _hold(self, generation: int | None) -> None:
        """Answer all questions of this round of the loop from one state: they were here before it was looked at."""
        self._own.hold(generation)
        self._holding = True
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        self._holding = False
        self._own.release()

    def _note(self, question: Question, seconds: float) -> None:
        """Where a question belongs the next time, having taken so long (of CPU time)."""
        quick = seconds <= _QUICK_SECONDS
        if not quick and not (self._quick.get(question) and seconds <= _FORGIVEN_SECONDS):
            self._quick.pop(question, None)
            return
        self._quick[question] = quick
        self._quick.move_to_end(question)
        if len(self._quick) > _MOST_QUICK:
            self._quick.popitem(last=False)

    def _in_a_thread(self, question: Question) -> tuple[Kept, float]:
        """The answer, and how long it took (of CPU time)."""
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(self._data, self._searches)
            self._readers.append(reader)
        began = time.thread_time()
        kept = self._answer(reader, question, self._seconds)
        return kept, time.thread_time() - began

    def _answer(self, reader: Reader, question: Question, seconds: float, generation: int | None = None) -> Kept:
        now = self._clock()
        began = time.perf_counter()
        try:
            answer = reader.run(question.query, question.parameters, question.projects, now, seconds, generation)
            content = body(question.query, answer, self._shape, question.redact)
        finally:
            QUERY_SECONDS.observe(time.perf_counter() - began, question.query.name)
        tag = f'"{xxh3_128_hexdigest(content)[:24]}"'
        headers = {**_HEADERS, "etag": tag}
        if answer.complete_until is not None:
            headers[COMPLETE_UNTIL] = time_text(answer.complete_until)
        return Kept(content, tag, now, headers, row_count(question.query, answer))
