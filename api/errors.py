"""Errors as clients see them (design section 6): `{"error": {"code", "status", "message", "errors"}}`, never a 200."""

import logging
from collections.abc import Sequence
from typing import Any

import apsw
import falcon
import msgspec
from falcon.asgi import App, Request, Response

from schema.errors import Overloaded, ParameterError, QueryTimeout, StoreError

Application = App[Request, Response]
"""A Falcon application, as its types have it."""

log = logging.getLogger("freshet.api")
RETRY_SECONDS = 2
_TRANSIENT: tuple[type[Exception], ...] = (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    408: "REQUEST_TIMEOUT",
    413: "CONTENT_TOO_LARGE",
    414: "URI_TOO_LONG",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RESOURCE_EXHAUSTED",
    431: "REQUEST_HEADERS_TOO_LARGE",
    501: "NOT_IMPLEMENTED",
    503: "UNAVAILABLE",
}


def error_body(code: int, message: str, errors: Sequence[dict[str, Any]] = ()) -> bytes:
    """The JSON of a failure with HTTP status `code`; `errors` are details such as the parameter that was wrong."""
    default = "INTERNAL" if code >= 500 else "INVALID_ARGUMENT"
    body = {"code": code, "status": _STATUS.get(code, default), "message": message, "errors": list(errors)}
    return msgspec.json.encode({"error": body})


def install_errors(app: Application) -> None:
    """Have every failure of an app answered in this form."""
    app.add_error_handler(ParameterError, _parameter)
    app.add_error_handler(QueryTimeout, _unavailable)
    app.add_error_handler(Overloaded, _unavailable)
    app.add_error_handler(StoreError, _unavailable)
    for transient in _TRANSIENT:
        app.add_error_handler(transient, _unreadable)
    app.add_error_handler(Exception, _unexpected)
    app.add_error_handler(falcon.HTTPError, _http)


async def _parameter(request: Request, response: Response, error: ParameterError, params: dict[str, Any]) -> None:
    detail: dict[str, Any] = {"parameter": error.parameter, "value": error.value, "message": error.reason}
    if error.allowed:
        detail["allowed"] = list(error.allowed)
    _answer(response, 400, str(error), [detail])


async def _unavailable(request: Request, response: Response, error: Exception, params: dict[str, Any]) -> None:
    response.set_header("Retry-After", str(RETRY_SECONDS))
    _answer(response, 503, str(error))


async def _unreadable(request: Request, response: Response, error: Exception, params: dict[str, Any]) -> None:
    log.error("%s %s: the database can't be read now: %s", request.method, request.path, error)
    response.set_header("Retry-After", str(RETRY_SECONDS))
    _answer(response, 503, "the database can't be read now: try again in a moment")


async def _unexpected(request: Request, response: Response, error: Exception, params: dict[str, Any]) -> None:
    log.exception("%s %s failed", request.method, request.path, exc_info=error)
    _answer(response, 500, "Freshet failed to answer; its log says why")


async def _http(request: Request, response: Response, error: falcon.HTTPError, params: dict[str, Any]) -> None:
    if error.headers:
        response.set_headers(error.headers)
    if isinstance(error, falcon.HTTPMethodNotAllowed):
        error.description = f"{request.method} is not allowed here; allowed: {response.get_header('Allow')}"
    _answer(response, falcon.http_status_to_code(error.status), error.description or error.title or "")


def _answer(response: Response, code: int, message: str, errors: Sequence[dict[str, Any]] = ()) -> None:
    response.status = falcon.code_to_http_status(code)
    response.content_type = falcon.MEDIA_JSON
    response.data = error_body(code, message, errors)
