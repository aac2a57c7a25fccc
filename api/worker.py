"""gunicorn's asgi worker, with its own refusals (a request line too long, a malformed request) in Freshet's form."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.glogging import Logger
from gunicorn.workers import gasgi

from api.errors import error_body

_REFUSALS = {
    400: "malformed request",
    414: "the request line is too long: 8,190 bytes are allowed",
    431: "the request's header fields are too large: 100 of 8,190 bytes are allowed",
}


class Protocol(ASGIProtocol):  # type: ignore[misc]  # gunicorn has no types
    """Speaks HTTP on one connection, and nothing else: an offer to upgrade it is passed over, as a server may."""

    def _send_error_response(self, status: int, message: str, extra_headers: Iterable[tuple[str, str]] = ()) -> None:
        phrase = HTTPStatus(status).phrase
        body = error_body(status, _REFUSALS.get(status, phrase))  # gunicorn's own message may quote a key
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *extra_headers]
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
        self._safe_write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body)

    def _is_websocket_upgrade(self, request: object) -> bool:
        return False


class AccessLogger(Logger):  # type: ignore[misc]
    """gunicorn's log, in which no request can write a line of its own making."""

    def atoms(self, *request: Any) -> dict[str, Any]:
        """What a line is made of; what would not print as itself is escaped."""
        atoms: dict[str, Any] = super().atoms(*request)
        return {name: _printable(value) if isinstance(value, str) else value for name, value in atoms.items()}


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves with that protocol."""

    def init_process(self) -> None:
        """Called by gunicorn in the new process. The stock worker can only be told its protocol by its module."""
        gasgi.ASGIProtocol = Protocol
        super().init_process()
