"""DuckDB on the raw events in their order of arrival; its own compression, percentiles by approx_quantile.

Times are integer µs, URL and path columns of their own, so nothing is parsed when a query runs.
"""

from pathlib import Path

import duckdb

from bench.cases import COUNTS, LOGS, STATS, Case, Rows

_QUERIES = {
    STATS: """
        SELECT timestamp - timestamp % $grain AS bucket, count(*), count(*) FILTER (status >= 400),
            min(execution_time), max(execution_time), avg(execution_time),
            approx_quantile(execution_time, 0.95), approx_quantile(execution_time, 0.99)
        FROM functions WHERE project = $project AND timestamp >= $since GROUP BY bucket ORDER BY bucket
    """,
    LOGS: """
        SELECT id, timestamp, event_message, metadata FROM edge
        WHERE project = $project AND timestamp > $since ORDER BY timestamp DESC LIMIT 100
    """,
    COUNTS: """
        SELECT timestamp - timestamp % $grain AS bucket,
            count(*) FILTER (contains(path, '/rest')), count(*) FILTER (contains(path, '/storage')),
            count(*) FILTER (contains(path, '/auth')), count(*) FILTER (contains(path, '/realtime'))
        FROM edge WHERE timestamp >= $since AND regexp_matches(url, $project) GROUP BY bucket ORDER BY bucket
    """,
}


class Duck:
    """An `Engine`."""

    name = "DuckDB"

    def __init__(self, folder: Path, columns: Path) -> None:
        self._file = folder / "duck.db"
        self._db = duckdb.connect(str(self._file))
        for table in ("edge", "functions"):
            if list(columns.glob(f"{table}-*")):
                source = str(columns / f"{table}-*.parquet")
                self._db.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{source}')")
        self._db.execute("CHECKPOINT")

    def ask(self, case: Case, now: int) -> Rows:
        """As `Engine` says."""
        values = {"project": case.project, "since": case.since(now)}
        if case.endpoint != LOGS:
            values["grain"] = case.grain
        rows: Rows = self._db.execute(_QUERIES[case.endpoint], values).fetchall()
        return rows

    def size(self) -> int:
        """As `Engine` says."""
        return self._file.stat().st_size

    def close(self) -> None:
        """As `Engine` says."""
        self._db.close()
