"""`GET /api/tail`: a project's entries as they come, as server-sent events.

    entries  {"result": [row, …]}, rows as of logs.all, those that came first at the start
    place    {}: all that has come was sent; at the start, and while nothing comes
    missed   {"message"}: entries came that were not sent, since too many did, or the tables were rebuilt
    end      {"message"}: the server sends no more, and says why

Each event's id is a place: sent back as `Last-Event-ID`, or as `cursor`, the stream goes on behind it, in any process.
A client that does not read is not sent more: what came is read from the store when there is room to send it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import falcon
import msgspec
from falcon.asgi import Request, Response

from api.arrivals import Follower
from api.auth import Caller, authenticate, projects_for
from api.bodies import MetadataShape, body
from api.databases import ControlReader
from api.matching_entries import Filters
from api.parameters import typed_parameters
from api.pool import Pool
from api.reader import Answer
from api.recent_entries import EntryRow
from api.redaction import HEADER as REDACTION_HEADER
from schema.arrivals import Place, parse_place
from schema.clock import Clock
from schema.errors import FreshetError, Overloaded, ParameterError
from schema.resources import SavedQuery

STOPPING = "freshet.stopping"
"""Where a request's ASGI scope holds the event that says that the process stops."""
MOST_TAILS = 32
"""How many are followed at once in one process."""
LOOK_SECONDS = 0.5
BEAT_SECONDS = 10.0
"""After how long without an entry a place is sent, and how long a revoked key goes on."""
_ASKS_LIKE = "logs.search"  # the same filters, and who may ask it may follow
_SHOWS_LIKE = "logs.all"
COLUMNS: Final = ("timestamp", "id", "event_message", "metadata")
"""Those of an `EntryRow` that are shown."""


class TailResource:
    """Streams entries to those who may search them."""

    def __init__(
        self, data: Path, queries: Mapping[str, SavedQuery], control: ControlReader, clock: Clock, shape: MetadataShape
    ) -> None:
        self._asks = queries[_ASKS_LIKE]
        self._shows = replace(queries[_SHOWS_LIKE], as_array=False)  # rows come one by one here
        self._control, self._clock, self._shape = control, clock, shape
        self._pool = Pool(1, MOST_TAILS)
        self._follower = Follower(data)
        self.open = 0

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with a stream. Raises ParameterError, HTTPForbidden, Overloaded, StoreMissing."""
        given = {name: request.get_param_as_list(name) or [] for name in request.params}
        place = _place(request)
        parameters = typed_parameters(self._asks, {name: value for name, value in given.items() if name != "cursor"})
        projects_for(request.context.caller, self._asks, parameters)
        names = ("min_status", "max_status", "method", "path", "text")
        filters = Filters(*(parameters[name] for name in names))  # type: ignore[arg-type]  # the query's head has them
        if self.open >= MOST_TAILS:
            raise Overloaded(f"{MOST_TAILS} tails are followed already: end one, or try again later")
        start = await self._pool.run(self._follower.end)
        response.content_type = "text/event-stream"
        response.cache_control = ["no-store"]
        response.set_header("X-Accel-Buffering", "no")
        redact = (request.get_header(REDACTION_HEADER) or "").lower() == "true"
        step = partial(self._step, str(parameters["project"]), filters, redact)
        response.stream = _Counted(self, self._events(request, place or start, step))

    async def _events(self, request: Request, place: Place, step: Any) -> AsyncIterator[bytes]:
        stopping: asyncio.Event = request.scope.get(STOPPING) or asyncio.Event()
        caller: Caller = request.context.caller
        yield _event("place", place, b"{}")
        sent_at = checked_at = time.monotonic()
        while not stopping.is_set():
            try:
                events, place, missed = await self._pool.run(partial(step, place))
                if time.monotonic() - checked_at > BEAT_SECONDS:
                    checked_at = time.monotonic()
                    if authenticate(request, self._control, self._clock)[:5] != caller[:5]:
                        yield _event("end", place, _message("the API key has been changed: sign in again"))
                        return
            except (FreshetError, falcon.HTTPError) as error:
                said = error.description if isinstance(error, falcon.HTTPError) else str(error)
                yield _event("end", place, _message(str(said)))
                return
            for event in events:
                yield event
            if missed:
                yield _event("missed", place, _message("more came than could be sent, or the tables were rebuilt"))
            if events or missed:
                sent_at = time.monotonic()
            elif time.monotonic() - sent_at > BEAT_SECONDS:
                yield _event("place", place, b"{}")
                sent_at = time.monotonic()
            try:
                await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue
        yield _event("end", place, _message("the server stops: ask again in a moment"))

    def _step(self, project: str, filters: Filters, redact: bool, place: Place) -> tuple[list[bytes], Place, bool]:
        """Called in the follower's thread: what came behind a place, as events."""
        lots, behind, missed = self._follower.step(place, project, filters)
        return [_event("entries", at, self._body(rows, redact)) for at, rows in lots], behind, missed

    def _body(self, rows: list[EntryRow], redact: bool) -> bytes:
        return body(self._shows, Answer(COLUMNS, [row[: len(COLUMNS)] for row in rows]), self._shape, redact)


class _Counted(AsyncIterator[bytes]):
    """A stream that counts among the open ones until Falcon closes it."""

    def __init__(self, resource: TailResource, events: AsyncIterator[bytes]) -> None:
        self._resource, self._events = resource, events
        resource.open += 1

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._events)

    async def close(self) -> None:
        """Called by Falcon at the stream's end, whoever ended it."""
        self._resource.open -= 1


def _place(request: Request) -> Place | None:
    text = request.get_header("Last-Event-ID") or request.get_param("cursor")
    if not text:
        return None
    place = parse_place(text)
    if place is None:
        raise ParameterError("cursor", text[:100], "not a place: send the id of the last event that came")
    return place


def _event(name: str, place: Place, data: bytes) -> bytes:
    """One event. A line's end in JSON can only be white space."""
    line = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), str(place).encode(), line)


def _message(text: str) -> bytes:
    return msgspec.json.encode({"message": text})
