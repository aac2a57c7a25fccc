"""Who may ask for what: the API key of a request and its scopes (specification section 5, contract section 2)."""

from collections.abc import Mapping
from typing import NamedTuple

import falcon
import msgspec
from falcon.asgi import Request, Response
from falcon.constants import COMBINED_METHODS

from api.databases import ControlReader, Key
from api.key_uses import KeyUses
from api.parameters import Typed
from api.rates import Rates, rate_headers
from schema.clock import Clock, system_clock
from schema.keys import NOBODY, same_secret, split_key
from schema.saved_queries import SavedQuery

_BEARER = "bearer "
QUERY, INGEST = "query", "ingest"
"""What a key may be allowed to do. A resource says in `needs` what it takes, QUERY without; None lets everyone in."""
_scope = msgspec.json.Decoder(frozenset[str]).decode


class Caller(NamedTuple):
    """The key behind a request: its id and name, its scopes (None: all projects, all endpoints), and its row."""

    id: str
    name: str
    projects: frozenset[str] | None
    endpoints: frozenset[str] | None
    allow: frozenset[str]
    key: Key


class Gate:
    """Middleware: lets a request through to its resource with a key that may use it, named in `context.caller`."""

    def __init__(self, control: ControlReader, clock: Clock, uses: KeyUses, rates: Rates) -> None:
        self._control = control
        self._clock = clock
        self._uses = uses
        self._rates = rates

    async def process_request(self, request: Request, response: Response) -> None:
        """Called by Falcon. Raises HTTPNotImplemented for a method that is none of HTTP's."""
        if request.method not in COMBINED_METHODS:
            raise falcon.HTTPNotImplemented(description="the request's method is none that is known here")

    async def process_resource(
        self, request: Request, response: Response, resource: object, params: Mapping[str, str]
    ) -> None:
        """Called by Falcon. Raises HTTPUnauthorized, HTTPForbidden, HTTPTooManyRequests, StoreMissing.

        OPTIONS needs no key: a browser that asks whether it may send one sends none.
        """
        needs = getattr(resource, "needs", QUERY)
        if needs is None or request.method == "OPTIONS":
            return
        caller = request.context.caller = authenticate(request, self._control, self._clock)
        self._uses.note(caller.id, self._clock())
        if self._rates.limit:
            allowance = self._rates.take(caller.id)
            response.set_headers(rate_headers(self._rates.limit, allowance))
            if not allowance.passes:
                limit = f"{self._rates.limit} requests a second"
                raise falcon.HTTPTooManyRequests(description=f"the API key {caller.name} may make {limit}")
        if needs not in caller.allow:
            raise falcon.HTTPForbidden(description=f"the API key {caller.name} is not allowed to {needs}")


def key_text(request: Request) -> str | None:
    """The key that a request carries: `Authorization: Bearer`, then `X-API-KEY`, then `?api_key=`."""
    authorization = request.get_header("Authorization") or ""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    header: str | None = request.get_header("X-API-KEY")
    return header if header is not None else request.get_param("api_key")


def authenticate(request: Request, control: ControlReader, clock: Clock = system_clock) -> Caller:
    """The caller whose key a request carries.

    Raises HTTPUnauthorized without a key that is known here and in force, StoreMissing before any was made.
    """
    text = key_text(request)
    if not text:
        raise falcon.HTTPUnauthorized(description="no API key: send one as X-API-KEY", challenges=["Bearer"])
    identifier, secret = split_key(text.strip()) or ("", "")
    key = control.key(identifier)
    if not same_secret(secret, NOBODY if key is None else key.hash) or key is None:
        raise falcon.HTTPUnauthorized(description="the API key is not known here", challenges=["Bearer"])
    if key.expired(clock()):
        raise falcon.HTTPUnauthorized(description="the API key has expired", challenges=["Bearer"])
    projects, endpoints = _all_or(key.projects), _all_or(key.endpoints)
    return Caller(identifier, key.name, projects, endpoints, _scope(key.allow), key)


def projects_for(caller: Caller, query: SavedQuery, parameters: Mapping[str, Typed]) -> frozenset[str] | None:
    """The projects whose events a caller's query may read; None: all.

    With a project scope a `project` of type string has to be in it, one of type pattern is searched in the scope alone,
    and a query that has no `project` is out of it. Raises HTTPForbidden out of scope.
    """
    if not in_scope(query, caller.endpoints):
        raise falcon.HTTPForbidden(description=f"the API key {caller.name} may not ask {query.name}")
    if caller.projects is None:
        return None
    types = {parameter.name: parameter.type for parameter in query.parameters}
    if types.get("project") == "pattern":
        return caller.projects
    project = parameters.get("project")
    if types.get("project") == "string" and project in caller.projects:
        return frozenset({str(project)})
    asked = f"project {project!r}" if "project" in types else f"{query.name}, which is not about one project"
    raise falcon.HTTPForbidden(description=f"{asked} is out of the scope of the API key {caller.name}")


def in_scope(query: SavedQuery, endpoints: frozenset[str] | None) -> bool:
    """Whether a query is one of these endpoints, by name or by id; None: all."""
    return endpoints is None or not endpoints.isdisjoint((query.name, str(query.id)))


def _all_or(scope: str | None) -> frozenset[str] | None:
    return None if scope is None else _scope(scope)
