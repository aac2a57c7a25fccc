"""How far behind its log a partition is, by one rule for `freshet status`, `/metrics` and `/ready`."""

from schema.timestamps import SECOND

SILENT_SECONDS = 15.0
"""After how long without a fetch by any worker its last word counts no more; a healthy one fetches once a second."""


def lag_seconds(
    now: int, position: int, end: int, last_timestamp: int | None, applied_at: int, looked_at: float | None = None
) -> float:
    """The age of the last record applied (`last_timestamp` in ms) where the log goes on behind it, else 0.

    Of a partition whose records have no time it is the time since its last commit. `now` and `applied_at` in µs.
    `looked_at` is when a worker last fetched (s), None where that is not known: the `end` is of that time, so that a
    partition which stood at its end is behind by the time since, once that is longer than a living worker lets pass.
    """
    since = last_timestamp * 1000 if last_timestamp else applied_at
    silent = silent_seconds(now, looked_at)
    return max(0, now - since) / SECOND if end > position else silent if silent > SILENT_SECONDS else 0.0


def silent_seconds(now: int, looked_at: float | None) -> float:
    """The seconds from a worker's last fetch (s) to now (µs), 0 where that is not known."""
    return max(0.0, now / SECOND - looked_at) if looked_at else 0.0
