"""`GET /api/key`: what the key that is sent may do, so that a client need not find out by refusals."""

import falcon
import msgspec
from falcon.asgi import Request, Response

from api.auth import authenticate
from api.databases import ControlReader
from schema.clock import Clock


class OwnKeyResource:
    """Tells a key's holder its scopes."""

    needs = None  # any key, whatever it is allowed

    def __init__(self, control: ControlReader, clock: Clock) -> None:
        self._control = control
        self._clock = clock

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with name, projects and endpoints (null: all) and what is allowed; 401 without a key in force."""
        caller = request.context.caller = authenticate(request, self._control, self._clock)
        projects, endpoints = ((None if scope is None else sorted(scope)) for scope in caller[2:4])
        shown = {"name": caller.name, "projects": projects, "endpoints": endpoints, "allow": sorted(caller.allow)}
        response.data = msgspec.json.encode(shown)
        response.content_type = falcon.MEDIA_JSON
        response.cache_control = ["no-store"]

    on_head = on_get
