"""`make fuzz-http`: random requests at one API process; none may end in a 500, and the process has to outlive them.

`python tests/fuzz_http.py --requests 100000 --seed 1`. A third each: requests that are HTTP with random methods, paths,
parameters, headers, bodies and keys; such requests with bytes changed, cut or doubled; and bytes of any kind. A request
is made from the seed and its number alone, so that a bad one can be made again.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_from_bytes

import uvloop
from test_api_http import EDGE, FORMS, INVOCATION, NAMES, QUERIES, Api
from test_api_reader import fill

from ops.keys import add_key

AT_ONCE = 32
QUIET_SECONDS = 0.5  # after which nothing more is expected of a request that may be incomplete
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 414, 431, 501, 503}
METHODS = ("GET",) * 8 + ("HEAD", "POST", "PUT", "OPTIONS", "TRACE", "CONNECT", "DELETE", "FOO", "get", "G\0T", "*", "")
PARAMETERS = (
    *("project", "function_id", "interval", "project_tier", "iso_timestamp_start", "iso_timestamp_end", "api_key"),
    *("", "project[]", "sql", "now", "Project"),
)
VALUES = (
    *("p", "", ".*", "(", "a{1000}{1000}", "(a*)*b", "\\b", "(?i)P", "$", "[[:alpha:]]+", "\\C", "\\pL", "x" * 1000),
    *("hourly", "daily", "minutely", "15min", "7day", "FREE", "free", "2025-06-15", "2025-06-15T15:00:00Z"),
    *("0000-00-00", "9999-12-31T23:59:59.999999999+23:59", "1e309", "-1", "NaN", "null", "' OR 1=1 --", "\0", "\ud83d"),
    *("日本", "2025-06-15T17:05:40 02:00", "999999999999999999999999", "%00", "../../etc/passwd", "😀" * 300),
)
HEADERS = (
    *("Accept", "Accept-Encoding", "Authorization", "Cache-Control", "Connection", "Content-Length", "Content-Type"),
    *("Cookie", "Expect", "Forwarded", "Host", "If-None-Match", "If-Modified-Since", "Origin", "Range", "TE"),
    *("Transfer-Encoding", "Upgrade", "X-API-KEY", "X-Forwarded-For", "X-Forwarded-Proto", "X-HTTP-Method-Override"),
)
HEADER_VALUES = (
    *("", "*", "*/*", "close", "keep-alive", "chunked", "gzip, chunked", "100-continue", "h2c", "websocket", "0", "5"),
    *("-1", "99999999999999999999", "application/json", "no-cache", "max-age=0", "max-age=-1", '"x"', "W/", "bytes=0-"),
    *("Bearer", "Bearer ", "Bearer fr_a_b", "Basic dTpw", "a" * 9000, "\x7f", "é", "a\tb", "a\0b", "a\rb", "a\n b"),
)


def some_bytes(chance: random.Random, most: int) -> bytes:
    """Random bytes, few of them more often than many."""
    return chance.randbytes(int(most ** chance.random()))


def text(chance: random.Random, values: tuple[str, ...]) -> bytes:
    """One of the values, or random bytes."""
    if chance.random() < 0.2:
        return some_bytes(chance, 2000)
    return chance.choice(values).encode(errors="surrogatepass")


def target(chance: random.Random, key: str, tame: bool) -> bytes:
    """A path, mostly of an endpoint, and parameters; a tame one has an endpoint's path and no parameter twice."""
    name = chance.choice(NAMES)
    word = chance.choice((name, name, str(QUERIES[name].id), "", "openapi", quote_from_bytes(some_bytes(chance, 50))))
    path = chance.choice((*FORMS * 3, "/health%.0s", "/%s", "//%s", "http://x/%s", "*%.0s", "%s")) % word
    if tame:
        path = chance.choice(FORMS) % name
    pairs = [(chance.choice(PARAMETERS).encode(), text(chance, VALUES)) for _ in range(chance.randrange(6))]
    if tame:
        pairs = list(dict([*pairs, (chance.choice((b"project", b"x")), b"p"), (b"interval", b"daily")]).items())
    if chance.random() < 0.1:
        pairs.append((b"api_key", key.encode()))
    quoted = [quote_from_bytes(name) + "=" + quote_from_bytes(value) for name, value in pairs]
    return f"{path}?{'&'.join(quoted)}".encode()


def well_formed(chance: random.Random, key: str) -> bytes:
    """A request that is mostly HTTP."""
    fields = [b"Host: x", b"X-API-KEY: %b" % key.encode()]
    if chance.random() < 0.5:
        method = chance.choice((b"GET", b"GET", b"GET", b"HEAD", b"OPTIONS", b"POST"))
        return b"\r\n".join((method + b" " + target(chance, key, True) + b" HTTP/1.1", *fields, b"", b""))
    if chance.random() < 0.1:
        fields.pop(chance.randrange(2))
    for _ in range(int(30 * chance.random() ** 4)):
        name = chance.choice(HEADERS).encode() if chance.random() < 0.9 else some_bytes(chance, 30)
        fields.append(name + b": " + text(chance, HEADER_VALUES))
    body = some_bytes(chance, 3000) if chance.random() < 0.1 else b""
    if body and chance.random() < 0.7:
        fields.append(b"Content-Length: %d" % len(body))
    version = chance.choice((*("HTTP/1.1",) * 8, "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1", "")).encode()
    line = b" ".join((chance.choice(METHODS).encode(), target(chance, key, False), version))
    return b"\r\n".join((line, *fields, b"", body))


def changed(chance: random.Random, request: bytes) -> bytes:
    """A request with a few places changed."""
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(request) + 1)
        to = min(len(request), at + int(50 * chance.random() ** 3))
        piece = chance.choice((b"", some_bytes(chance, 20), request[at:to] * 2, b"\r\n", b"\n", b" ", b"%", b"\0"))
        request = request[:at] + piece + request[to:]
    return request


def made(seed: int, number: int, key: str) -> bytes:
    """Request `number` of a seed."""
    chance = random.Random(seed << 32 | number)
    match number % 3:
        case 0:
            return well_formed(chance, key)
        case 1:
            return changed(chance, well_formed(chance, key))
        case _:
            return some_bytes(chance, 20_000) + chance.choice((b"", b"\r\n\r\n", b" / HTTP/1.1\r\n\r\n"))


@dataclass
class Outcome:
    """How often each status came (0: none at all), and what was wrong, by the number of its request."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)


async def send(port: int, request: bytes) -> bytes:
    """What comes back; the connection's end is asked for when it has been quiet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(request)
        while True:
            try:
                piece = await asyncio.wait_for(reader.read(1 << 16), QUIET_SECONDS)
            except TimeoutError:
                if received or not writer.can_write_eof():
                    break
                writer.write_eof()
                piece = await asyncio.wait_for(reader.read(1 << 16), 30)
            if not piece:
                break
            received += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    return received


def judge(request: bytes, received: bytes) -> tuple[int, str | None]:
    """The first answer's status, and what is wrong with it."""
    if not received:
        return 0, None
    head, _, body = received.partition(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0].split(b" ", 2)
    if line[0] not in (b"HTTP/1.1", b"HTTP/1.0") or not line[1].isdigit():
        return -1, f"no HTTP: {received[:100]!r}"
    status = int(line[1])
    if status == 100:
        return judge(request, body)
    if status not in ALLOWED:
        return status, f"status {status}: {body[:200]!r}"
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if status != 200 and length and int(length) <= len(body) and not request.lstrip().startswith(b"HEAD"):
        error = json.loads(body[: int(length)])["error"]
        if error.keys() != {"code", "status", "message", "errors"} or error["code"] != status:
            return status, f"another form of error: {error}"
    return status, None


async def bombard(port: int, key: str, seed: int, requests: int) -> Outcome:
    """Send them all, some at a time."""
    outcome, numbers = Outcome(), iter(range(requests))

    async def one_after_the_other() -> None:
        for number in numbers:
            try:
                request = made(seed, number, key)
                status, wrong = judge(request, await send(port, request))
            except (TimeoutError, ValueError, OSError) as error:
                status, wrong = -1, repr(error)
            outcome.statuses[status] += 1
            if wrong is not None:
                outcome.wrong[number] = wrong

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
    return outcome


def run(folder: Path, seed: int, requests: int) -> Outcome:
    """Bombard an API of its own; what its log or its processes show is an outcome with the number -1."""
    fill(folder / "data", [[EDGE], [INVOCATION]])
    key = add_key(folder / "data", "fuzz")
    with Api(folder) as api:
        children = Path(f"/proc/{api.process.pid}/task/{api.process.pid}/children")
        before = children.read_text()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(bombard(api.port, key, seed, requests))
        log = api.log.read_text()
        if api.process.poll() is not None or children.read_text() != before:
            outcome.wrong[-1] = f"a process died: {log[-2000:]}"
        elif "Traceback" in log:
            outcome.wrong[-1] = log[log.index("Traceback") - 500 :][:3000]
        elif key in log or key.split("_", 2)[2] in log:
            outcome.wrong[-1] = "the key is in the log"
    return outcome


def main() -> int:
    """Run it, print what came, and return 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), given.seed, given.requests)
    print(f"{given.requests:,} requests of seed {given.seed}; answers by status, 0 for none:")
    print(", ".join(f"{status}: {count:,}" for status, count in sorted(outcome.statuses.items())))
    for number, wrong in list(outcome.wrong.items())[:20]:
        print(f"FAILED: request {number}: {wrong}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
