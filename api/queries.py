"""The endpoints: each saved query by id and by name, on every path of contract section 1."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import falcon
import msgspec
from falcon.asgi import Request, Response

from api.auth import Caller, projects_for
from api.parameters import Typed, typed_parameters
from api.reader import Answer, Reader, Searches
from schema.clock import Clock
from schema.saved_queries import SavedQuery

PATHS = (
    "/api/endpoints/query/{endpoint}",
    "/api/endpoints/query/name/{endpoint}",
    "/api/endpoints/{endpoint}",
    "/endpoints/query/{endpoint}",
)
_THREADS = 2  # with a connection each; docs/decisions/0005-readers.md
_encode = msgspec.json.Encoder().encode


class Answers:
    """Computes answers as of now, in threads of their own. What keeps answers for later goes in front of `compute`."""

    def __init__(self, data: Path, clock: Clock, query_seconds: float) -> None:
        self._data = data
        self._clock = clock
        self._seconds = query_seconds
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="reader")
        self._local = threading.local()
        self._searches = Searches()

    async def compute(
        self, query: SavedQuery, parameters: Mapping[str, Typed], projects: frozenset[str] | None
    ) -> bytes:
        """The body of a query's answer from the events of `projects`, or of all. Raises what `Reader.run` raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._compute, query, parameters, projects)

    def close(self) -> None:
        """Let the query in hand finish, and give up what is searched in the background."""
        self._searches.background.close()
        self._threads.shutdown()

    def _compute(self, query: SavedQuery, parameters: Mapping[str, Typed], projects: frozenset[str] | None) -> bytes:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(self._data, self._searches)
        return body(query, reader.run(query, parameters, projects, self._clock(), self._seconds))


def body(query: SavedQuery, answer: Answer) -> bytes:
    """The answer's JSON: `{"result": [{column: value, …}, …]}`; columns of JSON text go in as they are."""
    rows: list[dict[str, Any]] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    for row in rows:
        for column in query.json_columns:
            if row[column] is not None:
                row[column] = msgspec.Raw(row[column])
    return _encode({"result": rows})


class QueryResource:
    """Answers GET for every saved query."""

    def __init__(self, queries: Mapping[str, SavedQuery], answers: Answers) -> None:
        self._queries = queries
        self._answers = answers

    async def on_get(self, request: Request, response: Response, endpoint: str) -> None:
        """Answer 200 with the rows, or raise what api.errors turns into an answer."""
        caller: Caller = request.context.caller
        query = self._queries.get(endpoint)
        if query is None:
            names = sorted({query.name for query in self._queries.values()})
            raise falcon.HTTPNotFound(description=f"there is no endpoint {endpoint!r}; there are {', '.join(names)}")
        parameters = typed_parameters(query, _given(request))
        response.data = await self._answers.compute(query, parameters, projects_for(caller, query, parameters))
        response.content_type = falcon.MEDIA_JSON

    on_head = on_get


def _given(request: Request) -> dict[str, list[str]]:
    return {name: value if isinstance(value, list) else [value] for name, value in request.params.items()}
