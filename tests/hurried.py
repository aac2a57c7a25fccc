"""The API as clocked.py starts it, with limits of a second in place of many and three endpoints more.

`slow` counts `steps`, `large` answers `megabytes`, POST /body answers how many bytes it was sent. While a file
`broken` is in the working folder, the application does not start.
"""

import sys
from pathlib import Path

from clocked import FileClock
from falcon.asgi import Request, Response

import api.app
import api.worker
from api.errors import Application
from api.server import CONFIGURATION, run_server
from schema.errors import SavedQueryError
from schema.saved_queries import ENDPOINTS, SavedQuery, load_saved_queries, parse_saved_query
from schema.settings import load_settings

CONNECTIONS = 20
SLOW = """-- name: slow
-- parameter: steps string required
WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT @steps) SELECT max(i) AS i FROM n
"""
LARGE = """-- name: large
-- parameter: megabytes string required
SELECT replace(hex(zeroblob(@megabytes * 524288)), '0', 'x') AS text
"""


class Body:
    """Reads a request's body to what seems to be its end."""

    needs = None

    async def on_post(self, request: Request, response: Response) -> None:
        response.media = {"bytes": len(await request.stream.read())}


def queries(folder: Path = ENDPOINTS) -> dict[str, SavedQuery]:
    if Path("broken").exists():
        raise SavedQueryError("broken:1: it is")
    return load_saved_queries(folder) | {
        query.name: query for query in (parse_saved_query(Path(), text) for text in (SLOW, LARGE))
    }


def main() -> None:
    settings, clock = load_settings(), FileClock(Path(sys.argv[2]))
    api.worker.HEAD_SECONDS = api.worker.BODY_SECONDS = api.worker.STALL_SECONDS = 1.0
    CONFIGURATION.update(worker_connections=CONNECTIONS, keepalive=2)
    api.app.load_saved_queries = queries  # type: ignore

    def create() -> Application:
        app = api.app.create_app(settings, clock)
        app.add_route("/body", Body())
        return app

    run_server(settings, create)


if __name__ == "__main__":
    main()
