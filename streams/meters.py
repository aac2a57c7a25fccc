"""What a worker counts about itself, for `/metrics`, which any process of the API on the same data folder answers."""

import logging
from pathlib import Path

from schema.meters import LATEST, LOOKED_AT, SUM, Counter, Histogram, Meters

log = logging.getLogger("freshet.worker")
METERS = Meters()
BATCH_RECORDS = Histogram(
    METERS, "freshet_worker_batch_records", "Records of a batch", (0, 1, 3, 10, 30, 100, 300, 1000, 3000)
)
COMMIT_SECONDS = Histogram(
    METERS,
    "freshet_worker_commit_seconds",
    "Time from a batch's wait for the store to its commit, attempts that failed included",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
RETRIES = Counter(METERS, "freshet_worker_retries", "Writes that failed in passing and were tried again")
REFUSED = Counter(METERS, "freshet_worker_refused_batches", "Batches at which the store did not stand")
PROGRESS_AT = Counter(
    METERS, "freshet_worker_last_progress_timestamp_seconds", "When a worker last applied a batch", kind=LATEST
)
LOOKED = Counter(METERS, *LOOKED_AT, kind=LATEST)
_WORKERS = Counter(METERS, "freshet_workers", "Workers that live", kind=SUM)


def open_meters(data: Path) -> None:
    """Show what is counted in `/metrics`. Where the folder can't be written this worker counts for itself alone."""
    try:
        METERS.open(data)
    except OSError as error:
        log.warning("this worker is missing in /metrics: %s", error)
    _WORKERS.put(value=1)
