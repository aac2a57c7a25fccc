"""gunicorn's asgi worker, with its own refusals (a request line too long, a malformed request) in Freshet's form."""

from collections.abc import Iterable
from http import HTTPStatus

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from api.errors import error_body


class Protocol(ASGIProtocol):  # type: ignore[misc]  # gunicorn has no types
    """Speaks HTTP on one connection."""

    def _send_error_response(self, status: int, message: str, extra_headers: Iterable[tuple[str, str]] = ()) -> None:
        body = error_body(status, message)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *extra_headers]
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
        self._safe_write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body)


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves with that protocol."""

    def init_process(self) -> None:
        """Called by gunicorn in the new process. The stock worker can only be told its protocol by its module."""
        gasgi.ASGIProtocol = Protocol
        super().init_process()
