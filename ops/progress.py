"""How far the workers are, as the store tells it."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from schema.tables import LIVE_POSITIONS, current_generation, store_path

_LAG = f"SELECT coalesce(sum(max(0, end_offset - next_offset)), 0) FROM ({LIVE_POSITIONS})"  # noqa: S608  # our own


@dataclass(frozen=True, slots=True)
class Progress:
    """Events applied by topic since the store was made, messages not yet applied, and rejects."""

    events: dict[str, int]
    lag: int
    rejects: int


def read_progress(data: Path) -> Progress:
    """A look at a live store, read-only."""
    path = store_path(data, current_generation(data))
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
        events = dict(db.execute("SELECT topic, count FROM counters WHERE name = 'events' ORDER BY topic").fetchall())
        (lag,) = db.execute(_LAG).fetchone()
        (rejects,) = db.execute("SELECT coalesce(sum(count), 0) FROM counters WHERE name LIKE 'reject.%'").fetchone()
    return Progress(events, lag, rejects)
