"""What a run of the chaos harness has seen, and its report in Markdown."""

import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from chaos_recovery import Recoveries

from ops.kafka import version

UNDISTURBED = ("undisturbed", "all partitions: median", "max")


@dataclass
class Result:
    """What a run has seen so far."""

    seed: int
    started: float = field(default_factory=time.monotonic)
    rounds: int = 0
    logs: int = 0
    messages: int = 0
    events: int = 0
    worker_kills: int = 0
    broker_kills: int = 0
    most_partitions: int = 0
    disk: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    recoveries: Recoveries = field(default_factory=Recoveries)
    drains: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)
    difference: str = ""

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.started


def write_report(file: Path, result: Result) -> None:
    """Write the report."""
    file.write_text(report(result))


def report(result: Result) -> str:
    """The report."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    facts = [
        ("date", time.strftime("%Y-%m-%d", time.gmtime())),
        ("commit", _commit()),
        (
            "machine",
            f"{os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}, Python {platform.python_version()}",
        ),
        ("broker", f"Apache Kafka {version()}, one node"),
        ("seed", result.seed),
        ("elapsed", f"{result.seconds / 60:.1f} min"),
        ("rounds, each compared in full", f"{result.rounds} on {result.logs} logs and stores"),
        ("workers killed (SIGKILL)", result.worker_kills),
        ("brokers killed (SIGKILL)", result.broker_kills),
        ("messages written", f"{result.messages:,}"),
        ("events in them", f"{result.events:,}"),
        ("partitions a topic, at most", result.most_partitions),
        ("how the disk was filled", result.disk),
        ("rows compared", f"{result.compared.total():,}"),
        ("**differences**", f"**{result.difference or 0}**"),
    ]
    parts = ["# Chaos report", _table(("what", ""), facts)]
    parts += ["## Rows compared", _table(("table", "rows"), [(k, f"{n:,}") for k, n in result.compared.items()])]
    parts += [
        "## Faults and recovery",
        "Seconds from a fault's end to the first rows that were applied after it, and to rows of every partition. Up "
        "to three faults are under way at a time, so that most recoveries wait for another fault's end as well; "
        "undisturbed are those during which there was none.",
        _table(
            ("fault", "number", *("first rows: median", "max"), *("all partitions: median", "max"), *UNDISTURBED),
            [
                (
                    kind,
                    number,
                    *_spread(result.recoveries.first_rows[kind]),
                    *_spread(result.recoveries.all_partitions[kind]),
                    len(result.recoveries.undisturbed[kind]),
                    *_spread(result.recoveries.undisturbed[kind]),
                )
                for kind, number in sorted(result.faults.items())
            ],
        ),
        _table(
            ("seconds", "median", "max"),
            [
                ("from SIGTERM to the worker's end", *_spread(result.stops)),
                ("from the last message of a round until all is applied", *_spread(result.drains)),
            ],
        ),
    ]
    parts += ["## How workers ended", _table(("how", "number"), result.ends.most_common())]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _spread(seconds: Sequence[float]) -> tuple[str, str]:
    return (f"{median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("–", "–")


def _commit() -> str:
    here = Path(__file__).parent
    try:
        commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=here, text=True).strip()
        changed = subprocess.check_output(["git", "status", "--porcelain", "-uno"], cwd=here, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with changes" if changed else commit
