"""Deterministic load: edge events of about 2.5 KB as hosted projects send them."""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

PROJECTS = 200
_PATHS = (
    *("/rest/v1/todos", "/rest/v1/orders", "/auth/v1/user"),
    *("/storage/v1/object/public/a.png", "/realtime/v1/websocket"),
)
_HEADERS = {f"x-header-{number:02d}": "a header's text as most requests repeat it" for number in range(24)}


def edge_events(count: int, start: int, spacing: int = 100, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Pairs (key, value) of events `spacing` µs apart from `start` (µs) on.

    200 projects in a Zipf distribution, 30 % of the URLs with a query string of their own, some 200 random bytes each.
    """
    chance = random.Random(seed)
    refs = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=20)) for _ in range(PROJECTS)]
    weights = [1 / rank for rank in range(1, PROJECTS + 1)]
    for number, ref in enumerate(chance.choices(refs, weights, k=count)):
        yield ref.encode(), msgspec.json.encode(_event(chance, ref, start + number * spacing))


def _event(chance: random.Random, ref: str, timestamp: int) -> dict[str, Any]:
    path = chance.choice(_PATHS)
    search = f"?id=eq.{chance.getrandbits(64):x}" if chance.random() < 0.3 else ""
    url = f"https://{ref}.supabase.co{path}{search}"
    return {
        "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "timestamp": timestamp,
        "project": ref,
        "event_message": f"GET | 200 | 10.0.0.1 | {chance.getrandbits(64):016x} | {url} | supabase-js/2.58.0",
        "metadata": {
            "request": {
                "method": "GET",
                "protocol": "https:",
                "host": f"{ref}.supabase.co",
                "path": path,
                "search": search,
                "url": url,
                "headers": {**_HEADERS, "cf-ray": f"{chance.getrandbits(64):016x}"},
                "cf": {"country": "DE", "token": chance.randbytes(70).hex()},
            },
            "response": {
                "status_code": 200,
                "origin_time": chance.randint(1, 500),
                "headers": {"server": "cloudflare"},
            },
        },
    }
