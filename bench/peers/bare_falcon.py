"""The limit of the API: a Falcon application that returns a file's bytes, under Freshet's own gunicorn settings."""

import sys
from pathlib import Path

import falcon
from falcon.asgi import App, Request, Response

from api.server import run_server
from schema.settings import Settings


class Bytes:
    """Answers every GET with the same bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def on_get(self, request: Request, response: Response, endpoint: str) -> None:
        """Called by Falcon."""
        response.data = self._body
        response.content_type = falcon.MEDIA_JSON


def main(file: Path, listen: str) -> None:
    """Serve until told to stop."""
    app: App[Request, Response] = App()
    app.add_route("/api/endpoints/{endpoint}", Bytes(file.read_bytes()))
    run_server(Settings(listen=listen), lambda: app)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
