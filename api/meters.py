"""What a process of the API counts about itself, and once a second looks at; `/metrics` tells the sums over all."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from schema.meters import SUM, Counter, Histogram, Meters

log = logging.getLogger("freshet.api")
METERS = Meters()
REQUESTS = Counter(
    METERS,
    "freshet_api_requests",
    "Requests answered, by endpoint (- where it is none), status and where a kept answer came from",
    ("endpoint", "status", "cache"),
)
QUERY_SECONDS = Histogram(
    METERS,
    "freshet_api_query_seconds",
    "Time of queries that asked the database, the wait for a thread left out",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    ("endpoint",),
)
_LOOK_SECONDS = 1.0
_GAUGES = {
    "processes": "Processes of the API that live",
    "requests_in_flight": "Requests under way, as of a second ago at most",
    "cache_entries": "Answers kept, in all processes together",
    "cache_bytes": "Memory that they take",
    "background_searches": "Searches past their time limit that go on or wait",
    "queries_waiting": "Queries that have no thread yet",
}
_COUNTS = {
    "warmer_refreshed": "Answers computed anew before somebody waited",
    "warmer_failed": "Attempts at that which failed",
}


class InFlight:
    """How many requests have begun and have no line in the access log yet. The event loop's thread alone counts."""

    def __init__(self) -> None:
        self.count = 0


IN_FLIGHT = InFlight()


class Sampler:
    """Looks once a second, between `start` and `stop`, at what would cost too much to count at each change.

    `look` gives the values by the names above, `processes` left out.
    """

    def __init__(self, data: Path, look: Callable[[], Mapping[str, float]]) -> None:
        self._data, self._look = data, look
        self._task: asyncio.Task[None] | None = None
        self._gauges = {n: Counter(METERS, f"freshet_api_{n}", text, kind=SUM) for n, text in _GAUGES.items()}
        self._counters = {n: Counter(METERS, f"freshet_api_{n}", text) for n, text in _COUNTS.items()}
        self._before: dict[str, float] = dict.fromkeys(_COUNTS, 0)

    def start(self) -> None:
        """Begin; the event loop has to run. Where the folder can't be written this process counts for itself alone."""
        try:
            METERS.open(self._data)
        except OSError as error:
            log.warning("this process is missing in /metrics: %s", error)
        self._gauges["processes"].put(value=1)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        METERS.close()

    async def _run(self) -> None:
        while True:
            for name, value in self._look().items():
                if name in self._gauges:
                    self._gauges[name].put(value=value)
                else:
                    self._counters[name].add(amount=value - self._before[name])
                    self._before[name] = value
            await asyncio.sleep(_LOOK_SECONDS)
