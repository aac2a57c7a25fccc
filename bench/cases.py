"""The questions asked of Freshet and of the peers: each endpoint and interval, for a big and a small project."""

from typing import Any, NamedTuple, Protocol

from bench.load import BIG, SMALL
from schema.intervals import USAGE_INTERVALS, invocation_interval, invocation_window_start, tier_retention

STATS, LOGS, COUNTS = "functions.invocation-stats", "logs.all", "usage.api-counts"
BY_FUNCTION, SEARCH = "functions.statistics", "logs.search"
Rows = list[tuple[Any, ...]]


class Case(NamedTuple):
    """One question: the endpoint, its interval (or tier), and the project's reference."""

    endpoint: str
    interval: str
    project: str

    @property
    def parameters(self) -> dict[str, str]:
        """As they stand in the URL."""
        word = {"project_tier" if self.endpoint in (LOGS, SEARCH) else "interval": self.interval}
        return {"project": self.project, **word}

    @property
    def grain(self) -> int:
        """The size of the answer's buckets in µs."""
        if self.endpoint == STATS:
            return invocation_interval(self.interval).grain
        return USAGE_INTERVALS[self.interval].grain

    def since(self, now: int) -> int:
        """The first moment in µs whose events count, as of `now`; for logs.all the last that does not."""
        if self.endpoint == STATS:
            return invocation_window_start(self.interval, now)
        if self.endpoint == LOGS:
            return now - tier_retention(self.interval)
        return now - USAGE_INTERVALS[self.interval].span

    @property
    def label(self) -> str:
        """In a table."""
        return f"{self.endpoint} {self.interval}"


CASES = [
    Case(endpoint, interval, project)
    for endpoint, intervals in {
        STATS: ("5min", "15min", "1hr", "1day", "7day"),
        LOGS: ("FREE",),
        COUNTS: ("minutely", "hourly", "daily"),
    }.items()
    for interval in intervals
    for project in (BIG, SMALL)
]
OWN_CASES = [
    Case(endpoint, interval, BIG)
    for endpoint, intervals in {
        BY_FUNCTION: ("5min", "15min", "1hr", "1day", "7day"),
        LOGS: ("PRO", "PAYG", "ENTERPRISE"),
        SEARCH: ("FREE", "ENTERPRISE"),
        COUNTS: ("15min", "30min", "1hr", "3hr", "1day", "3day", "7day"),
    }.items()
    for interval in intervals
]
"""What is asked of Freshet alone: its own endpoints, tiers and intervals."""


class Engine(Protocol):
    """A database that keeps the raw events and answers the specification's queries from them."""

    name: str

    def ask(self, case: Case, now: int) -> Rows:
        """An answer's rows. Of STATS bucket in µs, count, errors and statistics, of COUNTS bucket and four totals."""

    def size(self) -> int:
        """The bytes on disk of the edge events."""

    def close(self) -> None:
        """Let go of its files."""
