"""The limit: aiokafka's `getmany` with Freshet's fetch sizes in bytes and its event loop; the records are dropped.

A call gives up to 5,000 of them, to Freshet 3,000.
"""

import sys
from pathlib import Path

import uvloop
from aiokafka import AIOKafkaConsumer

from bench.peers.tally import Tally


async def drain(bootstrap: str, topic: str, tally: Tally) -> None:
    """Fetch for ever."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 << 20,
        fetch_max_bytes=8 << 20,
    )
    await consumer.start()
    while True:
        fetched = await consumer.getmany(timeout_ms=1000, max_records=5000)
        tally.add(sum(map(len, fetched.values())))


if __name__ == "__main__":
    uvloop.run(drain(sys.argv[1], sys.argv[2], Tally(Path(sys.argv[3]) / "tally")))
