"""`GET /api/rejects`: what could not be taken, by topic and reason, and the newest of it, for people and dashboards.

Rejects have no project, so only a key without any scope sees them.
"""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import falcon
import msgspec
from falcon.asgi import Request, Response

from api.auth import Caller
from api.databases import open_database
from api.parameters import Typed, typed_parameter
from schema.resources import Parameter
from schema.shown import shown
from schema.tables import store_migrations, store_path

_LIMIT = Parameter("limit", "integer", False, least=1, most=100, default="20")
_SAMPLE = 120  # characters
_COUNTS = """
SELECT topic, reason, sum(count), sum(retried), sum(kept) FROM (
    SELECT topic, substr(name, 8) AS reason, count, 0 AS retried, 0 AS kept FROM counters WHERE name LIKE 'reject.%'
    UNION ALL SELECT topic, substr(name, 9), 0, count, 0 FROM counters WHERE name LIKE 'retried.%'
    UNION ALL SELECT topic, reason, 0, 0, count(*) FROM rejects GROUP BY topic, reason
) GROUP BY topic, reason ORDER BY topic, reason
"""
_NEWEST = """
SELECT id, topic, partition, "offset", element, reason, rejected_at, size, data FROM rejects ORDER BY id DESC LIMIT ?
"""


class RejectsResource:
    """Answers from a store opened for each request."""

    def __init__(self, data: Path) -> None:
        self._data = data

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer 200 with `counts` and `rejects`. Raises HTTPForbidden for a key with a scope, ParameterError."""
        caller: Caller = request.context.caller
        if caller.projects is not None or caller.endpoints is not None:
            raise falcon.HTTPForbidden(
                description=f"rejects belong to no project: they are out of the scope of the API key {caller.name}"
            )
        limit = typed_parameter(_LIMIT, request.get_param_as_list("limit") or ())
        response.data = msgspec.json.encode(await asyncio.to_thread(self._read, caller.key.generation, limit))
        response.content_type = falcon.MEDIA_JSON

    on_head = on_get

    def _read(self, generation: int, limit: Typed) -> dict[str, Any]:
        with closing(open_database(store_path(self._data, generation), store_migrations)) as db:
            db.execute("BEGIN")
            return {"counts": [_count(row) for row in db.execute(_COUNTS)], "rejects": _newest(db, limit)}


def _count(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("topic", "reason", "count", "retried", "kept"), row, strict=True))


def _newest(db: apsw.Connection, limit: Typed) -> list[dict[str, Any]]:
    names = ("id", "topic", "partition", "offset", "element", "reason", "time", "bytes", "sample")
    rows = db.execute(_NEWEST, (limit,))
    return [dict(zip(names, (*rest, shown(data, _SAMPLE)), strict=True)) for *rest, data in rows]
