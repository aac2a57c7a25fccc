"""The peers' tables and writes: the usual way, a row an entry and an UPSERT an event and grain.

Logically these are Freshet's tables for edge events (entries, requests by origin and family, by minute, hour and day).
What Freshet has beside them a peer leaves out: exactly-once, late and future events, rejects, URLs to search.
All peers write through here, so that what is compared is how they get the events. SQLite is set as Freshet sets it, but
for twice its page cache.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_GRAINS = (60, 3600, 86400)  # seconds
_FAMILIES = ("/rest", "/storage", "/auth", "/realtime")


class Tables:
    """A peer's database."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        for pragma in ("page_size = 8192", "journal_mode = wal", "synchronous = normal", "cache_size = -32000"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute(
            "CREATE TABLE entries (project TEXT, timestamp INTEGER, id TEXT, event_message TEXT, metadata TEXT)"
        )
        self._db.execute("CREATE INDEX entries_newest ON entries (project, timestamp)")
        self._db.execute(
            """CREATE TABLE origin_hits (project TEXT, origin TEXT, grain INTEGER, bucket INTEGER, families INTEGER,
            hits INTEGER, PRIMARY KEY (project, origin, grain, bucket, families)) WITHOUT ROWID"""
        )

    def write(self, events: Iterable[dict[str, Any]], dumps: Any) -> None:
        """Add decoded events in one transaction; `dumps` makes JSON text of their metadata."""
        entries: list[tuple[Any, ...]] = []
        hits: list[tuple[Any, ...]] = []
        for event in events:
            project, timestamp, metadata = event["project"], event["timestamp"], event["metadata"]
            request = metadata["request"]
            entries.append((project, timestamp, event["id"], event["event_message"], dumps(metadata)))
            path = request["path"]
            families = sum((name in path) << bit for bit, name in enumerate(_FAMILIES))
            origin = "/".join(request["url"].split("/", 3)[:3])
            seconds = timestamp // 1_000_000
            hits += [(project, origin, grain, seconds - seconds % grain, families) for grain in _GRAINS]
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", entries)
        db.executemany(
            "INSERT INTO origin_hits VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET hits = hits + 1", hits
        )
        db.execute("COMMIT")
