"""`python -m bench http`: kept and computed answers beside a bare Falcon application that sends the same bytes.

Each is one gunicorn worker of Freshet's own configuration. Rounds are interleaved; the CPU time a request costs its
worker is the figure to trust on a busy machine.
"""

import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from oracle import Record
from service import free_port, wait_for
from test_api_reader import fill

from bench.load import edge_events
from ops.keys import add_key
from schema.clock import system_clock
from schema.settings import Settings, to_environment
from schema.timestamps import MINUTE

SECONDS, ROUNDS, CONNECTIONS = 2.0, 5, 16
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ([0-9]+)")
_TICKS = os.sysconf("SC_CLK_TCK")
_BARE = """
import json, sys
from falcon.asgi import App
from api.server import run_server
from schema.settings import load_settings
headers, body = json.loads(sys.argv[1]), open(sys.argv[2], "rb").read()
class Same:
    async def on_get(self, request, response, endpoint):
        response.set_headers(headers)
        response.data = body
def factory():
    app = App()
    app.add_route("/api/endpoints/{endpoint}", Same())
    return app
run_server(load_settings(), factory)
"""
_FRESHET = "from ops.cli import main; main(['api'])"


class Target(NamedTuple):
    """A server's process id and port, and the request to send it."""

    pid: int
    port: int
    request: bytes


def load(target: Target) -> tuple[float, float]:
    """Requests a second over keep-alive connections, and the worker's CPU time a request in µs."""
    with selectors.DefaultSelector() as selector:
        missing: dict[socket.socket, int] = {}  # bytes of its answer, 0 before the first
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", target.port))
            selector.register(connection, selectors.EVENT_READ)
            missing[connection] = 0
        answered, cpu, start = 0, _cpu(target.pid), time.perf_counter()
        for connection in missing:
            connection.sendall(target.request)
        while (took := time.perf_counter() - start) < SECONDS:
            for key, _ in selector.select(1):
                connection = key.fileobj  # type: ignore[assignment]
                piece = connection.recv(1 << 20)
                missing[connection] = (missing[connection] or _size(piece)) - len(piece)
                if missing[connection] == 0:
                    answered += 1
                    connection.sendall(target.request)
        cpu = _cpu(target.pid) - cpu
        for connection in missing:
            connection.close()
    return answered / took, cpu / answered * 1e6


def _size(piece: bytes) -> int:
    """The bytes of an answer whose head stands in its first piece."""
    head, _, _ = piece.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return len(head) + 4 + int(_LENGTH.search(head)[1])  # type: ignore[index]


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def server(code: str, settings: Settings, *arguments: str) -> Iterator[int]:
    """Run a gunicorn; gives its one worker's process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **to_environment(settings)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        yield int(wait_for("a worker", lambda: children.read_text().split())[0])
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Print a table: medians of the rounds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, body = folder / "data", folder / "body"
        now = system_clock()
        events = list(edge_events(5000, now - 50 * MINUTE, spacing=MINUTE // 100))
        fill(data, [[Record("edge", 0, number, now // 1000, value) for number, (_, value) in enumerate(events)]])
        project = events[0][0].decode()
        settings = Settings(data=data, listen=f"127.0.0.1:{free_port()}")
        head = f"HTTP/1.1\r\nHost: x\r\nX-API-KEY: {add_key(data, 'bench')}\r\n"
        counts = f"GET /api/endpoints/usage.api-counts?project={project}&interval=minutely {head}"
        logs = f"GET /api/endpoints/logs.all?project={project} {head}"
        with server(_FRESHET, settings) as pid:
            port = int(settings.listen.rpartition(":")[2])
            asked = {
                "kept": f"{counts}\r\n",
                "computed usage.api-counts": f"{counts}Cache-Control: no-cache\r\n\r\n",
                "computed logs.all": f"{logs}\r\n",
            }
            results: dict[str, list[tuple[float, float]]] = {}
            for what, request in asked.items():
                target = Target(pid, port, request.encode())
                _compare(what, target, body, settings, results)
    print(f"{'':36} {'requests/s':>10} {'CPU µs':>8}")
    for what, figures in results.items():
        rate, cpu = (statistics.median(values) for values in zip(*figures, strict=True))
        print(f"{what:36} {rate:10,.0f} {cpu:8.1f}")


def _compare(
    what: str, target: Target, body: Path, settings: Settings, results: dict[str, list[tuple[float, float]]]
) -> None:
    """Rounds of a request to Freshet and of the same to a bare application with the same answer."""
    wait_for("the API", lambda: _is_open(target.port))
    headers, content = _answer(target)
    body.write_bytes(content)
    bare = Settings(data=settings.data, listen=f"127.0.0.1:{free_port()}")
    port = int(bare.listen.rpartition(":")[2])
    with server(_BARE, bare, json.dumps(headers), str(body)) as pid:
        wait_for("the bare application", lambda: _is_open(port))
        for _ in range(ROUNDS):
            results.setdefault(what, []).append(load(target))
            results.setdefault(f"{what}: bare Falcon", []).append(load(Target(pid, port, target.request)))


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answer(target: Target) -> tuple[dict[str, str], bytes]:
    """The headers that the application sets and the body."""
    with socket.create_connection(("127.0.0.1", target.port)) as connection:
        connection.sendall(target.request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b""
        while piece := connection.recv(1 << 20):
            answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    lines = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    skipped = ("server", "connection", "content-length")
    return {name: value for name, value in lines if name.lower() not in skipped}, content
