"""`freshet alive`: whether workers live, for health checks. It asks no broker and opens no database."""

from collections.abc import Callable

from schema.clock import Clock
from schema.errors import FreshetError
from schema.lag import silent_seconds
from schema.meters import collect, latest_look
from schema.settings import Settings


def show_alive(settings: Settings, clock: Clock, show: Callable[[str], object]) -> None:
    """Show when any worker on this data folder last asked the broker for more.

    Raises FreshetError where that is over FRESHET_READY_SECONDS ago, or none ever has. Each worker watches itself as
    well, and ends when it is stuck (`streams.watchdog`).
    """
    looked_at = latest_look(collect(settings.data))
    if not looked_at:
        raise FreshetError(f"no worker has asked the broker for anything yet (data folder {settings.data.resolve()})")
    silent = silent_seconds(clock(), looked_at)
    if silent > settings.ready_seconds:
        raise FreshetError(f"no worker has asked the broker for {silent:,.0f} s: look at the workers' logs")
    show(f"a worker asked the broker {silent:.1f} s ago")
