"""The endpoints: each saved query by id and by name, on every path of contract section 1."""

from collections.abc import Mapping
from functools import lru_cache

import falcon
from falcon.asgi import Request, Response

from api.auth import Caller, in_scope, projects_for
from api.cache import Cache
from api.freshness import has_already, passing_fields, wants_fresh
from api.parameters import typed_parameters
from api.questions import Question, question
from api.redaction import HEADER as REDACTION_HEADER
from api.repeated import FAILED, UNDERSTOOD, Understood
from schema.clock import Clock
from schema.saved_queries import SavedQuery

PATHS = (
    "/api/endpoints/query/{endpoint}",
    "/api/endpoints/query/name/{endpoint}",
    "/api/endpoints/{endpoint}",
    "/endpoints/query/{endpoint}",
)

_LONGEST_KNOWN = 300


class QueryResource:
    """Answers GET for every saved query."""

    def __init__(self, queries: Mapping[str, SavedQuery], cache: Cache, clock: Clock) -> None:
        self._queries = queries
        self._cache = cache
        self._clock = clock
        self._known = lru_cache(maxsize=1024)(self._ask)

    async def on_get(self, request: Request, response: Response, endpoint: str) -> None:
        """Answer 200 with the rows, 304 where the client has them, or raise what api.errors turns into an answer."""
        caller: Caller = request.context.caller
        redact = (request.get_header(REDACTION_HEADER) or "").lower() == "true"
        text = request.query_string
        ask = self._ask if len(text) > _LONGEST_KNOWN or "api_key" in text else self._known
        asked = ask(endpoint, text, caller, redact)
        fresh = wants_fresh(request.get_header("Cache-Control") or "")
        request.context.endpoint = asked.query.name  # for the access log, like what follows
        if FAILED in request.scope:
            raise request.scope[FAILED]
        kept, origin = await self._cache.answer(asked, caller.key.generation, fresh)
        request.context.rows, request.context.cache = kept.rows, origin
        passing = passing_fields(kept.as_of, origin, self._clock())
        response.set_headers({**kept.headers, **passing})
        tags = request.get_header("If-None-Match")
        if tags is not None and has_already(tags, kept.tag):
            response.status = falcon.HTTP_304
        else:
            response.data = kept.body
            request.scope[UNDERSTOOD] = Understood(caller, asked, fresh)

    on_head = on_get

    def _ask(self, endpoint: str, query_string: str, caller: Caller, redact: bool) -> Question:
        """The question in a request. Short ones without a key in them are remembered: 1 µs instead of 6."""
        query = self._queries.get(endpoint) or self._queries.get(endpoint.lower())
        if query is None or (endpoint != query.name and endpoint.lower() != str(query.id)):
            names = sorted({query.name for query in self._queries.values() if in_scope(query, caller.endpoints)})
            raise falcon.HTTPNotFound(description=f"there is no endpoint {endpoint!r}; there are {', '.join(names)}")
        given = falcon.uri.parse_query_string(query_string, keep_blank=True)
        values = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
        parameters = typed_parameters(query, values)
        return question(query, parameters, projects_for(caller, query, parameters), redact)
