"""Who may ask: the API key of a request (specification section 5, contract section 2)."""

import falcon
from falcon.asgi import Request

from api.reader import ControlReader
from schema.keys import same_secret, split_key

_BEARER = "bearer "


def key_text(request: Request) -> str | None:
    """The key that a request carries: `Authorization: Bearer`, then `X-API-KEY`, then `?api_key=`."""
    authorization = request.get_header("Authorization") or ""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    header: str | None = request.get_header("X-API-KEY")
    return header if header is not None else request.get_param("api_key")


def authenticate(request: Request, control: ControlReader) -> str:
    """The name of the request's key.

    Raises HTTPUnauthorized without a key that is known here, StoreMissing before any was made.
    """
    text = key_text(request)
    if not text:
        raise falcon.HTTPUnauthorized(description="no API key: send one as X-API-KEY", challenges=["Bearer"])
    parts = split_key(text.strip())
    key = control.key(parts[0]) if parts is not None else None
    if parts is None or key is None or not same_secret(parts[1], key.hash):
        raise falcon.HTTPUnauthorized(description="the API key is not known here", challenges=["Bearer"])
    return key.name
