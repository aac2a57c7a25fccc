"""The dashboard: a page and what belongs to it, served from memory under a strict Content-Security-Policy."""

from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import falcon
from falcon.asgi import Request, Response

from api.freshness import has_already

FOLDER = Path(__file__).with_name("dashboard")
PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class _File(NamedTuple):
    content: bytes
    type: str
    tag: str


def read_files(folder: Path = FOLDER) -> dict[str, _File]:
    """All that is served of a folder, by its path in it."""
    files: dict[str, _File] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            files[name] = _File(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:24]}"')
    return files


class StaticFiles:
    """Answers GET for the page and its files."""

    needs = None  # no key: the page asks for it

    def __init__(self) -> None:
        self._files = read_files()

    async def on_get(self, request: Request, response: Response, name: str = PAGE) -> None:
        """Answer 200 with the file, 304 where the browser has it, 404 where there is none."""
        file = self._files.get(name)
        if file is None:
            raise falcon.HTTPNotFound(description=f"there is nothing at {request.path}")
        response.set_headers({**HEADERS, "etag": file.tag})
        tags = request.get_header("If-None-Match")
        if tags is not None and has_already(tags, file.tag):
            response.status = falcon.HTTP_304
            return
        response.content_type = file.type
        response.data = file.content

    on_head = on_get
