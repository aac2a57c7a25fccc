"""The one clock that every process is given at its edge."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the time now in integer microseconds since the epoch, UTC."""


def system_clock() -> int:
    """The machine's time in microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
