"""A live Freshet for a benchmark: a worker and an API as the product starts them, on a real Kafka."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka_broker import KafkaBroker
from service import wait_for

from bench import product
from bench.answers import Api, api
from bench.backlog import make_topic
from ops.progress import read_progress
from schema.settings import Settings


class Live(NamedTuple):
    """The broker, and the two processes on one data folder."""

    kafka: KafkaBroker
    worker: subprocess.Popen[bytes]
    api: Api
    data: Path

    def applied(self) -> int:
        """The events in the tables, of both topics."""
        return sum(read_progress(self.data).events.values())


@contextmanager
def live(folder: Path) -> Iterator[Live]:
    """Start all three on a folder; topics `edge` and `functions`."""
    data = folder / "data"
    with KafkaBroker(folder / "kafka") as kafka, ExitStack() as stack:
        for topic in ("edge", "functions"):
            make_topic(kafka, topic)
        settings = Settings(
            broker=f"kafka://{kafka.bootstrap}", data=data, topic_edge="edge", topic_functions="functions"
        )
        worker = product.start(["-m", "ops", "worker"], settings, folder / "worker.log")
        stack.callback(_end, worker)
        wait_for("the worker", lambda: "reading on from" in (folder / "worker.log").read_text())
        yield Live(kafka, worker, stack.enter_context(api(data)), data)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
