"""Freshet's own processes for the end-to-end tests: workers and an API on a real broker, with a test's clock."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from email.message import Message
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_broker import KafkaBroker

from ops.keys import add_key
from schema.settings import Settings, to_environment
from schema.tables import current_generation, store_path
from schema.timestamps import DAY

PATIENCE = 60.0  # seconds
FOR_EVER = 50 * 365 * DAY  # how long these services keep everything, so that tables can be held against the whole log


def wait_for(what: str, done: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What `done` returns once that is true. Raises AssertionError that says what was waited for."""
    deadline = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)
    return result


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Message
    body: Any


@dataclass
class Service:
    """A data folder, and the processes on it. Ends them all when left."""

    folder: Path
    kafka: KafkaBroker
    edge: str
    functions: str
    settings: Settings = field(init=False)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    python: str = sys.executable

    def __post_init__(self) -> None:
        keep_all: dict[str, Any] = {
            setting.name: FOR_EVER for setting in fields(Settings) if setting.name.startswith("keep_")
        }
        self.settings = Settings(
            broker=f"kafka://{self.kafka.bootstrap}",
            data=self.folder / "data",
            listen=f"127.0.0.1:{free_port()}",
            topic_edge=self.edge,
            topic_functions=self.functions,
            group=f"group-{self.edge}",
            session_seconds=6,
            **keep_all,
        )
        self.key = add_key(self.settings.data, "test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def set_clock(self, micros: int) -> None:
        """Give the API, and the workers, this time."""
        new = self.folder / "clock.new"
        new.write_text(str(micros))
        new.rename(self.folder / "clock")

    def start(self, command: str, script: str = "clocked.py", **settings: Any) -> subprocess.Popen[bytes]:
        """Start a `worker` or an `api`, by clocked.py or the like, with settings of its own; `log` reads its output."""
        with self._log_file(len(self.processes)).open("wb") as output:
            process = subprocess.Popen(
                [self.python, str(Path(__file__).with_name(script)), command, str(self.folder / "clock")],
                env={**os.environ, **to_environment(replace(self.settings, **settings))},
                stdout=output,
                stderr=output,
            )
        self.processes.append(process)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """What a process has written so far."""
        return self._log_file(self.processes.index(process)).read_text()

    def wait_for_log(self, process: subprocess.Popen[bytes], *texts: str) -> None:
        """Wait until a process has written one of the texts."""
        wait_for(f"{texts} in a log", lambda: any(text in self.log(process) for text in texts))

    def _log_file(self, number: int) -> Path:
        return self.folder / f"process-{number}.log"

    def start_api(self, **settings: Any) -> None:
        """Start an API, with settings of its own, and wait until it answers."""
        self.start("api", **settings)
        wait_for("the API", lambda: self._answers())

    def get(self, path: str, **parameters: Any) -> Reply:
        """GET with the service's key an answer that was not kept; parameters that are None are left out."""
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        headers = {"X-API-KEY": self.key, "Cache-Control": "no-cache"}
        request = Request(f"http://{self.settings.listen}{path}?{query}", headers=headers)
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310
                return Reply(answer.status, answer.headers, json.load(answer))
        except HTTPError as error:
            with error:
                return Reply(error.code, error.headers, json.load(error))

    def rows(self, endpoint: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of an endpoint's answer, which has to be a 200 with them alone."""
        reply = self.get(f"/api/endpoints/{endpoint}", **parameters)
        assert (reply.status, set(reply.body)) == (200, {"result"}), reply
        result: list[dict[str, Any]] = reply.body["result"]
        return result

    def ask_store(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the store, read beside the workers. This process opens it through sqlite3 alone."""
        path = store_path(self.settings.data, current_generation(self.settings.data))
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(sql, values).fetchall()

    def applied(self) -> dict[tuple[str, int], int]:
        """The next offset by topic and partition, of the newest log of each; nothing before a worker has been here."""
        try:
            rows = self.ask_store("SELECT topic, partition, next_offset FROM positions ORDER BY log")
        except sqlite3.OperationalError:
            return {}
        return {(topic, partition): offset for topic, partition, offset in rows}

    def ends(self) -> dict[tuple[str, int], int]:
        """The end of each partition's log by topic and partition, open transactions and all markers included."""
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "ends", "log_level": 0}
        client = Consumer({**settings, "isolation.level": "read_uncommitted"})
        try:
            topics = client.list_topics(timeout=PATIENCE).topics
            partitions = [(name, number) for name in (self.edge, self.functions) for number in topics[name].partitions]
            return {
                (name, number): client.get_watermark_offsets(TopicPartition(name, number), timeout=PATIENCE)[1]
                for name, number in partitions
            }
        finally:
            client.close()

    def log_of_topics(self) -> str:
        """The identity of the topics' logs, as long as none has been created anew."""
        return f"{AdminClient({'bootstrap.servers': self.kafka.bootstrap}).list_topics().cluster_id}.0"

    def wait_until_applied(self, seconds: float = PATIENCE) -> None:
        """Wait until all that is in the topics now has been applied."""
        ends = self.ends()
        wait_for(f"{ends} to be applied", lambda: self.applied().items() >= ends.items(), seconds)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM, and the exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE)

    def _answers(self) -> bool:
        assert self.processes[-1].poll() is None, self.log(self.processes[-1])
        try:
            with urlopen(f"http://{self.settings.listen}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
