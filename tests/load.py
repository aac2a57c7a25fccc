"""`make load`: how many answers a second one API process gives, and what becomes of twice as many requests.

`python tests/load.py --seconds 20 --connections 200`. First the capacity is measured with a few connections that ask
one request after the other; then requests come at twice that rate, answered or not, and the time of each counts from
when it was due. Every answer is logs.search with 100 rows of 2.5 KB, which nothing keeps for later. Those of logs.all
take so little that at twice their number the server is busy with HTTP alone (docs/decisions/0009-limits.md).
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from oracle import Record
from test_api_http import Api
from test_api_reader import NOW, fill

from api.pool import WAIT_SECONDS
from bench.load import edge_events
from ops.keys import add_key
from schema.timestamps import HOUR

CLOSED = 4  # connections with which the capacity is measured
WARM_SECONDS = 1.0
P99_SECONDS = WAIT_SECONDS
"""What 99 of 100 admitted requests may take at most: as long as a query waits for a thread before it is refused."""
GROWTH = 16 << 20
"""How many bytes a process may grow from the first half of the overload to the second."""


@dataclass
class Phase:
    """What came back: how often which status, seconds of those with 200, 503s without Retry-After, failures."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    bare: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    memory: list[int] = field(default_factory=list)

    def quantile(self, part: float) -> float:
        """The time within which such a part of the admitted requests was answered."""
        times = sorted(self.times)
        return times[min(len(times) - 1, int(part * len(times)))]


class Client:
    """One kept connection; opened again where it was closed."""

    def __init__(self, port: int, request: bytes, phase: Phase) -> None:
        self._port, self._request, self._phase = port, request, phase
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, due: float) -> None:
        """Send the request, and note what comes."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
            reader, writer = self._streams
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._phase.failures[type(error).__name__] += 1
            self.close()
            return
        status = int(head.split(b" ", 2)[1])
        self._phase.statuses[status] += 1
        if status == 200:
            self._phase.times.append(time.monotonic() - due)
        elif b"\r\nretry-after:" not in head:
            self._phase.bare += 1
        if b"\r\nconnection: close" in head:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(port: int, request: bytes, connections: int, seconds: float) -> Phase:
    """So many connections ask without a pause."""
    phase = Phase()
    end = time.monotonic() + seconds

    async def ask() -> None:
        client = Client(port, request, phase)
        while time.monotonic() < end:
            await client.ask(time.monotonic())
        client.close()

    begun = time.monotonic()
    await asyncio.gather(*(ask() for _ in range(connections)))
    phase.seconds = time.monotonic() - begun
    return phase


async def open_loop(port: int, request: bytes, connections: int, seconds: float, rate: float, process: int) -> Phase:
    """Requests come at a rate, evenly; one that finds no free connection waits for it, and its time counts."""
    phase = Phase()
    due: asyncio.Queue[float | None] = asyncio.Queue()

    async def ask() -> None:
        client = Client(port, request, phase)
        while (when := await due.get()) is not None:
            await client.ask(when)
        client.close()

    clients = [asyncio.create_task(ask()) for _ in range(connections)]
    begun = time.monotonic()
    sent = 0
    while (now := time.monotonic()) < begun + seconds:
        while sent < (now - begun) * rate:
            due.put_nowait(begun + sent / rate)
            sent += 1
        phase.memory.append(memory(process))
        await asyncio.sleep(0.005)
    for _ in clients:
        due.put_nowait(None)
    await asyncio.gather(*clients)
    phase.seconds = time.monotonic() - begun
    return phase


def memory(process: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Report:
    """Both phases: `offered` is the rate of requests in the second."""

    capacity: float
    alone: Phase
    offered: float
    over: Phase

    @property
    def growth(self) -> int:
        """By how many bytes the second half's largest memory is above the first half's."""
        half = len(self.over.memory) // 2
        return max(self.over.memory[half:]) - max(self.over.memory[:half])

    def failings(self) -> list[str]:
        """What is not as promised."""
        over, found = self.over, []
        if set(over.statuses) - {200, 503} or self.alone.statuses.keys() != {200}:
            found.append(f"statuses {dict(self.alone.statuses)}, then {dict(over.statuses)}")
        if over.bare:
            found.append(f"{over.bare} refusals without Retry-After")
        if over.failures or self.alone.failures:
            found.append(f"failed connections {dict(self.alone.failures)}, then {dict(over.failures)}")
        if over.quantile(0.99) > P99_SECONDS:
            found.append(f"p99 of the admitted is {over.quantile(0.99):.3f} s, more than {P99_SECONDS:g} s")
        if self.growth > GROWTH:
            found.append(f"memory grew by {self.growth / 1e6:.1f} MB")
        return found

    def __str__(self) -> str:
        over = self.over
        return "\n".join(
            (
                f"capacity        {self.capacity:,.0f} answers/s of 100 rows over {CLOSED} connections, "
                f"p99 {self.alone.quantile(0.99) * 1000:.1f} ms",
                f"then offered    {self.offered:,.0f} requests/s for {over.seconds:.1f} s",
                f"admitted        {over.statuses[200] / over.seconds:,.0f}/s, "
                f"median {over.quantile(0.5) * 1000:.0f} ms, "
                f"p99 {over.quantile(0.99) * 1000:.0f} ms, longest {max(over.times) * 1000:.0f} ms",
                f"refused         {over.statuses[503] / over.seconds:,.0f}/s with 503 and Retry-After",
                f"anything else   {over.statuses.total() - over.statuses[200] - over.statuses[503]}, "
                f"failed connections {over.failures.total()}",
                f"memory          {min(over.memory) / 1e6:.1f} to {max(over.memory) / 1e6:.1f} MB, "
                f"second half {self.growth / 1e6:+.1f} MB",
            )
        )


def run(folder: Path, seconds: float, connections: int) -> Report:
    """Both phases on an API of its own."""
    events = list(edge_events(20_000, NOW - HOUR))
    ((project, _),) = Counter(ref for ref, _ in events).most_common(1)
    fill(folder / "data", [[Record("edge", 0, offset, 0, value) for offset, (_, value) in enumerate(events)]])
    key = add_key(folder / "data", "load")
    with Api(folder) as api:
        target = f"/api/endpoints/logs.search?project={project.decode()}&project_tier=ENTERPRISE&limit=100"
        assert len(api.get(target, {"X-API-KEY": key}).body["result"]) == 100
        request = f"GET {target} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {key}\r\n\r\n".encode()
        process = int(Path(f"/proc/{api.process.pid}/task/{api.process.pid}/children").read_text().split()[0])

        async def phases() -> Report:
            await closed_loop(api.port, request, CLOSED, WARM_SECONDS)
            alone = await closed_loop(api.port, request, CLOSED, seconds / 4)
            capacity = alone.statuses[200] / alone.seconds
            over = await open_loop(api.port, request, connections, seconds, 2 * capacity, process)
            return Report(capacity, alone, 2 * capacity, over)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            report = runner.run(phases())
        assert api.process.poll() is None
        assert api.get(target, {"X-API-KEY": key}).status == 200
    return report


def main() -> int:
    """Run it, print the figures, and return 1 where something is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), given.seconds, given.connections)
    print(report)
    for failing in report.failings():
        print(f"FAILED: {failing}")
    return 1 if report.failings() else 0


if __name__ == "__main__":
    raise SystemExit(main())
