"""Ends a worker that has stopped working, so that its supervisor starts another.

A thread of its own looks at the worker once a second, because what is stuck may be the event loop. Faust's own
detector compares two different clocks and never fires (docs/decisions/0003-batched-transport.md).
"""

import asyncio
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from streams.app import FreshetApp
from streams.transport import Consumer

log = logging.getLogger("freshet.watchdog")
STUCK = 70  # the exit code of a worker that was ended
_LOOK_EVERY = 1.0  # seconds
_STOP_SECONDS = 8.0  # for leaving the group: less than any supervisor waits


@dataclass(frozen=True, slots=True)
class Sighting:
    """What can be seen of a worker: times in seconds of a monotonic clock, lag in messages of its partitions.

    `last_turn` is when its event loop last took a turn.
    """

    rebalancing: bool
    flowing: bool
    assigned: bool
    last_turn: float
    last_fetch: float
    last_progress: float
    lag: int


class Watch:
    """Judges sightings.

    A healthy worker that has nothing to do fetches about once a second and has no lag. One to which no partition is
    assigned does not fetch at all: it stands by, for as long as it takes, and only its event loop can be seen to live.
    """

    def __init__(self, patience: float, now: float) -> None:
        self._patience = patience
        self._last_settled = self._last_unsettled = self._last_unassigned = self._caught_up = now

    def judge(self, seen: Sighting, now: float) -> str | None:
        """Why the worker is stuck, if it has been so for longer than `patience` seconds."""
        if seen.rebalancing or not seen.flowing:
            self._last_unsettled = now
        else:
            self._last_settled = now
        if seen.lag == 0:
            self._caught_up = now
        if not seen.assigned:
            self._last_unassigned = now
        if now - seen.last_turn > self._patience:
            return f"its event loop has stood still for {now - seen.last_turn:.0f} s"
        if now - self._last_settled > self._patience:
            state = "starting or rebalancing" if seen.rebalancing else "holding its flow back"
            return f"it has been {state} for {now - self._last_settled:.0f} s"
        silent = now - max(seen.last_fetch, self._last_unsettled, self._last_unassigned)
        if silent > self._patience:
            return f"it has not fetched for {silent:.0f} s"
        stalled = now - max(seen.last_progress, self._caught_up, self._last_unsettled)
        if stalled > self._patience:
            return f"it lags {seen.lag} messages behind and has applied nothing for {stalled:.0f} s"
        return None


class Pulse:
    """Feels whether a worker's event loop takes turns."""

    def __init__(self) -> None:
        self.last_turn = time.monotonic()

    def feel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask a loop for a sign of life; safe from any thread."""
        with suppress(RuntimeError):  # it has been closed: the worker is about to end
            loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        self.last_turn = time.monotonic()


def sighting(app: FreshetApp, last_turn: float) -> Sighting:
    """A look at a running worker; safe from any thread. One that has not started yet counts as rebalancing."""
    ingest = app.ingest
    if not app.started:
        return Sighting(True, False, False, last_turn, ingest.last_fetch, ingest.last_progress, 0)
    consumer = cast(Consumer, app.consumer)
    assignment = consumer.assignment()
    lag = ingest.lag(assignment)
    flowing, assigned = consumer.flow_active, bool(assignment)
    return Sighting(app.rebalancing, flowing, assigned, last_turn, ingest.last_fetch, ingest.last_progress, lag)


def watch(app: FreshetApp, patience: float) -> None:
    """Start watching a worker; it is ended with exit code 70 and a log line once it is stuck for `patience` seconds."""
    threading.Thread(target=_look, args=(app, patience), name="watchdog", daemon=True).start()


def _look(app: FreshetApp, patience: float) -> None:
    judge, pulse = Watch(patience, time.monotonic()).judge, Pulse()
    running_at = time.monotonic()
    while True:
        time.sleep(_LOOK_EVERY)
        if not app.should_stop:
            running_at = time.monotonic()
        elif time.monotonic() - running_at > _STOP_SECONDS:
            log.warning("the broker does not let this worker go; it ends without: what it has applied is stored")
            logging.shutdown()
            os._exit(0)
        if app.started:
            pulse.feel(app.loop)
        else:
            pulse.last_turn = time.monotonic()
        why = judge(sighting(app, pulse.last_turn), time.monotonic())
        if why is not None:
            log.critical("this worker is stuck: %s. It ends now; its supervisor is to start another", why)
            logging.shutdown()
            os._exit(STUCK)
