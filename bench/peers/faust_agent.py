"""A stock Faust agent: `write` takes 1,000 events at a time and writes them in one transaction, `nothing` drops them.

As Faust's documentation has it: JSON decoded by Faust's serializer, `stream.take` for batches. Faust's own limits
stand; the event loop is uvloop, as in Freshet. Offsets are Kafka's, so a crash would write events twice.
"""

import io
import sys
from pathlib import Path

from mode.loop import use

use("uvloop")

import faust  # noqa: E402
import msgspec  # noqa: E402

from bench.peers.rows import Tables  # noqa: E402
from bench.peers.tally import Tally  # noqa: E402

_TAKEN = 1000
_WITHIN = 0.5  # seconds


def main(what: str, bootstrap: str, topic_name: str, folder: Path) -> None:
    """Run a Faust worker with one agent."""
    app = faust.App(
        f"bench-faust-{what}-{folder.name}",
        broker=f"kafka://{bootstrap}",
        datadir=str(folder / "faust"),
        consumer_auto_offset_reset="earliest",
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    topic = app.topic(topic_name, value_serializer="raw" if what == "nothing" else "json")
    tally = Tally(folder / "tally")

    async def nothing(stream: faust.StreamT[bytes]) -> None:
        async for _ in stream:
            tally.add(1)

    async def write(stream: faust.StreamT[dict[str, object]]) -> None:
        tables = Tables(folder / "peer.db")
        async for events in stream.take(_TAKEN, within=_WITHIN):
            tables.write(events, lambda value: msgspec.json.encode(value).decode())
            tally.add(len(events))

    app.agent(topic)(nothing if what == "nothing" else write)
    faust.Worker(
        app, loglevel="WARNING", override_logging=False, quiet=True, stdout=io.StringIO()
    ).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
