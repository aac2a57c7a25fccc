"""`python -m bench patterns`: api-counts over a week of URLs, with patterns never seen and known, a URL and a hit."""

import os
import random
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import closing
from itertools import product
from pathlib import Path

from api.reader import Reader
from bench.load import PROJECTS
from schema.blocks import Compressor
from schema.saved_queries import load_saved_queries
from schema.tables import DAY_GRAIN, HOUR_GRAIN, MINUTE_GRAIN, migrate
from schema.timestamps import DAY, HOUR, SECOND, floor_to
from schema.url_blocks import URLS_PER_BLOCK, Requested, pack_urls
from streams.sealing import URL_LEVEL

URLS = int(os.environ.get("URLS", "10000000"))
NOW = 1_750_000_000_123_456
SPAN = 7 * DAY
_PATHS = (
    *(("/rest/v1/todos", 1), ("/rest/v1/orders", 1), ("/auth/v1/user", 4)),
    *(("/storage/v1/object/public/a.png", 2), ("/realtime/v1/websocket", 8)),
)
PATTERNS = ("never-seen", "https?://[a-z]+[.]nothing", r"id=eq\.00\b", "(?i)NEVER", "id=eq.ff", "/auth/v1", "/rest")
_QUERY = load_saved_queries()["usage.api-counts"]


def fill(folder: Path) -> None:
    """Make a store of sealed URL blocks of the last week, and their origins' hits as far as the queries read them."""
    chance = random.Random(1)
    refs = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=20)) for _ in range(PROJECTS)]
    weights = [1 / rank for rank in range(1, PROJECTS + 1)]
    compressor, spacing = Compressor(level=URL_LEVEL), SPAN // URLS
    hits: Counter[tuple[str, str, int, int, int]] = Counter()
    with closing(sqlite3.connect(migrate(folder), isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = off")
        db.execute("BEGIN")
        moment = NOW - SPAN
        while moment < NOW:
            end = min(moment + spacing * URLS_PER_BLOCK, floor_to(moment, HOUR) + HOUR, NOW)
            hour = floor_to(moment, HOUR)
            runs: dict[str, dict[Requested, list[int]]] = {}
            times = range(moment, end, spacing)
            for time_, ref in zip(times, chance.choices(refs, weights, k=len(times)), strict=True):
                path, families = _PATHS[int(chance.random() * 5)]
                query = f"?id=eq.{chance.getrandbits(64):x}" if chance.random() < 0.3 else ""
                url = f"https://{ref}.supabase.co{path}{query}".encode()
                runs.setdefault(ref, {}).setdefault((families, url), []).append(time_ - hour)
                for grain in (MINUTE_GRAIN, HOUR_GRAIN, DAY_GRAIN):
                    if grain > MINUTE_GRAIN or time_ > NOW - 4 * HOUR or time_ < NOW - SPAN + HOUR:
                        hits[ref, f"https://{ref}.supabase.co", grain, floor_to(time_, grain * SECOND), families] += 1
            packed = pack_urls(hour, [(ref, f"https://{ref}.supabase.co", runs[ref]) for ref in sorted(runs)])
            db.execute(
                "INSERT INTO url_blocks (min_timestamp, max_timestamp, count, sealed, payload) VALUES (?, ?, ?, 1, ?)",
                (moment, times[-1], len(times), compressor.compress(packed)),
            )
            moment = times[-1] + spacing
        rows = [(*key, count) for key, count in hits.items()]
        db.executemany("INSERT INTO origin_hits VALUES (?, ?, ?, ?, ?, ?)", rows)
        db.execute("COMMIT")


def main() -> None:
    """For each pattern and interval the first time it is asked, and the median of nine more; STORE keeps the store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.environ.get("STORE", name))
        if not (folder / "control.db").exists():
            fill(folder)
        with closing(sqlite3.connect(folder / "freshet-1.db")) as db:
            blocks, size, count = db.execute(
                "SELECT count(*), sum(length(payload)), sum(count) FROM url_blocks"
            ).fetchone()
            (ref,) = db.execute("SELECT project FROM origin_hits LIMIT 1").fetchone()
        print(f"{count:,} URLs in {blocks:,} blocks, {size / count:.1f} bytes each")
        print(f"{'pattern':28} {'interval':9} {'first ms':>9} {'known ms':>9} {'hits':>10} {'µs a URL, or a hit':>19}")
        for pattern, interval in product((ref, *PATTERNS), ("daily", "hourly", "minutely")):
            reader = Reader(folder)
            times: list[float] = []
            for _ in range(10):
                began = time.perf_counter()
                rows = reader.run(_QUERY, {"project": pattern, "interval": interval}, None, NOW, 600).rows
                times.append(time.perf_counter() - began)
            first, known = times[0], sorted(times[1:])[4]
            hits = sum(int(number or 0) for row in rows for number in row[1:])
            each = (
                f"{first / count * 1e6:.3f}"
                if pattern == ref or not hits
                else f"{(first - count * 1e-7) / hits * 1e6:.2f}"
            )
            shown = each if interval == "daily" else ""
            print(f"{pattern:28} {interval:9} {first * 1e3:9.1f} {known * 1e3:9.2f} {hits:10,} {shown:>19}", flush=True)
