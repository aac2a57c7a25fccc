"""The short way for requests that came before, byte for byte.

What Falcon, the checks and the parameters made of a request's head holds for the same head again, as long as its key
is stored as it was: who asks, what for, and the header fields that are not the answer's own. Such a request needs but
the key's row, the answer, and its few own fields: 15 µs less than Falcon's way, of 45 beyond the server's own.
Everything else goes Falcon's way, what fails too: `FAILED` in the scope tells its resource why.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from api.access_log import CONTEXT
from api.auth import Caller
from api.cache import Cache
from api.databases import ControlReader, Key
from api.errors import RETRY_SECONDS, error_body
from api.freshness import COMPLETE_UNTIL, passing_fields
from api.key_uses import KeyUses
from api.meters import IN_FLIGHT
from api.questions import Kept, Question
from schema.clock import Clock
from schema.errors import Overloaded, StoreError
from schema.timestamps import SECOND

Scope = dict[str, Any]
Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application as a server calls it."""
Fields = tuple[tuple[bytes, bytes], ...]

FAILED, UNDERSTOOD = "freshet.failed", "freshet.understood"
"""Where a scope holds what went wrong on the short way, and what a resource made of a request."""
_MOST = 1024  # heads remembered
_LONGEST = 2048  # bytes of one
_COMPLETE_UNTIL = COMPLETE_UNTIL.encode()
_OWN = frozenset((b"etag", _COMPLETE_UNTIL, b"content-length", b"date", b"age", b"cache-status"))
"""The fields of an answer that are its own, or the moment's."""
_DIFFERS = frozenset((b"if-none-match", b"content-length", b"transfer-encoding", b"expect"))
"""With one of these a request goes Falcon's way: it is no plain one."""


class Understood(NamedTuple):
    """What a request came to be: whose it is, what it asks, whether it refuses kept answers."""

    caller: Caller
    question: Question
    fresh: bool


@dataclass(slots=True)
class Told:
    """What the access log wants to know of a request, as Falcon's context has it."""

    caller: Caller
    endpoint: str
    cache: str = "-"
    rows: int | None = None


class _Known(NamedTuple):
    understood: Understood
    fields: Fields


class Repeated:
    """An application in front of another one, `app`, that answers itself what that one has answered before."""

    def __init__(self, app: ASGI, control: ControlReader, cache: Cache, clock: Clock, uses: KeyUses) -> None:
        self.app = app
        self._control = control
        self._cache = cache
        self._clock = clock
        self._uses = uses
        self._seen: dict[str, Key] = {}
        self._salt = secrets.token_bytes(16)  # a head has its key in it: what is kept tells nothing of that
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Called by the server."""
        head = self._head(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if head is None:
            await self.app(scope, receive, send)
        elif not await self._answered(head, scope, send):
            await self._learn(head, scope, receive, send)

    async def _learn(self, head: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Go Falcon's way, and remember what comes of it."""
        start: Message = {}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            await send(message)

        await self.app(scope, receive, noting)
        understood = scope.get(UNDERSTOOD)
        if understood is not None:
            fields = tuple(field for field in start["headers"] if field[0] not in _OWN)
            self._known[head] = _Known(understood, fields)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)

    def _head(self, scope: Scope) -> bytes | None:
        """What a request's head is remembered by; None where it is not to be."""
        pieces = [self._salt, scope["raw_path"], scope["query_string"]]
        for name, value in scope["headers"]:
            if name in _DIFFERS:
                return None
            pieces += (name, value)
        text = b"\n".join(pieces)  # which no piece has in it
        return hashlib.sha256(text).digest() if len(text) <= _LONGEST else None

    async def _answered(self, head: bytes, scope: Scope, send: Send) -> bool:
        """Whether the request is one that came before, and is answered."""
        known = self._known.get(head)
        if known is None:
            return False
        (caller, question, fresh), fields = known
        now, key = self._clock(), caller.key
        try:
            stored = self._seen.get(caller.id) == key or self._look(caller.id, key)
        except (apsw.Error, StoreError):
            return False  # Falcon's way meets the same, and says so
        if not stored or key.expired(now):
            del self._known[head]
            return False
        self._known.move_to_end(head)
        self._uses.note(caller.id, now)
        told = scope[CONTEXT] = Told(caller, question.query.name)
        IN_FLIGHT.count += 1
        try:
            kept, told.cache = await self._cache.answer(question, key.generation, fresh)
        except Overloaded as error:  # what is too much already has to be refused quickly
            body = error_body(503, str(error))
            own = ((b"retry-after", b"%d" % RETRY_SECONDS), (b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": 503, "headers": [*fields, *own]})
            await send({"type": "http.response.body", "body": body})
            return True
        except Exception as error:
            IN_FLIGHT.count -= 1  # it begins anew
            scope[FAILED] = error
            return False
        told.rows = kept.rows
        headers = [*fields, *_own_fields(kept, told.cache, self._clock())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": kept.body})
        return True

    def _look(self, identifier: str, key: Key) -> bool:
        """Whether a key is stored as it was. For this round of the loop: all its requests were here before."""
        stored = self._control.has(identifier, key)
        if stored:
            if not self._seen:
                asyncio.get_running_loop().call_soon(self._seen.clear)
            self._seen[identifier] = key
        return stored


def _own_fields(kept: Kept, origin: str, now: int) -> list[tuple[bytes, bytes]]:
    fields = [(b"etag", kept.tag.encode()), (b"content-length", b"%d" % len(kept.body))]
    fields += _passing(kept.as_of // SECOND, origin, now // SECOND)
    if COMPLETE_UNTIL in kept.headers:
        fields.append((_COMPLETE_UNTIL, kept.headers[COMPLETE_UNTIL].encode()))
    return fields


@lru_cache(maxsize=64)
def _passing(as_of: int, origin: str, now: int) -> Fields:
    """The fields of the moment; both times in seconds, as all of these are."""
    fields = passing_fields(as_of * SECOND, origin, now * SECOND)
    return tuple((name.encode(), value.encode()) for name, value in fields.items())
