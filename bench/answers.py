"""Freshet's API as the benchmarks ask it: a process of its own on a data folder, over one kept connection."""

import http.client
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from service import free_port, wait_for

from bench import product
from ops.keys import add_key
from schema.settings import Settings

CLOCKED = Path(__file__).resolve().parents[1] / "tests" / "clocked.py"
_IDLE = 2.0  # seconds; the API closes a connection after 5
FRESH = {"Cache-Control": "no-cache"}
"""The header by which a client asks for an answer that was not kept."""


class Reply(NamedTuple):
    """An answer: seconds from asking to its last byte, status and body."""

    seconds: float
    status: int
    body: bytes


class Client:
    """Asks one API over one connection, with a key."""

    def __init__(self, listen: str, key: str) -> None:
        self._connection = http.client.HTTPConnection(listen, timeout=120)
        self._last = -_IDLE
        self.key = key

    def ask(self, endpoint: str, parameters: Mapping[str, str], headers: Mapping[str, str] = FRESH) -> Reply:
        """GET an endpoint; a connection that the API may have closed as idle is opened anew before."""
        if time.monotonic() - self._last > _IDLE:
            self._connection.close()
            self._connection.connect()
        began = time.perf_counter()
        self._connection.request("GET", path(endpoint, parameters), headers={"X-API-KEY": self.key, **headers})
        response = self._connection.getresponse()
        body = response.read()
        self._last = time.monotonic()
        return Reply(time.perf_counter() - began, response.status, body)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._last = -_IDLE


class Api(NamedTuple):
    """A running API."""

    settings: Settings
    process: subprocess.Popen[bytes]
    client: Client


def path(endpoint: str, parameters: Mapping[str, str]) -> str:
    """The path and query of a request."""
    return f"/api/endpoints/{endpoint}?{urlencode(parameters)}"


@contextmanager
def api(data: Path, now: int | None = None, **settings: object) -> Iterator[Api]:
    """An API over a data folder: the product's own, or one whose clock stands at `now` (µs)."""
    chosen = Settings(data=data, listen=f"127.0.0.1:{free_port()}", **settings)  # type: ignore[arg-type]
    key = add_key(data, "bench", replace=True)
    clock = data / "clock"
    arguments = ["-m", "ops", "api"]
    if now is not None:
        clock.write_text(str(now))
        arguments = [str(CLOCKED), "api", str(clock)]
    process = product.start(arguments, chosen, data / "api.log")
    client = Client(chosen.listen, key)
    try:
        wait_for("the API", lambda: _answers(client, process, data / "api.log"))
        yield Api(chosen, process, client)
    finally:
        client.close()
        process.terminate()
        process.wait(30)


def _answers(client: Client, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the API ended: {log.read_text()[-3000:]}")
    try:
        return client.ask("logs.all", {"project": "nobody"}).status == 200
    except OSError:
        client.close()
        return False
