"""What the API does about slow clients, too many of them, and a stop or a reload while they ask: on real processes.

These tests hold what api/worker.py relies on in gunicorn. tests/hurried.py makes limits of a second out of many.
"""

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hurried import CONNECTIONS
from service import wait_for
from test_api_http import LOGS, Api, Filled, error_in
from test_api_reader import fill

from ops.keys import add_key, list_keys
from schema.tables import control_path

HURRIED = Path(__file__).with_name("hurried.py")
HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"
SLOW = "/api/endpoints/slow?steps="


def start(folder: Path, api_processes: int = 1) -> Iterator[Filled]:
    fill(folder / "data", [])
    key = add_key(folder / "data", "test")
    with Api(folder, HURRIED, FRESHET_API_PROCESSES=str(api_processes)) as api:
        wait_for("all processes", lambda: api.log.read_text().count("listening on") == api_processes)
        yield Filled(api, key)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    yield from start(tmp_path_factory.mktemp("connections"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Filled]:
    yield from start(tmp_path)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Filled]:
    yield from start(tmp_path, api_processes=2)


def connect(filled: Filled) -> socket.socket:
    return socket.create_connection(("127.0.0.1", filled.api.port), timeout=10)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


def workers(api: Api) -> list[int]:
    """The processes that answer."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(api.process.pid)], capture_output=True, text=True)
    return [int(word) for word in listed.stdout.split()]


@pytest.mark.parametrize(("sent", "answer"), [(b"", b""), (HEAD, b"HTTP/1.1 408 "), (b"G", b"HTTP/1.1 408 ")])
def test_a_connection_without_a_whole_head_is_closed(shared: Filled, sent: bytes, answer: bytes) -> None:
    begun = time.monotonic()
    with connect(shared) as connection:
        connection.sendall(sent)
        assert rest(connection).startswith(answer)
    assert 0.9 < time.monotonic() - begun < 3


def test_a_head_that_drips_is_no_more_patiently_waited_for(shared: Filled) -> None:
    for before in (b"", HEAD + b"\r\n"):
        with connect(shared) as connection:
            connection.sendall(before)
            begun = time.monotonic()
            with suppress(ConnectionError):
                for number in range(100):
                    connection.sendall(b"%b" % HEAD if number == 0 else b"X")
                    time.sleep(0.1)
            assert 0.9 < time.monotonic() - begun < 5  # an answered connection has the keep-alive time


def test_a_body_that_stalls_is_never_answered_as_if_it_were_whole(shared: Filled) -> None:
    post = b"POST /body HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b"
    with connect(shared) as connection:
        connection.sendall(post % (b"Connection: close\r\nContent-Length: 4", b"abcd"))
        assert rest(connection).endswith(b'{"bytes": 4}')
    for framing, body in ((b"Content-Length: 10", b"abc"), (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n")):
        for half_closed in (False, True):
            with connect(shared) as connection:
                connection.sendall(post % (framing, body))
                if half_closed:
                    connection.shutdown(socket.SHUT_WR)
                begun = time.monotonic()
                assert b"200" not in rest(connection)
                assert time.monotonic() - begun < 3


def test_a_client_that_does_not_read_is_cut_off(own: Filled) -> None:
    (worker,) = workers(own.api)
    with socket.socket() as patient, connect(own) as stalled:
        patient.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)  # it reads evenly, not in lumps of megabytes
        patient.connect(("127.0.0.1", own.api.port))
        for connection in (patient, stalled):
            target = "/api/endpoints/large?megabytes=40"
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {own.key}\r\n\r\n".encode())
        wait_for("the answers", lambda: memory(worker) > 60 << 20)
        received, begun = 0, time.monotonic()
        while time.monotonic() - begun < 5:
            received += len(patient.recv(1 << 16))
            time.sleep(0.05)  # about a megabyte a second: slow, but not stalled
        assert len(rest(stalled)) < 20 << 20  # what the two systems' buffers held
        with suppress(ConnectionError):
            received += len(rest(patient))
    assert received > 40 << 20


def memory(process: int) -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_one_connection_too_many_is_told_so_and_the_others_go_on(own: Filled) -> None:
    held = [http.client.HTTPConnection("127.0.0.1", own.api.port, timeout=10) for _ in range(CONNECTIONS)]
    for connection in held:
        connection.request("GET", "/health")
        connection.getresponse().read()
    refused = own.api.get("/health")
    assert "too many connections" in error_in(refused, 503)["message"]
    assert int(refused.headers["Retry-After"]) > 0
    held[0].request("GET", "/health")
    assert held[0].getresponse().status == 200
    for connection in held:
        connection.close()
    wait_for("the connections to be gone", lambda: own.api.get("/health").status == 200)


def test_a_query_that_still_waits_is_forgotten_with_its_client(own: Filled) -> None:
    running = [threading.Thread(target=own.get, args=(SLOW + "30000000",)) for _ in range(2)]
    for thread in running:
        thread.start()
    time.sleep(0.3)
    with connect(own) as connection:
        connection.sendall(f"GET {SLOW}1 HTTP/1.1\r\nHost: x\r\nX-API-KEY: {own.key}\r\n\r\n".encode())
        time.sleep(0.2)
    wait_for("its line", lambda: '"status":499' in own.api.log.read_text(), 1)
    for thread in running:
        thread.join()


def test_an_idle_connection_holds_up_no_stop_and_the_last_use_of_keys_is_written(own: Filled) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", own.api.port, timeout=10)
    connection.request("GET", LOGS, headers={"X-API-KEY": own.key})
    assert connection.getresponse().read() == b'{"result":[]}'
    silent = connect(own)
    begun = time.monotonic()
    own.api.process.terminate()
    assert own.api.process.wait(10) == 0
    assert time.monotonic() - begun < 4
    (key,) = list_keys(own.api.data)
    assert key.last_used_at is not None
    silent.close()
    connection.close()


def test_a_stop_waits_for_the_query_under_way(own: Filled) -> None:
    replies: list[Any] = []
    asking = threading.Thread(target=lambda: replies.append(own.get(SLOW + "20000000")))
    asking.start()
    time.sleep(0.5)
    own.api.process.terminate()
    asking.join()
    assert replies[0].body == {"result": [{"i": 20_000_000}]}
    assert own.api.process.wait(10) == 0


def reload(api: Api) -> None:
    """SIGHUP, until other processes answer."""
    before = set(workers(api))
    api.process.send_signal(signal.SIGHUP)
    wait_for("new processes", lambda: not before & set(workers(api)))


def kill_one(api: Api) -> None:
    """SIGKILL a process, until another has taken its place."""
    before = workers(api)
    os.kill(before[0], signal.SIGKILL)
    wait_for("another process", lambda: len(set(workers(api)) - set(before)) == 1)


class Load:
    """Requests one after the other in several threads, with a new connection each or with one that is kept."""

    def __init__(self, filled: Filled, threads: int = 4, reuse: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._filled, self._reuse = filled, reuse
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.5)
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._filled.api.port, timeout=10)
        while not self._stop.is_set():
            try:
                connection.request("GET", LOGS, headers={"X-API-KEY": self._filled.key})
                response = connection.getresponse()
                response.read()
                self.counts[str(response.status)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.counts[type(error).__name__] += 1
                connection.close()
            if not self._reuse:
                connection.close()
        connection.close()


def test_no_request_fails_while_it_is_reloaded(fleet: Filled) -> None:
    with Load(fleet) as load:
        for _ in range(3):
            reload(fleet.api)
    assert set(load.counts) == {"200"}
    assert load.counts["200"] > 100


def test_of_reused_connections_hardly_a_request_fails_while_it_is_reloaded(fleet: Filled) -> None:
    with Load(fleet, reuse=True) as load:
        reload(fleet.api)
    failed = load.counts.total() - load.counts["200"]
    assert failed <= 1, load.counts
    assert load.counts["200"] > 100


def test_what_would_not_start_is_not_reloaded(fleet: Filled) -> None:
    broken = fleet.api.data.parent / "broken"
    broken.touch()
    before = workers(fleet.api)
    fleet.api.process.send_signal(signal.SIGHUP)
    wait_for(
        "the refusal", lambda: "not reloaded, the old processes go on: broken:1: it is" in fleet.api.log.read_text()
    )
    assert workers(fleet.api) == before
    assert fleet.get(LOGS).status == 200
    kill_one(fleet.api)  # another one serves what that has served
    wait_for("it to listen", lambda: fleet.api.log.read_text().count("listening on") == 3)
    assert {fleet.get(LOGS).status for _ in range(20)} == {200}
    broken.unlink()
    reload(fleet.api)
    assert fleet.get(LOGS).status == 200


@pytest.mark.parametrize("reuse", [False, True], ids=["new connections", "reused connections"])
def test_a_killed_process_costs_no_more_than_what_it_had_under_way(fleet: Filled, reuse: bool) -> None:
    threads, kills = 4, 3
    with Load(fleet, threads, reuse) as load:
        for _ in range(kills):
            kill_one(fleet.api)
            time.sleep(0.5)
    failed = load.counts.total() - load.counts["200"]
    assert failed <= threads * kills, load.counts
    assert load.counts["200"] > 100


def test_the_access_log_tells_key_endpoint_status_bytes_and_time(shared: Filled) -> None:
    def ask() -> None:
        shared.get(f"{LOGS}&api_key=unused")
        shared.get(f"/api/endpoints/fr_0123456789ab_abcDEF-_123?x={shared.key}")
        shared.get("/openapi.json")
        shared.api.send(b"BAD\r\n\r\n")

    found, unknown, described, bad = [json.loads(line) for line in shared.api.logged(ask).splitlines()][-5:-1]
    assert (described["key"], described["path"], described["status"]) == ("test", "/openapi.json", 200)
    assert found.keys() == unknown.keys() == bad.keys()
    assert (found["key"], found["method"], found["path"]) == ("test", "GET", "/api/endpoints/logs.all")
    assert (found["endpoint"], found["status"], found["bytes"]) == ("logs.all", 200, len(b'{"result":[]}'))
    assert 0 < found["ms"] < 5000
    assert (unknown["status"], unknown["endpoint"], unknown["path"]) == (404, None, "/api/endpoints/…")
    assert (bad["status"], bad["path"], bad["method"], bad["key"]) == (400, None, None, None)


def test_a_control_database_in_use_is_read_beside_its_writers(shared: Filled) -> None:
    with closing(sqlite3.connect(control_path(shared.api.data), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert shared.get(LOGS).status == 200


LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA locking_mode = exclusive")
db.execute("UPDATE store SET retired = retired")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_a_store_that_another_program_keeps_for_itself_is_a_503_until_it_lets_go(own: Filled) -> None:
    store = own.api.data / "freshet-1.db"
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        for target in (LOGS, "/metrics"):
            reply = own.get(target)
            assert "can't be read now" in error_in(reply, 503)["message"]
            assert int(reply.headers["Retry-After"]) > 0
        holder.communicate("\n")
    assert own.get(LOGS).body == {"result": []}
