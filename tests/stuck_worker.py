"""A worker as the product starts it, which gets stuck once it reads: `python stuck_worker.py STATE`."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from schema.settings import load_settings
from streams import worker
from streams.app import FreshetApp
from streams.app import create_app as create_good_app

EVER = 3600.0  # seconds


async def hang(*_: Any, **__: Any) -> None:
    """What never comes back."""
    await asyncio.sleep(EVER)


def block_loop(_: FreshetApp) -> None:
    """Something on the event loop does not return."""
    time.sleep(EVER)


def hold_flow(app: FreshetApp) -> None:
    """As after a recovery that ended without a word: Faust lets nothing flow."""
    app.consumer.stop_flow()


def never_fetch(app: FreshetApp) -> None:
    """The next fetch does not come back."""
    vars(app.consumer)["_thread"].getmany = hang


def never_apply(app: FreshetApp) -> None:
    """A batch is not written."""
    vars(app.ingest)["prepare"] = lambda *_: hang


def never_seek(app: FreshetApp) -> None:
    """The next rebalance does not end."""
    vars(app.consumer)["perform_seek"] = hang
    app.rebalancing = True


STATES: dict[str, tuple[Callable[[FreshetApp], None], str]] = {
    "loop blocked": (block_loop, "its event loop has stood still for"),
    "flow held back": (hold_flow, "it has been holding its flow back for"),
    "no fetch": (never_fetch, "it has not fetched for"),
    "nothing applied": (never_apply, "behind and has applied nothing for"),
    "rebalancing": (never_seek, "it has been starting or rebalancing for"),
}
"""How a worker gets stuck, and what the watchdog says of it."""


def main(state: str) -> None:
    """Run a worker until the watchdog ends it."""

    def create_app(*parts: Any) -> FreshetApp:
        app = create_good_app(*parts)

        async def get_stuck() -> None:
            while not app.ingest.applied:
                await asyncio.sleep(0.1)
            STATES[state][0](app)

        app.task(get_stuck)
        return app

    vars(worker)["create_app"] = create_app
    worker.run_worker(load_settings())


if __name__ == "__main__":
    main(*sys.argv[1:])
