"""An idle spare worker: `python tests/idle_spare.py --minutes 120`.

Three workers share topics of one partition each while a little is written, so that at least one has nothing to read.
Then all that read are killed: the spare, the very process that was started, has to take over, and every table has to
equal the oracle over the log. The time-outs that would throw an idle worker out (Faust's, Kafka's and the watchdog's)
are minutes long, which is why the long form takes hours.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos_tables import Expectation, compare
from events import Traffic
from kafka_broker import KafkaBroker
from oracle import Record
from service import Service, wait_for

from schema.tables import store_path

WORKERS = 3
EVERY = 5.0  # seconds between messages
TAKEOVER_SECONDS = 60.0
SPARE = "it stands by as a spare"


def idle_spare(kafka: KafkaBroker, folder: Path, minutes: float, stuck_seconds: float) -> tuple[int, float]:
    """How many workers were idle, and the seconds until one had applied what came after the others were killed.

    Raises AssertionError where a worker has ended, none takes over, or a table is not what the log says.
    """
    names = "edge-spare", "functions-spare"
    for topic in names:
        kafka.create_topic(topic, 1)
    with Service(folder, kafka, *names) as service:
        traffic = Traffic(11, time.time_ns() // 1000, *names)
        workers = [service.start("worker", stuck_seconds=stuck_seconds) for _ in range(WORKERS)]
        wait_for("a spare", lambda: len(_busy(service)) < WORKERS)
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            _write(service, traffic, 2)
            ended = [service.log(worker) for worker in workers if worker.poll() is not None]
            assert not ended, f"a worker has ended: {ended[0][-500:]}"
            time.sleep(EVERY)
        service.wait_until_applied(TAKEOVER_SECONDS)
        busy = _busy(service)
        assert 0 < len(busy) < WORKERS, f"{len(busy)} of {WORKERS} workers read"
        for worker in busy:
            worker.send_signal(signal.SIGKILL)
        _write(service, traffic, 20)
        since = time.monotonic()
        service.wait_until_applied(TAKEOVER_SECONDS)
        took = time.monotonic() - since
        expectation = Expectation(service.log_of_topics(), *names)
        for topic in names:
            expectation.feed(Record(*record) for record in kafka.read_all(topic))
        compare(store_path(service.settings.data, 1), expectation, service.ends())
        return WORKERS - len(busy), took


def _busy(service: Service) -> list[subprocess.Popen[bytes]]:
    return [worker for worker in service.processes if SPARE not in (service.log(worker).splitlines() or [""])[-1]]


def _write(service: Service, traffic: Traffic, count: int) -> None:
    messages = traffic.messages(count)
    service.kafka.produce([(m.topic, 0, m.key, m.value, m.timestamp_ms) for m in messages])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="An idle spare worker stays alive and takes over.")
    parser.add_argument("--minutes", type=float, default=120)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="freshet-spare-") as folder, KafkaBroker(Path(folder) / "kafka") as kafka:
        idle, took = idle_spare(kafka, Path(folder), minutes, stuck_seconds=120)
    sys.stdout.write(
        f"{idle} of {WORKERS} workers idle for {minutes:g} min; all was applied {took:.1f} s after a kill\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
