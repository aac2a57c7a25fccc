"""Answers computed from the tables, in threads of their own."""

import threading
import time
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

_THREADS = 2  # with a connection each; docs/decisions/0005-readers.md
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
        self.computed = 0
        """How often the database was asked."""

    async def answer(self, question: Question) -> Kept:
        """The answer as of now. Raises what `Reader.run` and `Pool.run` raise."""
        self.computed += 1
        return await self._pool.run(partial(self._answer, question))

    def background_searches(self) -> int:
        """How many searches go on, or wait, past their time limit."""
        return self._searches.background.count()

    def close(self) -> None:
        """Let the query in hand finish, give up what is searched in the background, and close the files."""
        self._searches.background.close()
        self._pool.close()
        for reader in self._readers:
            reader.close()

    def _answer(self, question: Question) -> Kept:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(self._data, self._searches)
            self._readers.append(reader)
        now = self._clock()
        began = time.perf_counter()
        try:
            answer = reader.run(question.query, question.parameters, question.projects, now, self._seconds)
            content = body(question.query, answer, self._shape, question.redact)
        finally:
            QUERY_SECONDS.observe(time.perf_counter() - began, question.query.name)
        tag = f'"{sha256(content).hexdigest()[:24]}"'
        headers = {**_HEADERS, "etag": tag}
        complete = complete_until(answer.positions)
        if complete is not None:
            headers["freshet-complete-until"] = time_text(complete)
        return Kept(content, tag, now, headers, len(answer.rows))
