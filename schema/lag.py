"""How far behind its log a partition is, by one rule for `freshet status` and `/metrics`."""

from schema.timestamps import SECOND


def lag_seconds(now: int, position: int, end: int, last_timestamp: int | None, applied_at: int) -> float:
    """The age of the last record applied (`last_timestamp` in ms) where the log goes on behind it, else 0.

    Of a partition whose records have no time it is the time since its last commit. `now` and `applied_at` in µs.
    """
    since = last_timestamp * 1000 if last_timestamp else applied_at
    return max(0, now - since) / SECOND if end > position else 0.0
