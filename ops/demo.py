"""Made-up traffic for trying out: three projects' edge requests and invocations, a day's history and then live."""

import asyncio
import random
import time
import uuid
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schema.connection import connection
from schema.settings import Settings
from streams.topics import no_broker

PROJECT = "abcdefghijklmnopqrst"
"""The busiest of the demo's projects."""

_PROJECTS = (PROJECT, "bcdefghijklmnopqrstu", "cdefghijklmnopqrstuv")
_SHARES = (6, 3, 1)
_HISTORY_EVENTS = 3000  # of each topic
_HISTORY_SECONDS = 86_400
_TICK = 0.25  # seconds
_EDGE_A_TICK, _INVOCATIONS_A_TICK = 10, 5
_PATHS = (
    *("/rest/v1/todos", "/rest/v1/profiles", "/rest/v1/orders") * 4,
    *("/auth/v1/token", "/auth/v1/user") * 2,
    "/storage/v1/object/public/avatars/cat.png",
    "/realtime/v1/websocket",
)
_FUNCTIONS = {
    "send-welcome-mail": 180.0,
    "resize-image": 420.0,
    "stripe-webhook": 90.0,
    "nightly-report": 1500.0,
}
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/141.0", "supabase-js/2.58.0", "curl/8.14.1")
_STATUSES = (*(200,) * 40, *(201,) * 6, *(304,) * 4, *(401,) * 2, 404, 500)
_encode = msgspec.json.encode


def run_demo(settings: Settings) -> None:
    """Produce until SIGTERM, which ends the process: nothing here needs saving."""
    asyncio.run(_produce(settings))


async def _produce(settings: Settings) -> None:
    producer = AIOKafkaProducer(**connection(settings), linger_ms=20)
    try:
        await producer.start()
    except KafkaError as error:
        await producer.stop()
        raise no_broker(settings, error) from error
    chance = random.Random()
    now = time.time()
    for age in sorted((_HISTORY_SECONDS * chance.random() ** 3 for _ in range(_HISTORY_EVENTS)), reverse=True):
        await _send(producer, settings.topic_edge, edge_event(chance, now - age))
        await _send(producer, settings.topic_functions, invocation(chance, now - age))
    while True:
        for _ in range(chance.randint(1, 2 * _EDGE_A_TICK - 1)):
            await _send(producer, settings.topic_edge, edge_event(chance, time.time()))
        for _ in range(chance.randint(1, 2 * _INVOCATIONS_A_TICK - 1)):
            await _send(producer, settings.topic_functions, invocation(chance, time.time()))
        await asyncio.sleep(_TICK)


async def _send(producer: AIOKafkaProducer, topic: str, event: dict[str, Any]) -> None:
    await producer.send(topic, _encode(event))


def edge_event(chance: random.Random, seconds: float) -> dict[str, Any]:
    """An edge request log entry in the hosted form (contract section 3); time in seconds since the epoch."""
    project = chance.choices(_PROJECTS, _SHARES)[0]
    path, status = chance.choice(_PATHS), chance.choice(_STATUSES)
    search = f"?select=*&id=eq.{chance.randint(1, 9999)}" if path.startswith("/rest") else ""
    host = f"{project}.supabase.co"
    method = "GET" if chance.random() < 0.7 else "POST"
    address = ".".join(str(chance.randint(1, 254)) for _ in range(4))
    agent = chance.choice(_AGENTS)
    url = f"https://{host}{path}{search}"
    return {
        "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "timestamp": int(seconds * 1_000_000),
        "project": project,
        "event_message": f"{method} | {status} | {address} | {chance.getrandbits(64):016x} | {url} | {agent}",
        "metadata": {
            "request": {
                "method": method,
                "protocol": "https:",
                "host": host,
                "path": path,
                "search": search,
                "url": url,
                "headers": {"user_agent": agent, "cf_connecting_ip": address, "x_client_info": "supabase-js/2.58.0"},
                "cf": {"country": chance.choice(("DE", "FR", "US", "IN", "BR")), "httpProtocol": "HTTP/2"},
            },
            "response": {"status_code": status, "origin_time": chance.randint(3, 250), "headers": {}},
        },
    }


def invocation(chance: random.Random, seconds: float) -> dict[str, Any]:
    """A function invocation log (contract section 3); time in seconds since the epoch."""
    project = chance.choices(_PROJECTS, _SHARES)[0]
    function, typical = chance.choice(list(_FUNCTIONS.items()))
    status = chance.choice(_STATUSES)
    return {
        "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "timestamp": int(seconds * 1_000_000),
        "event_message": f"POST | {status} | https://{project}.functions.supabase.co/{function}",
        "metadata": {
            "project_ref": project,
            "function_id": function,
            "deployment_id": f"{project}_{function}_1",
            "version": "1",
            "execution_time_ms": int(chance.lognormvariate(0, 0.6) * typical),
            "request": {"method": "POST", "pathname": f"/{function}", "host": f"{project}.functions.supabase.co"},
            "response": {"status_code": status},
        },
    }
