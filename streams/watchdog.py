"""Ends a worker that has stopped working, so that its supervisor starts another.

A thread of its own looks at the worker once a second, because what is stuck may be the event loop. Faust's own
detector compares two different clocks and never fires (docs/decisions/0003-batched-transport.md).
"""

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import cast

from streams.app import FreshetApp
from streams.transport import Consumer

log = logging.getLogger("freshet.watchdog")
STUCK = 70  # the exit code of a worker that was ended
_LOOK_EVERY = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Sighting:
    """What can be seen of a worker: times in seconds of a monotonic clock, lag in messages of its partitions."""

    rebalancing: bool
    flowing: bool
    last_fetch: float
    last_progress: float
    lag: int


class Watch:
    """Judges sightings. A healthy idle worker fetches about once a second and has no lag."""

    def __init__(self, patience: float, now: float) -> None:
        self._patience = patience
        self._settled = self._caught_up = now

    def judge(self, seen: Sighting, now: float) -> str | None:
        """Why the worker is stuck, if it has been so for longer than `patience` seconds."""
        if not seen.rebalancing and seen.flowing:
            self._settled = now
        if seen.lag == 0:
            self._caught_up = now
        if now - self._settled > self._patience:
            state = "rebalancing" if seen.rebalancing else "holding its flow back"
            return f"it has been {state} for {now - self._settled:.0f} s"
        if now - max(seen.last_fetch, self._settled) > self._patience:
            return f"it has not fetched for {now - seen.last_fetch:.0f} s"
        stalled = now - max(seen.last_progress, self._caught_up, self._settled)
        if stalled > self._patience:
            return f"it lags {seen.lag} messages behind and has applied nothing for {stalled:.0f} s"
        return None


def sighting(app: FreshetApp) -> Sighting:
    """A look at a running worker; safe from any thread."""
    ingest = app.ingest
    lag = sum(max(0, end - ingest.applied.get(tp, end)) for tp, end in list(ingest.ends.items()))
    consumer = cast(Consumer, app.consumer)
    return Sighting(app.rebalancing, consumer.flow_active, ingest.last_fetch, ingest.last_progress, lag)


def watch(app: FreshetApp, patience: float) -> None:
    """Start watching a worker; it is ended with exit code 70 and a log line once it is stuck for `patience` seconds."""
    threading.Thread(target=_look, args=(app, patience), name="watchdog", daemon=True).start()


def _look(app: FreshetApp, patience: float) -> None:
    judge = Watch(patience, time.monotonic()).judge
    while True:
        time.sleep(_LOOK_EVERY)
        why = judge(sighting(app), time.monotonic())
        if why is not None:
            log.critical("this worker is stuck: %s. It ends now; its supervisor is to start another", why)
            logging.shutdown()
            os._exit(STUCK)
