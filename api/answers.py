"""Answers computed from the tables: quick ones at once, the others in threads of their own (docs/decisions/0005)."""

import threading
import time
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import falcon

from api.bodies import MetadataShape, body
from api.freshness import complete_until, time_text
from api.meters import QUERY_SECONDS
from api.pool import Pool
from api.questions import Kept, Question
from api.reader import Reader, Searches
from api.redaction import HEADER as REDACTION_HEADER
from schema.clock import Clock
from schema.errors import QueryTimeout

_THREADS = 2  # with a connection each; docs/decisions/0005-readers.md
_QUICK_SECONDS = 0.002
"""Of CPU: what took less the last time is computed in the event loop. SQLite lets go of Python's lock at each row; a
thread that has to get it back from a busy loop made 850 µs of CPU out of a query's 70."""
_PATIENT_SECONDS = 0.02  # what took longer in the loop after all is given up there, and goes to a thread
_MOST_QUICK = 4096  # questions known as such
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
        self._pool = Pool(_THREADS, waiting)
        self.has_free_thread = self._pool.has_free_thread
        self.queries_waiting = self._pool.queued
        self._local = threading.local()
        self._readers: list[Reader] = []
        self._searches = Searches()
        self._quick: set[Question] = set()
        self.computed = 0
        """How often the database was asked."""

    async def answer(self, question: Question) -> Kept:
        """The answer as of now. Raises what `Reader.run` and `Pool.run` raise."""
        self.computed += 1
        if question in self._quick:
            self._quick.discard(question)
            with suppress(QueryTimeout):
                return self._answer(question, _PATIENT_SECONDS)
        return await self._pool.run(partial(self._answer, question, self._seconds))

    def background_searches(self) -> int:
        """How many searches go on, or wait, past their time limit."""
        return self._searches.background.count()

    def close(self) -> None:
        """Let the query in hand finish, give up what is searched in the background, and close the files."""
        self._searches.background.close()
        self._pool.close()
        for reader in self._readers:
            reader.close()

    def _answer(self, question: Question, seconds: float) -> Kept:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(self._data, self._searches)
            self._readers.append(reader)
        now = self._clock()
        began, used = time.perf_counter(), time.thread_time()
        try:
            answer = reader.run(question.query, question.parameters, question.projects, now, seconds)
            content = body(question.query, answer, self._shape, question.redact)
        finally:
            QUERY_SECONDS.observe(time.perf_counter() - began, question.query.name)
        if time.thread_time() - used < _QUICK_SECONDS:
            if len(self._quick) >= _MOST_QUICK:
                self._quick.clear()
            self._quick.add(question)
        tag = f'"{sha256(content).hexdigest()[:24]}"'
        headers = {**_HEADERS, "etag": tag}
        complete = complete_until(answer.positions)
        if complete is not None:
            headers["freshet-complete-until"] = time_text(complete)
        return Kept(content, tag, now, headers, len(answer.rows))
