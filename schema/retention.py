"""How long each table keeps its rows, and what has expired (design section 3).

A horizon is a time in µs: a bucket whose end is not after it, or an entry not newer than it, is gone for good.
Horizons are stored and only grow, so that a clock set back brings nothing half back.
"""

from collections.abc import Mapping
from types import MappingProxyType

from schema.timestamps import SECOND

INVOCATIONS, ORIGIN_HITS, ENTRIES, URLS = "invocations", "origin_hits", "entry_blocks", "url_blocks"
NO_GRAIN = 0
"""The grain of the two tables of blocks, whose rows expire by their time alone."""

Kind = tuple[str, int]
"""(table, grain in seconds)."""
Horizons = Mapping[Kind, int]
"""The stored horizons; one that is missing is 0: nothing has expired."""


NOTHING_EXPIRED: Horizons = MappingProxyType({})


def horizons_at(now: int, kept: Mapping[Kind, int]) -> dict[Kind, int]:
    """What has expired at a time; `kept` says how long each kind is kept, both in µs."""
    return {kind: now - duration for kind, duration in kept.items()}


def bucket_expired(horizons: Horizons, table: str, grain: int, bucket: int) -> bool:
    """Whether the bucket that starts at `bucket` (µs) has expired: its end counts."""
    return bucket + grain * SECOND <= horizons.get((table, grain), 0)


def time_expired(horizons: Horizons, table: str, timestamp: int) -> bool:
    """Whether a time (µs) is not newer than the horizon of a table of blocks."""
    return timestamp <= horizons.get((table, NO_GRAIN), 0)
