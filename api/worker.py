"""gunicorn's asgi worker, hardened: slow clients, too many of them, and a stop that waits for nobody who is idle.

It leans on private methods of a pinned gunicorn; tests/test_api_connections.py holds what is relied on. What the stock
worker leaves open, and what is done about it, is told in docs/decisions/0009-limits.md.
"""

import asyncio
import socket
from collections.abc import Iterable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol, ASGIResponseInfo
from gunicorn.workers import gasgi

from api.access_log import CONTEXT
from api.errors import RETRY_SECONDS, error_body
from api.tail import STOPPING
from schema.heap import tune_heap

HEAD_SECONDS = 10.0
"""How long a new connection may take for its first request's head; later ones have the keep-alive time."""
BODY_SECONDS = 25.0
"""How long a request's body may take; less than gunicorn's own `timeout`, at which an application would see its end."""
STALL_SECONDS, STALL_BYTES = 10.0, 256 << 10
"""A client is given up that takes neither so much of an answer, nor half of what is left of it, in such a time."""
_SEND_BUFFER = 256 << 10  # of the system: it takes from an answer in lumps of a third, which have to show in that time
IDLE_SECONDS = 1.0
"""A connection that has asked nothing for so long is closed when the worker stops."""
ENDING_SECONDS = 0.1
"""How long answers say that their connection closes before any is closed that said nothing: time to send an answer."""
_LARGE, _KEPT = 2 << 20, 8 << 20
"""Bytes. Left to itself, glibc gives back what an answer of 240 KB took, and asks for it with the next one, in some
processes and not in others: 150 page faults a request, more than half of its time."""
_REFUSALS = {
    400: "malformed request",
    408: "the request did not come to its end in time",
    414: "the request line is too long: 8,190 bytes are allowed",
    431: "the request's header fields are too large: 100 of 8,190 bytes are allowed",
    503: "too many connections: try again in a moment",
}


class Protocol(ASGIProtocol):  # type: ignore[misc]  # gunicorn has no types
    """Speaks HTTP on one connection, and nothing else: an offer to upgrade it is passed over, as a server may."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker)
        self._scopes: dict[object, dict[str, Any]] = {}
        self._idle_since = worker.loop.time()
        self._head_begun = False
        self._one_too_many = False
        self._body_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Called by the event loop. One connection too many is told so when it asks; at twice as many it is cut."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.worker.open.add(self)
        self._one_too_many = self.worker.nr_conns > self.worker.worker_connections
        if self.worker.nr_conns > 2 * self.worker.worker_connections:
            transport.abort()
        self._keepalive_handle = self.worker.loop.call_later(HEAD_SECONDS, self._keepalive_timeout)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._one_too_many:
            self._send_error_response(503, "", [("Retry-After", str(RETRY_SECONDS))])
            super()._keepalive_timeout()
            return
        self._head_begun = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.worker.open.discard(self)
        for timer in (self._body_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by the event loop when an answer waits for its client to read."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def close_if_idle(self) -> None:
        """Close the connection unless a request is under way, or was a moment ago and another may follow."""
        idle = self._awaiting_request and not self._head_begun
        if idle and self.worker.loop.time() - self._idle_since > IDLE_SECONDS:
            self._keepalive_timeout()

    def _on_headers_complete(self) -> bool:
        skip_body: bool = super()._on_headers_complete()
        self._head_begun = False
        request = self._current_request
        if request.content_length or request.chunked:
            self._body_timer = self.worker.loop.call_later(BODY_SECONDS, self._close_transport)
        return skip_body

    def _on_message_complete(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
        super()._on_message_complete()

    def _arm_keepalive_timer(self) -> None:
        self._idle_since = self.worker.loop.time()
        super()._arm_keepalive_timer()

    def _keepalive_timeout(self) -> None:
        if self._head_begun and not self._closed:
            self._send_error_response(408, "")
        super()._keepalive_timeout()

    def _close_transport(self) -> None:
        super()._close_transport()
        if self.transport.get_write_buffer_size():
            self._watch_reading()

    def _watch_reading(self, before: int | None = None) -> None:
        """Look every now and then whether the client reads what waits for it; nothing is added to that meanwhile."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        waiting = self.transport.get_write_buffer_size()
        if before is not None and waiting > max(before - STALL_BYTES, before // 2):
            self.transport.abort()
        elif waiting:
            self._stall_timer = self.worker.loop.call_later(STALL_SECONDS, self._watch_reading, waiting)

    def _will_close(self, request: object, response_requires_close: bool) -> bool:
        return self.worker.ending or bool(super()._will_close(request, response_requires_close))

    def _send_error_response(self, status: int, message: str, extra_headers: Iterable[tuple[str, str]] = ()) -> None:
        phrase = HTTPStatus(status).phrase
        body = error_body(status, _REFUSALS.get(status, phrase))  # gunicorn's own message may quote a key
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *extra_headers]
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
        self._safe_write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body)
        if status != 500:  # which gunicorn logs itself
            self.log.access(ASGIResponseInfo(status, headers, len(body)), None, {}, timedelta())

    def _is_websocket_upgrade(self, request: object) -> bool:
        return False

    def _build_http_scope(self, request: object, sockname: object, peername: object) -> dict[str, Any]:
        scope: dict[str, Any] = super()._build_http_scope(request, sockname, peername)
        self._scopes[request] = scope
        scope[STOPPING] = self.worker.stopping
        return scope

    def _build_environ(self, request: object, sockname: object, peername: object) -> dict[str, Any]:
        """What the access log is told beside request and response."""
        return {CONTEXT: self._scopes.pop(request).get(CONTEXT), "gone": self._conn_lost_handled}


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves with that protocol."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.open: set[Protocol] = set()
        self.stopping = asyncio.Event()
        self.ending = False

    def init_process(self) -> None:
        """Called by gunicorn in the new process. The stock worker can only be told its protocol by its module."""
        gasgi.ASGIProtocol = Protocol
        tune_heap(mapped_from=_LARGE, kept=_KEPT)
        super().init_process()

    def handle_exit_signal(self) -> None:
        """Called by the event loop on SIGTERM.

        The stock worker closes a connection whose answer has just gone out as one that is kept: what its client sends
        next is lost.
        """
        self.ending = True
        self.loop.call_later(ENDING_SECONDS, super().handle_exit_signal)

    async def _shutdown(self) -> None:
        self.stopping.set()
        for server in self.servers:
            server.close()
        closing = self.loop.create_task(self._close_idle())
        await super()._shutdown()
        closing.cancel()

    async def _close_idle(self) -> None:
        while True:
            for protocol in list(self.open):
                protocol.close_if_idle()
            await asyncio.sleep(0.1)
