"""What processes count about themselves, in files that any process of the API can add up for a scrape.

Each process has a few small files below the data folder, mapped into its memory and in prometheus_client's form of
many processes: counting is a write to memory. That library's own way to use them hangs on an environment variable
when it is imported, tells processes apart by their numbers, which two containers share, and never tidies up. Here a
process holds a lock as long as it lives; whoever scrapes adds what ended processes left to one file, so that counters
never go back, and drops their gauges.
"""

import fcntl
import json
import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.utils import floatToGoString

COUNTER, HISTOGRAM, SUM, LATEST = "counter", "histogram", "gauge_livesum", "gauge_max"
_KINDS = (COUNTER, HISTOGRAM, SUM, LATEST)
LOOKED_AT = "freshet_worker_last_fetch_timestamp_seconds", "When a worker last asked the broker for more"
"""Name and help of the gauge by which the API tells whether any worker lives."""
_FILE_BYTES = 1 << 18  # on the disk from the start: a page that a full disk can't give would kill the process
_ENDED = "ended"
_DAMAGES = (ValueError, RuntimeError, struct.error)


class Meters:
    """All that one process counts: in its memory alone until `open`. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], float] = {}
        self._files: dict[str, MmapedDict] = {}
        self._alive: int | None = None

    def open(self, data: Path) -> None:
        """Show from now on what is counted, and has been, to those who `collect` from this data folder.

        Raises OSError where its files can't be made.
        """
        folder = meters_folder(data)
        folder.mkdir(parents=True, exist_ok=True)
        name = uuid4().hex
        with self._lock, _locked(folder):
            self._alive = os.open(folder / f"{name}.alive", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
            fcntl.flock(self._alive, fcntl.LOCK_EX)
            self._files = {kind: _file(folder, kind, name) for kind in _KINDS}
            for (kind, key), value in self._values.items():
                self._files[kind].write_value(key, value, 0.0)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Count in memory alone again; the next `collect` takes this process as ended."""
        with self._lock:
            for file in self._files.values():
                file.close()  # type: ignore[no-untyped-call]
            self._files = {}
            if self._alive is not None:
                os.close(self._alive)
                self._alive = None

    def add(self, kind: str, key: str, amount: float) -> None:
        """Add to a value, by its key in the files."""
        with self._lock:
            value = self._values[kind, key] = self._values.get((kind, key), 0.0) + amount
            if self._files:
                self._files[kind].write_value(key, value, 0.0)  # type: ignore[no-untyped-call]

    def put(self, kind: str, key: str, value: float) -> None:
        """Set a value, by its key in the files."""
        with self._lock:
            self._values[kind, key] = value
            if self._files:
                self._files[kind].write_value(key, value, 0.0)  # type: ignore[no-untyped-call]


class Counter:
    """A number that grows, or with `kind` SUM or LATEST a gauge: summed over the living processes, or the largest.

    The number of label values has to be bounded: each takes a place in memory and in the files.
    """

    def __init__(self, meters: Meters, name: str, text: str, labels: Sequence[str] = (), kind: str = COUNTER) -> None:
        self._meters, self._name, self._text, self._labels, self._kind = meters, name, text, labels, kind
        self._keys: dict[tuple[str, ...], str] = {}
        if not labels:
            self.add(amount=0)

    def add(self, *values: str, amount: float = 1) -> None:
        """Add to the value of these labels."""
        self._meters.add(self._kind, self._keys.get(values) or self._key(values), amount)

    def put(self, *values: str, value: float) -> None:
        """Set the value of these labels."""
        self._meters.put(self._kind, self._keys.get(values) or self._key(values), value)

    def _key(self, values: tuple[str, ...]) -> str:
        sample = self._name if self._kind != COUNTER else f"{self._name}_total"
        key = self._keys[values] = mmap_key(self._name, sample, list(self._labels), list(values), self._text)
        return key


class Histogram:
    """How often values fell between the bounds (upper ones, included), and their sum."""

    def __init__(
        self, meters: Meters, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self._meters, self._name, self._text, self._labels = meters, name, text, [*labels]
        self._bounds = [*bounds, float("inf")]
        self._keys: dict[tuple[str, ...], tuple[list[str], str]] = {}
        if not labels:
            self._make(())

    def observe(self, value: float, *values: str) -> None:
        """Count one value for these labels."""
        buckets, total = self._keys.get(values) or self._make(values)
        self._meters.add(HISTOGRAM, buckets[bisect_left(self._bounds, value)], 1)
        self._meters.add(HISTOGRAM, total, value)

    def _make(self, values: tuple[str, ...]) -> tuple[list[str], str]:
        """The keys of all buckets, which all have to be told, and of the sum."""
        buckets = [
            mmap_key(
                self._name,
                f"{self._name}_bucket",
                [*self._labels, "le"],
                [*values, floatToGoString(bound)],  # type: ignore[no-untyped-call]
                self._text,
            )
            for bound in self._bounds
        ]
        total = mmap_key(self._name, f"{self._name}_sum", self._labels, [*values], self._text)
        for key in (*buckets, total):
            self._meters.add(HISTOGRAM, key, 0)
        self._keys[values] = buckets, total
        return buckets, total


def meters_folder(data: Path) -> Path:
    """Where the processes on a data folder have these files."""
    return data / "metrics"


def collect(data: Path) -> list[Metric]:
    """The sums over all processes on this data folder, those that have ended included. Raises OSError."""
    folder = meters_folder(data)
    if not folder.is_dir():
        return []
    with _locked(folder):
        with suppress(OSError):  # a full disk: what ended processes left is read where it is
            _tidy(folder)
        kept = [path for path in sorted(folder.glob("*.db")) if _values(path) is not None]
        return list(MultiProcessCollector.merge([str(path) for path in kept]))  # type: ignore[no-untyped-call]


def latest_look(metrics: Sequence[Metric]) -> float | None:
    """When any worker last asked the broker for more (s), as `collect` has it; None where that is not known."""
    return max((s.value for metric in metrics for s in metric.samples if s.name == LOOKED_AT[0]), default=None)


def _tidy(folder: Path) -> None:
    """Add what ended processes counted to the files that stay, and delete theirs."""
    for alive in folder.glob("*.alive"):
        lock = os.open(alive, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
        for kind in _KINDS:
            path = folder / f"{kind}_{alive.stem}.db"
            if path.exists():
                _keep(folder, kind, path)
            path.unlink(missing_ok=True)
        alive.unlink()


def _keep(folder: Path, kind: str, path: Path) -> None:
    left, before = _values(path), _values(folder / f"{kind}_{_ENDED}.db")
    if before is None:
        (folder / f"{kind}_{_ENDED}.db").unlink(missing_ok=True)
    ended = _file(folder, kind, _ENDED)
    for key, value in (left or {}).items():
        old = (before or {}).get(key, 0.0)
        kept = {SUM: 0.0, LATEST: max(old, value)}.get(kind, old + value)
        ended.write_value(key, kept, 0.0)  # type: ignore[no-untyped-call]
    ended.close()  # type: ignore[no-untyped-call]


def _values(path: Path) -> dict[str, float] | None:
    """A file's values by their keys; None where it is missing or damaged, by a machine that lost its power."""
    try:
        entries = MmapedDict.read_all_values_from_file(path)  # type: ignore[no-untyped-call]
        return {key: value for key, value, *_ in entries if json.loads(key)}
    except (FileNotFoundError, *_DAMAGES):
        return None


def _file(folder: Path, kind: str, name: str) -> MmapedDict:
    path = folder / f"{kind}_{name}.db"
    if not path.exists():
        with path.open("wb") as new:
            os.posix_fallocate(new.fileno(), 0, _FILE_BYTES)
    return MmapedDict(str(path))  # type: ignore[no-untyped-call]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
