"""Cross-origin requests: which pages a browser lets read the answers (contract section 2)."""

from collections.abc import Sequence

from falcon import CORSMiddleware
from falcon.asgi import Request, Response

EXPOSED = (
    *("Age", "Cache-Status", "Date", "ETag", "Freshet-Complete-Until", "Retry-After", "Allow", "WWW-Authenticate"),
    *("RateLimit", "RateLimit-Policy"),
)
"""The headers that a page may read beside those that it always may."""


class _Listed(CORSMiddleware[Request, Response]):
    """Origins of a list: what is said depends on who asks, so caches have to tell them apart."""

    async def process_response_async(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        resp.append_header("Vary", "Origin")
        await super().process_response_async(req, resp, resource, req_succeeded)


def cors(origins: str) -> Sequence[CORSMiddleware[Request, Response]]:
    """The middleware that answers for origins with spaces between them, `*` or none.

    Keys travel in headers that a page has to set itself, never in cookies, so `*` gives nobody another one's rights;
    credentials in the browser's sense are not allowed.
    """
    if not origins:
        return ()
    if origins == "*":
        return (CORSMiddleware(expose_headers=EXPOSED),)
    return (_Listed(origins.split(), expose_headers=EXPOSED),)
