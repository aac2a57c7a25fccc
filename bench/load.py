"""Deterministic load as hosted projects send it: edge requests of about 2.5 KB, function invocations of about 0.8 KB.

200 projects in a Zipf distribution; 30 % of the URLs have a query string of their own; 200 random bytes in each edge
event (id, ray, token), as in real traffic. The same seed gives the same events, whoever asks.
"""

import base64
import random
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import msgspec

PROJECTS = 200
FUNCTIONS = 5  # of a project
_NAMES = random.Random(0)
REFS = ["".join(_NAMES.choices("abcdefghijklmnopqrstuvwxyz", k=20)) for _ in range(PROJECTS)]
"""Project references, from the one with most traffic to the one with least."""
BIG, SMALL = REFS[0], REFS[-1]

_WEIGHTS = list(accumulate(1 / rank for rank in range(1, PROJECTS + 1)))
_PATHS = (
    *("/rest/v1/todos", "/rest/v1/orders", "/auth/v1/user"),
    *("/storage/v1/object/public/a.png", "/realtime/v1/websocket"),
)
_METHODS, _STATUSES = ("GET", "GET", "GET", "POST", "PATCH"), (200,) * 14 + (201, 206, 304, 400, 404, 500)
_AT_ONCE = 1000  # projects drawn at a time
_FIXED_HEADERS = {
    "accept": "application/json, text/plain;q=0.9, image/avif,image/webp,*/*;q=0.8",
    "accept_encoding": "gzip, deflate, br, zstd",
    "accept_language": "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7",
    "accept_profile": "public",
    "cache_control": "max-age=14400, must-revalidate",
    "cf_cache_status": "DYNAMIC",
    "cf_ipcountry": "DE",
    "cf_visitor": '{"scheme":"https"}',
    "connection": "Keep-Alive",
    "content_length": "4096",
    "content_type": "application/json; charset=utf-8",
    "origin": "https://dashboard.example.com",
    "permissions_policy": "interest-cohort=(), geolocation=()",
    "prefer": "return=representation, count=exact",
    "priority": "u=1, i",
    "referer": "https://dashboard.example.com/projects/overview?tab=activity&range=30d",
    "sec_ch_ua": '"Chromium";v="142", "Not(A:Brand";v="24", "Google Chrome";v="142"',
    "sec_ch_ua_mobile": "?0",
    "sec_ch_ua_platform": '"macOS"',
    "sec_fetch_dest": "empty",
    "sec_fetch_mode": "cors",
    "sec_fetch_site": "cross-site",
    "user_agent": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/142.0.0.0 Safari/537.36",
    "x_client_info": "supabase-js-web/2.58.0",
    "x_forwarded_for": "10.0.0.1, 172.70.247.31",
    "x_forwarded_proto": "https",
    "x_kong_proxy_latency": "1",
    "x_kong_upstream_latency": "9",
    "x_supabase_api_version": "2024-01-01",
    "x_upsert": "resolution=merge-duplicates",
}
_HEADERS = msgspec.json.encode(_FIXED_HEADERS).decode()[:-1]


class EdgeRequest(NamedTuple):
    """What differs from one edge request to the next; `timestamp` in µs."""

    id: str
    timestamp: int
    project: str
    event_message: str
    method: str
    path: str
    search: str
    status: int
    origin_time: int
    ray: str
    token: str

    @property
    def url(self) -> str:
        """As sent."""
        return f"https://{self.project}.supabase.co{self.path}{self.search}"

    def metadata(self) -> str:
        """The whole metadata as JSON text, about 2.1 KB."""
        return (
            f'{{"request":{{"method":"{self.method}","protocol":"https:","host":"{self.project}.supabase.co",'
            f'"path":"{self.path}","search":"{self.search}","url":"{self.url}",'
            f'"headers":{_HEADERS},"cf-ray":"{self.ray}"}},'
            f'"cf":{{"country":"DE","asn":3320,"city":"Hamburg","continent":"EU","region":"Hamburg","colo":"FRA",'
            f'"timezone":"Europe/Berlin","httpProtocol":"HTTP/2","tlsVersion":"TLSv1.3","token":"{self.token}"}}}},'
            f'"response":{{"status_code":{self.status},"origin_time":{self.origin_time},'
            f'"headers":{{"server":"cloudflare","content_type":"application/json","content_range":"0-99/*",'
            f'"strict_transport_security":"max-age=31536000; includeSubDomains","sb_gateway_version":"1"}}}}}}'
        )

    def narrow_metadata(self) -> str:
        """The part of the metadata that queries look at, about 0.15 KB."""
        return f'{{"request":{{"path":"{self.path}","url":"{self.url}"}},"response":{{"status_code":{self.status}}}}}'

    def json(self) -> bytes:
        """The event as it is produced."""
        return (
            f'{{"id":"{self.id}","timestamp":{self.timestamp},"project":"{self.project}",'
            f'"event_message":"{self.event_message}","metadata":{self.metadata()}}}'
        ).encode()


class FunctionCall(NamedTuple):
    """What differs from one function invocation to the next; `timestamp` in µs, `execution_time` in ms."""

    id: str
    timestamp: int
    project: str
    function: str
    deployment: str
    status: int
    execution_time: int

    def json(self) -> bytes:
        """The event as it is produced."""
        host = f"{self.project}.functions.supabase.co"
        return (
            f'{{"id":"{self.id}","timestamp":{self.timestamp},"event_message":"POST | {self.status} | '
            f'https://{host}/hello","metadata":{{"project_ref":"{self.project}","function_id":"{self.function}",'
            f'"deployment_id":"{self.deployment}","version":"7","execution_time_ms":{self.execution_time},'
            f'"request":{{"method":"POST","pathname":"/hello","url":"https://{host}/hello","host":"{host}",'
            f'"search":"","headers":{{"user_agent":"supabase-js/2.58.0","x_client_info":"supabase-js-web/2.58.0"}}}},'
            f'"response":{{"status_code":{self.status},"headers":{{"content_type":"application/json",'
            f'"server":"Deno","x_served_by":"supabase-edge-runtime"}}}}}}}}'
        ).encode()


def edge_requests(count: int, start: int, spacing: int = 100, seed: int = 1) -> Iterator[EdgeRequest]:
    """Requests `spacing` µs apart from `start` (µs) on."""
    chance = random.Random(seed)
    for timestamp, ref in _times_and_refs(chance, count, start, spacing):
        random_bytes = chance.randbytes(200)
        hexed = random_bytes[:32].hex()
        method, path, status = chance.choice(_METHODS), chance.choice(_PATHS), chance.choice(_STATUSES)
        search = f"?id=eq.{hexed[48:]}" if chance.random() < 0.3 else ""
        yield EdgeRequest(
            id=_uuid(hexed),
            timestamp=timestamp,
            project=ref,
            event_message=f"{method} | {status} | 10.0.0.1 | {hexed[32:48]} | https://{ref}.supabase.co{path}{search} "
            "| supabase-js/2.58.0",
            method=method,
            path=path,
            search=search,
            status=status,
            origin_time=1 + int(chance.expovariate(0.02)),
            ray=hexed[32:48],
            token=base64.b64encode(random_bytes[32:]).decode(),
        )


def function_calls(count: int, start: int, spacing: int = 100, seed: int = 1) -> Iterator[FunctionCall]:
    """Invocations `spacing` µs apart from `start` (µs) on."""
    chance = random.Random(seed)
    for timestamp, ref in _times_and_refs(chance, count, start, spacing):
        hexed = chance.randbytes(16).hex()
        number = chance.randrange(FUNCTIONS)
        yield FunctionCall(
            id=_uuid(hexed),
            timestamp=timestamp,
            project=ref,
            function=function_id(ref, number),
            deployment=f"{ref}_{number}_7",
            status=chance.choice(_STATUSES),
            execution_time=int(chance.lognormvariate(4.5, 1)),
        )


def function_id(ref: str, number: int) -> str:
    """The id of a project's n-th function."""
    return f"{ref[:8]}-0000-4000-8000-{number:012d}"


def edge_events(count: int, start: int, spacing: int = 100, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Edge requests as Kafka's pairs of key and value."""
    return ((event.project.encode(), event.json()) for event in edge_requests(count, start, spacing, seed))


def function_events(count: int, start: int, spacing: int = 100, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Function invocations as Kafka's pairs of key and value."""
    return ((event.project.encode(), event.json()) for event in function_calls(count, start, spacing, seed))


def _times_and_refs(chance: random.Random, count: int, start: int, spacing: int) -> Iterator[tuple[int, str]]:
    for first in range(0, count, _AT_ONCE):
        refs = chance.choices(REFS, cum_weights=_WEIGHTS, k=min(_AT_ONCE, count - first))
        for number, ref in enumerate(refs, first):
            yield start + number * spacing, ref


def _uuid(hexed: str) -> str:
    return f"{hexed[:8]}-{hexed[8:12]}-4{hexed[13:16]}-a{hexed[17:20]}-{hexed[20:32]}"
