"""The body of a request to log events: read in pieces, unpacked in pieces, never more than the limit of either."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import falcon
from falcon.asgi import Request

from schema.errors import NotTaken

LARGEST_BODY: Final = 12_000_000
"""Bytes of a body, as sent and unpacked (contract section 2)."""
_MOST_HELD = 6 * LARGEST_BODY  # bytes of all bodies in one process that are not answered yet
_MOST_DRAINED = 4 * LARGEST_BODY  # of a body too large, so that its sender is there to read why
_MOST_MEMBERS = 1000  # of a gzip: each costs as much as a page of text, even where it is empty
_PIECE = 1 << 18  # bytes read or unpacked before other requests have their turn
_GZIP = 16 + zlib.MAX_WBITS
_Event = Mapping[str, Any]
_ReceiveEvent = Callable[[], Awaitable[_Event]]


class Room:
    """How much of bodies one process holds at a time. A request takes what it reads, and gives it back when left."""

    def __init__(self, most: int = _MOST_HELD) -> None:
        self._free = most

    def take(self, size: int) -> None:
        """Raises NotTaken where there is no room for so many bytes more."""
        if size > self._free:
            raise NotTaken("too many events are on their way already")
        self._free -= size

    def give_back(self, size: int) -> None:
        """What was taken is free again."""
        self._free += size


class _Receive:
    """What the server tells of a body, and whether it has told that the client is gone."""

    def __init__(self, receive: _ReceiveEvent) -> None:
        self._receive = receive
        self.left = False

    async def __call__(self) -> _Event:
        """The next event."""
        event = await self._receive()
        self.left = self.left or event["type"] == "http.disconnect"
        return event


class IngestRequest(Request):
    """A request whose client may leave in the midst of the body: to Falcon's stream that is the body's end.

    A body in chunks, of a length that is not told before, would look whole then.
    """

    def __init__(self, scope: dict[str, Any], receive: _ReceiveEvent, *others: Any, **options: Any) -> None:
        self.received = _Receive(receive)
        super().__init__(scope, self.received, *others, **options)


class Body:
    """A context in which a body may be read and used; its room is given back at the end."""

    def __init__(self, request: IngestRequest, room: Room) -> None:
        self._request = request
        self._room = room
        self._taken = 0

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *_: object) -> None:
        self._room.give_back(self._taken)

    async def read(self) -> bytes:
        """The bytes, unpacked.

        Raises HTTPContentTooLarge, HTTPUnsupportedMediaType for an unknown encoding, HTTPBadRequest for a body that
        breaks off or is no gzip, NotTaken where too much is held already.
        """
        encoding = (self._request.get_header("Content-Encoding") or "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip"):
            raise falcon.HTTPUnsupportedMediaType(description=f"Content-Encoding {encoding}: send gzip, or none")
        pieces = self._received() if encoding == "identity" else self._unpacked()
        found, size = [], 0
        async for piece in pieces:
            size += len(piece)
            if size > LARGEST_BODY:
                await self._refuse()
            self._room.take(len(piece))
            self._taken += len(piece)
            found.append(piece)
        return b"".join(found)

    async def _received(self) -> AsyncIterator[bytes]:
        """The body as sent, as it comes."""
        expected, received = self._request.content_length, 0
        if expected is not None and expected > LARGEST_BODY:
            await self._refuse()
        while piece := await self._request.stream.read(_PIECE):
            received += len(piece)
            yield piece
        if self._request.received.left or (expected is not None and received != expected):
            of_all = "" if expected is None else f" of {expected}"
            raise falcon.HTTPBadRequest(description=f"the body broke off after {received}{of_all} bytes")

    async def _unpacked(self) -> AsyncIterator[bytes]:
        unpacker, begun, members = zlib.decompressobj(_GZIP), False, 1
        try:
            async for packed in self._received():
                while packed:
                    if unpacker.eof:  # another member follows
                        unpacker, begun, members = zlib.decompressobj(_GZIP), False, members + 1
                    if members > _MOST_MEMBERS:
                        raise zlib.error(f"it has more than {_MOST_MEMBERS:,} members")
                    begun = True
                    yield unpacker.decompress(packed, _PIECE)
                    packed = unpacker.unconsumed_tail or unpacker.unused_data
                    await asyncio.sleep(0)
            if begun and not unpacker.eof:
                raise zlib.error("it breaks off")
        except zlib.error as error:
            raise falcon.HTTPBadRequest(description=f"the body is no gzip: {error}") from error

    async def _refuse(self) -> None:
        """Raises HTTPContentTooLarge, once the rest has been let pass: who still sends would not see the answer."""
        left = _MOST_DRAINED
        while left > 0 and (piece := await self._request.stream.read(_PIECE)):
            left -= len(piece)
        raise falcon.HTTPContentTooLarge(description=f"a body may have {LARGEST_BODY:,} bytes, unpacked too")
