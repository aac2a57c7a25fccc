"""`freshet up`: all processes in one tree, with a live status line."""

import http.client
import shutil
import signal
import socket
import sqlite3
import sys
import time
from dataclasses import replace
from types import FrameType

from ops import kafka
from ops.demo import PROJECT
from ops.keys import add_key
from ops.processes import Process
from ops.progress import Progress, read_progress
from schema.errors import FreshetError, SettingsError
from schema.settings import EMBEDDED, Settings
from schema.tables import migrate

_LOOK_EVERY = 0.5  # seconds
_QUIET_EVERY = 10.0  # seconds between status lines where no terminal shows them in place
_READY_SECONDS = 60.0
DEMO_KEY = "demo"
"""The name of the key that `freshet up --demo` makes; each start replaces the last one's."""


def run_up(settings: Settings, demo: bool, own_kafka: bool) -> int:
    """Run until Ctrl-C or SIGTERM; returns the exit code. Raises FreshetError where it can't start."""
    _require_free(settings)
    if own_kafka:
        settings = kafka.own_settings(settings)
        _require_no_kafka(settings)
    migrate(settings.data)
    key = add_key(settings.data, DEMO_KEY, replace=True) if demo else None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    screen = Screen()
    if settings.broker == EMBEDDED:
        from ops.embedded import EmbeddedBroker

        broker = EmbeddedBroker(settings)  # must live as long as this function
        settings = broker.settings
    settings = replace(settings, log="text" if settings.log == "auto" else settings.log)  # files for people
    logs = settings.data / "log"
    logs.mkdir(parents=True, exist_ok=True)
    commands = [*(["kafka"] if own_kafka else []), "worker", "api", *(["demo"] if demo else [])]
    processes = [Process(command, settings, logs / f"{command}.log", screen.say) for command in commands]
    try:
        if own_kafka:
            _start_kafka(settings, processes[0], screen)
        for process in processes[1 if own_kafka else 0 :]:
            process.start()
        _wait_until_ready(settings, processes)
        screen.say(_welcome(settings, key))
        _watch(settings, processes, screen)
    except KeyboardInterrupt:
        screen.say("stopping")
    finally:
        for process in reversed(processes):
            process.stop()
        screen.say("stopped")
    return 0


def _start_kafka(settings: Settings, process: Process, screen: "Screen") -> None:
    what = f"Apache Kafka {kafka.version()}"
    kafka.fetch_jars(
        settings.data / "kafka", lambda seconds: screen.status(f"fetching {what}, once, 45 MB: {seconds:.0f} s")
    )
    process.start()
    began = time.monotonic()
    while not kafka.answers(kafka.own_port(settings)):
        seconds = time.monotonic() - began
        if process.pid is None:
            raise FreshetError(f"Kafka does not start: {_last_line(process)} (see {process.log})")
        if seconds > _READY_SECONDS:
            raise FreshetError(f"Kafka does not answer after {seconds:.0f} s: see {process.log}")
        screen.status(f"starting {what}: {seconds:.0f} s")
        time.sleep(0.1)
    screen.say(f"{what} answers at {settings.broker}")


class Screen:
    """Lines that stay, and under them one that is written anew in place where there is a terminal."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._last_status = 0.0

    def say(self, text: str) -> None:
        """Print lines that stay."""
        print(("\r\x1b[K" if self._live else "") + text, flush=True)

    def status(self, text: str) -> None:
        """Show the status; without a terminal only now and then."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + text[:width], end="", flush=True)
        elif time.monotonic() - self._last_status > _QUIET_EVERY:
            self._last_status = time.monotonic()
            print(text, flush=True)


def _watch(settings: Settings, processes: list[Process], screen: Screen) -> None:
    names = {settings.topic_edge: "edge", settings.topic_functions: "functions"}
    before, before_at = read_progress(settings.data), time.monotonic()
    while True:
        time.sleep(_LOOK_EVERY)
        for process in processes:
            process.keep_running()
        try:
            now, now_at = read_progress(settings.data), time.monotonic()
        except sqlite3.OperationalError:  # a full disk, a replay's switch: the others go on, and so does this
            continue
        screen.status(_status(names, before, now, now_at - before_at, processes))
        before, before_at = now, now_at


def _status(names: dict[str, str], before: Progress, now: Progress, seconds: float, processes: list[Process]) -> str:
    parts = []
    for topic, name in names.items():
        events = now.events.get(topic, 0)
        rate = (events - before.events.get(topic, 0)) / seconds
        parts.append(f"{name} {events:,} ({rate:+,.0f}/s)")
    parts += [f"lag {now.lag:,}", f"rejects {now.rejects:,}"]
    down = [process.command for process in processes if process.pid is None]
    parts.append(f"down: {', '.join(down)}" if down else "all running")
    return " · ".join(parts) + " · Ctrl-C stops"


def _welcome(settings: Settings, key: str | None) -> str:
    address = f"http://{settings.listen}"
    lines = ["", f"Freshet answers at {address}", "Open that in a browser for the dashboard, which asks for a key"]
    lines += [f"Data and logs are in {settings.data.resolve()}", ""]
    if key is None:
        return "\n".join([*lines, "Make a key with: freshet keys add NAME", ""])
    lines += [f"The demo's API key, shown this once: {key}", ""]
    for query in (
        f"functions.invocation-stats?project={PROJECT}&interval=15min",
        f"logs.all?project={PROJECT}&project_tier=FREE",
        f"usage.api-counts?project={PROJECT}&interval=minutely",
    ):
        headers = f"-H 'X-API-KEY: {key}' -H 'Cache-Control: no-cache'"
        lines.append(f"  curl -s {headers} '{address}/api/endpoints/{query}'")
    return "\n".join([*lines, ""])


def _wait_until_ready(settings: Settings, processes: list[Process]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _answers(settings):
        for process in processes:
            if process.pid is None:
                raise FreshetError(f"the {process.command} does not start: {_last_line(process)}")
        if time.monotonic() > deadline:
            raise FreshetError(f"the API does not answer after {_READY_SECONDS:.0f} s: see {settings.data / 'log'}")
        time.sleep(0.05)


def _last_line(process: Process) -> str:
    lines = process.log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended without a word (see {process.log})"


def _answers(settings: Settings) -> bool:
    connection = http.client.HTTPConnection(*settings.address, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _require_free(settings: Settings) -> None:
    host, port = settings.address
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"{settings.listen} can't be listened on ({error.strerror}): set FRESHET_LISTEN to another address"
            ) from error


def _require_no_kafka(settings: Settings) -> None:
    if kafka.answers(kafka.own_port(settings)):
        raise SettingsError(
            f"a Kafka answers at {settings.broker} already: to use it, leave out --broker and set FRESHET_BROKER; "
            f"for another port set FRESHET_BROKER to kafka://{kafka.HOST}:PORT"
        )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
