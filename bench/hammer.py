"""As many requests as one process can: wrk where it is installed, else a small client of our own.

`python -m bench.hammer KEY FRESH SECONDS URL…` is the latter; it prints requests, failures and times as JSON.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from bench.figures import percentile

CONNECTIONS = 16
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_IN_TURN = """
local urls, number = {%s}, 0
request = function()
    number = number %% #urls + 1
    return wrk.format(nil, urls[number])
end
"""


class Load(NamedTuple):
    """Requests/s, and the 99th percentile of their seconds."""

    rate: float
    p99: float


def client() -> str:
    """The name of what asks."""
    return "wrk" if shutil.which("wrk") else "a client in Python"


def hammer(urls: Sequence[str], key: str, fresh: bool, seconds: float) -> Load:
    """Ask one server for URLs in turn on 16 kept connections. Raises RuntimeError where an answer is no 200."""
    if shutil.which("wrk"):
        return _wrk(urls, key, fresh, seconds)
    command = [sys.executable, "-m", "bench.hammer", key, str(int(fresh)), str(seconds), *urls]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if found["failures"]:
        raise RuntimeError(f"{urls[0]}: {found['failures']} answers were no 200")
    return Load(found["rate"], found["p99"])


def _wrk(urls: Sequence[str], key: str, fresh: bool, seconds: float) -> Load:
    url = urls[0]
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "--latency", "-H", f"X-API-KEY: {key}"]
    command += ["-H", "Cache-Control: no-cache"] if fresh else []
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if len(urls) > 1:
            script.write(_IN_TURN % ", ".join(json.dumps(_path(url)) for url in urls))
            script.flush()
            command += ["-s", script.name]
        said = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    rate, p99 = re.search(r"Requests/sec:\s+([\d.]+)", said), re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
    if "Non-2xx" in said or "Socket errors" in said or rate is None or p99 is None:
        raise RuntimeError(f"{url}: {said}")
    return Load(float(rate[1]), float(p99[1]) * _UNITS[p99[2]])


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


async def _own(urls: Sequence[str], key: str, fresh: bool, seconds: float) -> dict[str, float]:
    parts = urlsplit(urls[0])
    lines = [f"Host: {parts.netloc}", f"X-API-KEY: {key}", *(["Cache-Control: no-cache"] if fresh else [])]
    requests = ["\r\n".join([f"GET {_path(url)} HTTP/1.1", *lines, "", ""]).encode() for url in urls]
    numbers = count()
    end = time.perf_counter() + seconds
    times: list[float] = []
    failures = 0

    async def connection() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while (began := time.perf_counter()) < end:
            writer.write(requests[next(numbers) % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            assert length is not None, head
            await reader.readexactly(int(length[1]))
            failures += not head.startswith(b"HTTP/1.1 200")
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return {"rate": len(times) / seconds, "p99": percentile(times, 99), "failures": failures}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_own(sys.argv[4:], sys.argv[1], sys.argv[2] == "1", float(sys.argv[3])))))
