"""`make bench`: runs the benchmark named, or all of them. They stand on the tests' own Kafka."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bench import disk, http, ingest, patterns, replay

BENCHMARKS = {
    "disk": disk.main,
    "http": http.main,
    "ingest": ingest.main,
    "patterns": patterns.main,
    "replay": replay.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    BENCHMARKS[name]()
