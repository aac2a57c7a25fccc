"""When each key was last used: noted in memory, written about once a minute by a thread of its own."""

import asyncio
import logging
from pathlib import Path

import apsw

from schema.tables import control_path

EVERY_SECONDS = 60.0
_BUSY_MILLISECONDS = 5000
_WRITE = "UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?"
log = logging.getLogger("freshet.api")


class KeyUses:
    """Middleware without a part in any request: it writes while the server runs, and once more when it stops."""

    def __init__(self, data: Path, every_seconds: float = EVERY_SECONDS) -> None:
        self._path = control_path(data)
        self._every = every_seconds
        self._last: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, identifier: str, now: int) -> None:
        """A key is used at `now` (µs)."""
        self._last[identifier] = now

    async def process_startup(self, scope: object, event: object) -> None:
        """Called by the server when it starts."""
        self._writing = asyncio.create_task(self._write_now_and_then())

    async def process_shutdown(self, scope: object, event: object) -> None:
        """Called by the server when it stops."""
        if self._writing is not None:
            self._writing.cancel()
        await asyncio.to_thread(self.write)

    async def _write_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await asyncio.to_thread(self.write)

    def write(self) -> None:
        """Write what has been noted since the last time; what can't be written is kept for the next."""
        last, self._last = self._last, {}
        if not last:
            return
        try:
            db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                db.set_busy_timeout(_BUSY_MILLISECONDS)
                with db:
                    db.executemany(_WRITE, [(used_at, identifier) for identifier, used_at in last.items()])
            finally:
                db.close()
        except apsw.Error as error:
            log.warning("the last use of keys is not written, later perhaps: %s", error)
            self._last = last | self._last
