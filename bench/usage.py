"""What processes use, as Linux tells it in /proc: CPU seconds and memory."""

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1_000_000


def cpu_seconds(*pids: int) -> float:
    """CPU time, user and system, that processes and all their threads have used so far; one that ended counts 0."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def memory(pid: int) -> float:
    """The resident memory of a process in MB (10⁶ bytes)."""
    return _status(pid, "VmRSS")


def peak_memory(pid: int) -> float:
    """The most resident memory that a process has had, in MB."""
    return _status(pid, "VmHWM")


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def _status(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


class Meter:
    """Wall time, and the CPU time of groups of processes, from its making on."""

    def __init__(self, **groups: list[int]) -> None:
        self._groups = groups
        self._began = time.perf_counter()
        self._before = {name: cpu_seconds(*pids) for name, pids in groups.items()}

    def read(self) -> tuple[float, dict[str, float]]:
        """Seconds since then, and CPU seconds by group."""
        seconds = time.perf_counter() - self._began
        return seconds, {name: cpu_seconds(*pids) - self._before[name] for name, pids in self._groups.items()}
