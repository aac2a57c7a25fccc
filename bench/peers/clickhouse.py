"""chDB: ClickHouse in the process, MergeTree by (project, timestamp), a partition a day, ZSTD(1), parts merged.

The query condition cache is off, since it would answer a repeated query without looking. Percentiles by `quantile`.
"""

import json
from pathlib import Path
from typing import Any

from bench.cases import COUNTS, LOGS, STATS, Case, Rows

_TABLES = {
    "edge": """
        CREATE TABLE edge (
            id UUID CODEC(ZSTD(1)), timestamp Int64 CODEC(Delta, ZSTD(1)), project LowCardinality(String),
            event_message String CODEC(ZSTD(1)), metadata String CODEC(ZSTD(1)), url String CODEC(ZSTD(1)),
            path String CODEC(ZSTD(1))
        ) ENGINE = MergeTree ORDER BY (project, timestamp)
        PARTITION BY intDiv(timestamp, 86400000000)
    """,
    "functions": """
        CREATE TABLE functions (
            id UUID CODEC(ZSTD(1)), timestamp Int64 CODEC(Delta, ZSTD(1)), project LowCardinality(String),
            function_id LowCardinality(String), status Int64 CODEC(ZSTD(1)), execution_time Int64 CODEC(ZSTD(1))
        ) ENGINE = MergeTree ORDER BY (project, timestamp)
        PARTITION BY intDiv(timestamp, 86400000000)
    """,
}
_QUERIES = {
    STATS: """
        SELECT timestamp - timestamp % {grain:Int64} AS bucket, toInt64(count()), toInt64(countIf(status >= 400)),
            min(execution_time), max(execution_time), avg(execution_time),
            quantile(0.95)(execution_time), quantile(0.99)(execution_time)
        FROM functions WHERE project = {project:String} AND timestamp >= {since:Int64} GROUP BY bucket ORDER BY bucket
    """,
    LOGS: """
        SELECT id, timestamp, event_message, metadata FROM edge
        WHERE project = {project:String} AND timestamp > {since:Int64} ORDER BY timestamp DESC LIMIT 100
    """,
    COUNTS: """
        SELECT timestamp - timestamp % {grain:Int64} AS bucket,
            countIf(position(path, '/rest') > 0), countIf(position(path, '/storage') > 0),
            countIf(position(path, '/auth') > 0), countIf(position(path, '/realtime') > 0)
        FROM edge WHERE timestamp >= {since:Int64} AND match(url, {project:String}) GROUP BY bucket ORDER BY bucket
    """,
}
_SETTINGS = " SETTINGS use_query_condition_cache = 0, output_format_json_quote_64bit_integers = 0"


class ClickHouse:
    """An `Engine`."""

    name = "chDB"

    def __init__(self, folder: Path, columns: Path) -> None:
        from chdb import session

        self._session: Any = session.Session(str(folder / "chdb"))
        for table, statement in _TABLES.items():
            if list(columns.glob(f"{table}-*")):
                self._session.query(statement)
                files = str(columns / f"{table}-*.parquet")
                self._session.query(f"INSERT INTO {table} SELECT * FROM file('{files}', Parquet)")
                self._session.query(f"OPTIMIZE TABLE {table} FINAL")

    def ask(self, case: Case, now: int) -> Rows:
        """As `Engine` says."""
        values: dict[str, Any] = {"project": case.project, "since": case.since(now)}
        if case.endpoint != LOGS:
            values["grain"] = case.grain
        answer = self._session.query(_QUERIES[case.endpoint] + _SETTINGS, "JSONCompact", params=values)
        return [tuple(row) for row in json.loads(str(answer))["data"]]

    def size(self) -> int:
        """As `Engine` says: of the merged parts."""
        answer = self._session.query(
            "SELECT toInt64(sum(bytes_on_disk)) FROM system.parts WHERE active AND table = 'edge'", "TabSeparated"
        )
        return int(str(answer))

    def close(self) -> None:
        """As `Engine` says."""
        self._session.close()
