"""A disk that can fill, for the chaos harness."""

import resource
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from chaos_fleet import Worker

DISK_BYTES = 192 << 20


class Disk(Protocol):
    """The data folder's disk, which can be made to refuse writes."""

    means: str

    def fill(self, workers: Iterable[Worker]) -> None: ...
    def free(self, workers: Iterable[Worker]) -> None: ...
    def close(self) -> None: ...


class SmallDisk:
    """A tmpfs under the data folder, filled by a ballast file."""

    means = "a ballast file on a small tmpfs"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)

    def fill(self, workers: Iterable[Worker]) -> None:
        """Take what is free, also what has become free since the last time."""
        with (self._folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while ballast.write(b"\0" * size):
                        pass

    def free(self, workers: Iterable[Worker]) -> None:
        """Give it back."""
        (self._folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "-l", str(self._folder)], check=False, stderr=subprocess.DEVNULL)


class LimitedFiles:
    """Where nothing can be mounted: the kernel refuses the workers' writes to any file, by their limit of its size."""

    means = "a file size limit of 0 (nothing could be mounted)"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def fill(self, workers: Iterable[Worker]) -> None:
        """Refuse all writes of these."""
        self._limit(workers, 0)

    def free(self, workers: Iterable[Worker]) -> None:
        """Allow them again."""
        self._limit(workers, resource.RLIM_INFINITY)

    def close(self) -> None:
        """Nothing."""

    @staticmethod
    def _limit(workers: Iterable[Worker], size: int) -> None:
        for worker in workers:
            with suppress(ProcessLookupError):
                resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def small_disk(folder: Path) -> Disk:
    """A disk of its own for the data folder."""
    try:
        return SmallDisk(folder)
    except (OSError, subprocess.CalledProcessError):
        return LimitedFiles(folder)
