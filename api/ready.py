"""`GET /ready`: whether answers can be given, and fresh ones; without a key, for health checks and load balancers."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import falcon
from falcon.asgi import Request, Response

from api.databases import ControlReader, open_database
from api.errors import RETRY_SECONDS
from schema.clock import Clock
from schema.errors import StoreError
from schema.lag import silent_seconds
from schema.meters import collect, latest_look
from schema.tables import LIVE_POSITIONS, store_migrations, store_path
from schema.timestamps import SECOND

_KEEP_SECONDS = 0.5  # for which a result counts: anybody may ask, and it costs some milliseconds
_POSITIONS = f"SELECT topic, partition, next_offset, end_offset, applied_at FROM ({LIVE_POSITIONS})"  # noqa: S608  # a query of our own


class Ready:
    """Answers GET: 200 with `{"status": "ready"}`, or 503 with the reasons why not."""

    needs = None  # no key

    def __init__(self, data: Path, clock: Clock, seconds: float) -> None:
        self._data, self._clock, self._seconds = data, clock, seconds
        self._reasons: Sequence[str] = ()
        self._looked_at = -_KEEP_SECONDS
        self._looking = asyncio.Lock()

    async def on_get(self, request: Request, response: Response) -> None:
        """Answer from a look at the store that is half a second old at most."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _KEEP_SECONDS:
                self._reasons = await asyncio.to_thread(reasons, self._data, self._clock, self._seconds)
                self._looked_at = time.monotonic()
        response.cache_control = ["no-store"]
        if self._reasons:
            response.status = falcon.HTTP_503
            response.set_header("Retry-After", str(RETRY_SECONDS))
            response.media = {"status": "not ready", "reasons": list(self._reasons)}
        else:
            response.media = {"status": "ready"}

    on_head = on_get


def reasons(data: Path, clock: Clock, seconds: float) -> list[str]:
    """Why no fresh answers can be given: none where the store can be read, and no partition has been left for long."""
    try:
        with closing(ControlReader(data)) as control:
            path = store_path(data, control.generation())
        with closing(open_database(path, store_migrations)) as db:
            partitions = list(db.execute(_POSITIONS))
    except StoreError as error:
        return [str(error)]
    except apsw.Error as error:
        return [f"the store can't be read: {error}"]
    if not partitions:
        return ["no worker has been assigned a partition yet"]
    now = clock()
    found = []
    for topic, partition, position, end, applied_at in partitions:
        still = (now - applied_at) / SECOND
        if end > position and still > seconds:
            found.append(
                f"{topic}[{partition}] is {end - position:,} messages behind, with no commit for {still:,.0f} s"
            )
    silent = silent_seconds(now, latest_look(collect(data)))
    if silent > seconds:
        found.append(f"no worker has asked the broker for {silent:,.0f} s")
    return found
