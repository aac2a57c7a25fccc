"""quixstreams with a sink of its own kind: `BatchingSink`, flushed at a checkpoint every 5,000 messages or a second.

Messages are decoded by its JSON deserializer. Its consumer is librdkafka's; its offsets are committed after the
flush, so a crash between the two would write events twice.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
from quixstreams import Application
from quixstreams.sinks import BatchingSink

from bench.peers.rows import Tables
from bench.peers.tally import Tally

_EVERY = 5000  # messages
_INTERVAL = 1.0  # seconds


class SqliteSink(BatchingSink):  # type: ignore[misc]  # seen without its types
    """Writes each flushed batch in one transaction."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._tally = Tally(folder / "tally")

    def setup(self) -> None:
        """Called once before the first batch."""
        self._tables = Tables(self._folder / "peer.db")

    def write(self, batch: Any) -> None:
        """Called at each checkpoint, for each partition."""
        self._tables.write((item.value for item in batch), lambda value: msgspec.json.encode(value).decode())
        self._tally.add(batch.size)


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Run the application until it is stopped."""
    app = Application(
        bootstrap,
        consumer_group=f"bench-quix-{folder.name}",
        auto_offset_reset="earliest",
        commit_every=_EVERY,
        commit_interval=_INTERVAL,
        auto_create_topics=False,
        use_changelog_topics=False,
        state_dir=str(folder / "state"),
        loglevel="WARNING",
    )
    app.dataframe(app.topic(topic, value_deserializer="json")).sink(SqliteSink(folder))
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
