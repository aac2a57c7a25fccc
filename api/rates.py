"""How often a key may ask: a token bucket each, in this process's memory (a process counts for itself)."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple


class Allowance(NamedTuple):
    """Whether a request may pass, how many more may at once, and the seconds until the next one may."""

    passes: bool
    remaining: int
    wait: float


class Rates:
    """Buckets of `limit` tokens, a second's worth, that fill at `limit` a second. Of 0 there is no limit.

    A bucket is kept as the time at which it will be full again.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def take(self, key: str) -> Allowance:
        """Take a token from a key's bucket, if there is one."""
        now = self._clock()
        full_at = max(now, self._full_at.get(key, now)) + 1 / self.limit
        wait = full_at - now - 1
        if wait > 1e-9:  # what adding up to a whole second may be off by
            return Allowance(False, 0, wait)
        self._full_at[key] = full_at
        return Allowance(True, math.floor(-wait * self.limit + 1e-6), 0.0)


def rate_headers(limit: int, allowance: Allowance) -> dict[str, str]:
    """The header fields that tell a client where it stands (draft-ietf-httpapi-ratelimit-headers)."""
    fields = {"RateLimit-Policy": f'"key";q={limit};w=1', "RateLimit": f'"key";r={allowance.remaining};t=1'}
    if not allowance.passes:
        fields["Retry-After"] = str(math.ceil(allowance.wait))
    return fields
