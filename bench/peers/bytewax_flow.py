"""A bytewax dataflow: its Kafka input, decoding by msgspec, and an output that writes a batch in one transaction.

The input hands on up to 5,000 messages of a partition at a time, and the output gets them as they come.
One worker thread, no recovery store: after a crash it would begin anew.
"""

import sys
from pathlib import Path
from typing import Any

import bytewax.operators as op
import msgspec
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from bench.peers.rows import Tables
from bench.peers.tally import Tally

_BATCH = 5000
_decode = msgspec.json.Decoder().decode


class Writer(StatelessSinkPartition):  # type: ignore[misc]  # seen without its types
    """Writes each batch in one transaction."""

    def __init__(self, folder: Path) -> None:
        self._tables = Tables(folder / "peer.db")
        self._tally = Tally(folder / "tally")

    def write_batch(self, items: list[Any]) -> None:
        """Called with what the input handed on."""
        self._tables.write(items, lambda value: msgspec.json.encode(value).decode())
        self._tally.add(len(items))


class SqliteSink(DynamicSink):  # type: ignore[misc]
    """One writer a worker thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Writer:
        """Called once in each worker thread."""
        return Writer(self._folder)


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Run the dataflow until it is stopped."""
    flow = Dataflow("bench")
    messages = op.input("kafka", flow, KafkaSource([bootstrap], [topic], batch_size=_BATCH))
    events = op.map("decode", messages, lambda message: _decode(message.value))
    op.output("tables", events, SqliteSink(folder))
    run_main(flow)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
