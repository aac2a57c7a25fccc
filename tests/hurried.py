"""The API as clocked.py starts it, with limits of a second in place of many and three endpoints more.

`slow` counts `steps`, `large` answers `megabytes`, POST /body answers how many bytes it was sent. While a file
`broken` is in the working folder, the application does not start.
"""

import sys
from pathlib import Path

from clocked import FileClock
from falcon.asgi import App, Request, Response

import api.app
import api.worker
from api.endpoints import load_endpoints
from api.repeated import ASGI, Repeated
from api.server import CONFIGURATION, run_server
from schema.errors import SavedQueryError
from schema.saved_queries import SavedQuery, parse_saved_query
from schema.settings import Settings, load_settings

CONNECTIONS = 20
SLOW = """-- name: slow
-- parameter: steps string required
WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT @steps) SELECT max(i) AS i FROM n
"""
LARGE = """-- name: large
-- parameter: megabytes string required
SELECT format('%*d', @megabytes * 1048576, 1) AS text
"""


class Body:
    """Reads a request's body to what seems to be its end."""

    needs = None

    async def on_post(self, request: Request, response: Response) -> None:
        response.media = {"bytes": len(await request.stream.read())}


def queries(settings: Settings) -> dict[str, SavedQuery]:
    if Path("broken").exists():
        raise SavedQueryError("broken:1: it is")
    return load_endpoints(settings) | {
        query.name: query for query in (parse_saved_query(Path(), text) for text in (SLOW, LARGE))
    }


def main() -> None:
    settings, clock = load_settings(), FileClock(Path(sys.argv[2]))
    api.worker.HEAD_SECONDS = api.worker.BODY_SECONDS = api.worker.STALL_SECONDS = 1.0
    CONFIGURATION.update(worker_connections=CONNECTIONS, keepalive=2)
    assert vars(api.app)["load_endpoints"] is load_endpoints
    vars(api.app)["load_endpoints"] = queries

    def create() -> ASGI:
        app = api.app.create_app(settings, clock)
        assert isinstance(app, Repeated)
        assert isinstance(app.app, App)
        app.app.add_route("/body", Body())
        return app

    run_server(settings, create)


if __name__ == "__main__":
    main()
