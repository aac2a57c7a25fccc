"""Runs the commands of a document in one shell, as a reader would type them, on a real set-up.

    ```sh               each command is run, its exit code has to be 0
    ```sh … ```json     and what it prints has to be what is shown, white space aside; `…` there stands for anything
    ```sh … ```text     the same

What runs until it is stopped (`freshet up`, `worker`, `api`) is started, waited for, and takes the former one's place.
"""

import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from kafka_broker import CACHE
from service import wait_for

from ops.kafka import fetch_jars

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 40.0  # seconds
KAFKA_SCRIPTS = {"kafka-configs.sh": "kafka.admin.ConfigCommand"}
"""Kafka's own scripts, which its jars come without, with the class that each runs."""
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```\n(?:\n```(?:json|text)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_LASTING = re.compile(r"^(?:[A-Z_]+=\S+ )*freshet (up|worker|api)\b")
_READS = re.compile(r"^(?:curl (?!.* -d )|freshet (?:status|doctor|keys list|rejects list)\b)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its commands, each with its continued lines, and the output that is shown below it."""

    commands: list[str]
    shown: str


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a document, in order. A command goes on where a quote is open or a backslash ends the line."""
    for code, shown in _BLOCK.findall(text):
        commands, open_line = [], ""
        for line in re.sub(r"\\\n\s*", "", code).splitlines():
            open_line += line
            try:
                shlex.split(open_line)
            except ValueError:  # no closing quotation
                open_line += "\n"
                continue
            commands.append(re.sub(r"(?:^|\s+)# .*", "", open_line))
            open_line = ""
        assert not open_line, f"a quote is left open: {open_line}"
        yield Block([command for command in commands if command.strip()], shown)


def same(shown: str, printed: str) -> bool:
    """Whether what was printed is what a document shows."""
    pattern = ".*".join(re.escape("".join(part.split())) for part in shown.split("…"))
    return re.fullmatch(pattern, "".join(printed.split()), re.DOTALL) is not None


class Shell:
    """A shell in a folder of its own, in which `freshet` is this checkout's. Ends what it started when left."""

    def __init__(self, folder: Path, places: Mapping[str, str], **environment: str) -> None:
        """`places` are texts of commands and output, each with what stands there in this run."""
        self._folder, self._places = folder, places
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        script = folder / ".venv" / "bin" / "freshet"
        script.parent.mkdir(parents=True)
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m ops "$@"\n')
        script.chmod(0o755)
        java = f"java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '{fetch_jars(CACHE)}/*'"
        for name, entry in KAFKA_SCRIPTS.items():
            (script.parent / name).write_text(f'#!/bin/sh\nexec {java} {entry} "$@"\n')
            (script.parent / name).chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FRESHET_")}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-u", "-o", "pipefail"],
            cwd=folder,
            env=clean | {"PATH": f"{script.parent}:{os.environ['PATH']}"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(*self._running)
        self._shell.kill()
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe
            pipe.close()

    def run(self, block: Block) -> None:
        """Run a block. Raises AssertionError with what a command said where it failed, or printed something else."""
        shown = self._here(block.shown)
        if not shown:
            for command in block.commands:
                assert not re.match(r"curl (?!-f)", command), f"{command}: show what it answers, or have -f first"
                self._one(command)
            return
        printed: list[str] = []

        def as_shown() -> bool:
            printed.append("".join(self._one(command) for command in block.commands))
            return same(shown, printed[-1])

        if all(_READS.match(command) for command in block.commands):
            try:
                wait_for("the output", as_shown, PATIENCE)
            except AssertionError as error:
                raise AssertionError(f"{block.commands} did not print\n{shown}\nbut\n{printed[-1]}") from error
        else:
            assert as_shown(), f"{block.commands} did not print\n{shown}\nbut\n{printed[-1]}"

    def _one(self, command: str) -> str:
        command = self._here(command)
        lasting = _LASTING.match(command)
        if lasting:
            return self._start(lasting[1], command)
        (self._folder / "command").write_text(command + "\n")
        said = self._ask(". ./command > ./printed 2> ./complaints < /dev/null; echo $?")
        printed = (self._folder / "printed").read_text()
        assert said == "0", f"{command}\nended with {said}: {printed}{(self._folder / 'complaints').read_text()}"
        return printed

    def _start(self, what: str, command: str) -> str:
        """Start what lasts with the shell's environment, a setting before the command included, and wait for it."""
        self._stop(*(self._running if what == "up" else {"up", what} & set(self._running)))
        log = self._folder / f"{what}.log"
        variables = self._ask(f"{command.partition('freshet ')[0]} env -0 > ./variables; echo $?")
        assert variables == "0", command
        environment = dict(
            pair.split("=", 1) for pair in (self._folder / "variables").read_text().split("\0") if "=" in pair
        )
        words = command.partition("freshet ")[2].split()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self._folder / ".venv" / "bin" / "freshet", *words],
                cwd=self._folder,
                env=environment,
                stdout=output,
                stderr=output,
            )
        self._running[what] = process

        def ready() -> bool:
            assert process.poll() is None, f"{command}\nended: {log.read_text()}"
            if what == "worker":
                return "reading on from" in log.read_text()
            if what == "api":
                return answers(environment["FRESHET_LISTEN"], "/health")
            # where there was none a worker makes the topics, without which nothing can be sent
            return "Freshet answers at" in log.read_text() and answers(environment["FRESHET_LISTEN"], "/ready")

        wait_for(f"{command} to be ready", ready, PATIENCE)
        return ""

    def _stop(self, *former: str) -> None:
        processes = [self._running.pop(what) for what in former]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def _ask(self, line: str) -> str:
        """What the shell prints in answer to a line that prints one."""
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(line.encode() + b"\n")
        readable, _, _ = select.select([self._shell.stdout], [], [], PATIENCE)
        assert readable, f"no answer to {(self._folder / 'command').read_text()} in {PATIENCE:.0f} s"
        return self._shell.stdout.readline().decode().strip()

    def _here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text


def answers(listen: str, path: str) -> bool:
    """Whether an API there answers 200."""
    try:
        with urlopen(f"http://{listen}{path}", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
