"""Edge events at a steady rate, in a process of its own: `python -m bench.pace BOOTSTRAP TOPIC RATE SECONDS`."""

import subprocess
import sys
import time

from confluent_kafka import Producer

from bench.load import edge_events

_TICK = 0.005  # seconds
_LINGER = 5  # ms


def start(bootstrap: str, topic: str, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start producing `rate` events/s, stamped with the time at which they are due."""
    return subprocess.Popen([sys.executable, "-m", "bench.pace", bootstrap, topic, str(rate), str(seconds)])


def main(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    """Produce until the time is up; what is late is caught up with."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": _LINGER, "log_level": 0}
    )
    total = int(rate * seconds)
    events = edge_events(total, time.time_ns() // 1000, max(1, 1_000_000 // rate))
    began, sent = time.perf_counter(), 0
    while sent < total:
        due = min(total, int((time.perf_counter() - began) * rate) + 1)
        for key, value in (next(events) for _ in range(due - sent)):
            producer.produce(topic, value, key)
        sent = due
        producer.poll(0)
        time.sleep(max(_TICK, (sent + 1) / rate - (time.perf_counter() - began)))
    producer.flush(30)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
