"""`python -m bench patterns`: api-counts over a week of URLs, with patterns never seen and known, a URL and a hit."""

import json
import random
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import closing
from itertools import product
from pathlib import Path

from api.bodies import body
from api.reader import Reader
from bench.figures import Cell, Options, Result, Table, how_many, median
from bench.load import PROJECTS, REFS
from schema.blocks import Compressor
from schema.saved_queries import load_saved_queries
from schema.tables import DAY_GRAIN, HOUR_GRAIN, MINUTE_GRAIN, migrate
from schema.timestamps import DAY, HOUR, SECOND, floor_to
from schema.url_blocks import URLS_PER_BLOCK, Requested, pack_urls
from streams.packing import URL_LEVEL

URLS, SHORT_URLS = 10_000_000, 500_000
NOW = 1_750_000_000_123_456
SPAN = 7 * DAY
_PATHS = (
    *(("/rest/v1/todos", 1), ("/rest/v1/orders", 1), ("/auth/v1/user", 4)),
    *(("/storage/v1/object/public/a.png", 2), ("/realtime/v1/websocket", 8)),
)
_A_URL_OF_A_REFERENCE, _A_URL, _A_HIT = 0.05e-6, 0.1e-6, 1.7e-6  # seconds, as the target has them
PATTERNS = ("never-seen", "https?://[a-z]+[.]nothing", r"id=eq\.00\b", "(?i)NEVER", "id=eq.ff", "/auth/v1", "/rest")
_QUERY = load_saved_queries()["usage.api-counts"]


def fill(folder: Path, urls: int) -> None:
    """Make a store of sealed URL blocks of the last week, and their origins' hits as far as the queries read them."""
    chance = random.Random(1)
    weights = [1 / rank for rank in range(1, PROJECTS + 1)]
    compressor, spacing = Compressor(level=URL_LEVEL), SPAN // urls
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
            for time_, ref in zip(times, chance.choices(REFS, weights, k=len(times)), strict=True):
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


def run(options: Options) -> Result:
    """For each pattern and interval the first time it is asked, and the median of nine more."""
    urls = options.events or (SHORT_URLS if options.short else URLS)
    rows: list[list[Cell]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, urls)
        with closing(sqlite3.connect(folder / "freshet-1.db")) as db:
            (count, size) = db.execute("SELECT sum(count), sum(length(payload)) FROM url_blocks").fetchone()
        for pattern, interval in product((REFS[0], *PATTERNS), ("daily", "hourly", "minutely")):
            reader = Reader(folder)
            times: list[float] = []
            for _ in range(10):
                began = time.perf_counter()
                answer = reader.run(_QUERY, {"project": pattern, "interval": interval}, None, NOW, 600)
                times.append(time.perf_counter() - began)
            counts = json.loads(body(_QUERY, answer))["result"]
            first, hits = times[0], sum(sum(list(row.values())[1:]) for row in counts)
            searched = 0 if pattern == REFS[0] else hits  # a reference's own are counted from the tables
            limit = count * (_A_URL_OF_A_REFERENCE if pattern == REFS[0] else _A_URL) + searched * _A_HIT
            rows.append(
                [
                    f"{'a project reference' if pattern == REFS[0] else pattern}, {interval}",
                    *(first * 1000, median(times[1:]) * 1000, hits),
                    limit * 1000 if interval == "daily" else None,
                ]
            )
    table = Table(
        f"usage.api-counts by pattern over {how_many(count)} sealed URLs of a week, {size / count:.1f} bytes each: ms",
        ["pattern, interval", "first", "known", "hits", "first, target"],
        rows,
        "In one process without HTTP, on a reader that knows no pattern yet: the first time is measured once, that of "
        "a known pattern is the median of nine. The target is 0.05 µs a URL for a project reference, for any other "
        "pattern 0.1 µs a URL and 1.7 µs a hit.",
    )
    return Result(subject="patterns", tables=[table])
