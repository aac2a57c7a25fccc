"""An Apache Kafka of one's own: one KRaft node on this machine, for `freshet up --broker kafka` and for the tests.

Maven fetches it once. It keeps what it is sent, over restarts and kills; only this machine can reach it.
"""

import base64
import fcntl
import hashlib
import os
import shutil
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from xml.etree import ElementTree

from schema.errors import FreshetError, SettingsError
from schema.settings import EMBEDDED, Settings

POM, SUMS = Path(__file__).with_name("kafka.pom.xml"), Path(__file__).with_name("kafka.sha256")
HOST, PORT = "127.0.0.1", 9092
FETCH_SECONDS = 600

# A start after SIGKILL waits for the old session to time out (default 9 s).
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
"""
# No other node has a copy, so that what is written is brought to the disk every second.
_DURABLE = """\
log.flush.interval.ms=1000
log.flush.scheduler.interval.ms=1000
"""
JVM_OPTIONS = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JVM_OPTIONS += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]


class BrokerError(FreshetError):
    """The broker, or a program it needs, failed: what, where, and the last lines it wrote."""


def own_settings(settings: Settings) -> Settings:
    """The settings with which the other processes find this machine's own Kafka: FRESHET_BROKER's port, or 9092.

    Raises SettingsError where that names another machine, several brokers, or a login.
    """
    broker = f"kafka://{HOST}:{PORT}" if settings.broker == EMBEDDED else settings.broker
    host, _, port = broker.removeprefix("kafka://").rpartition(":")
    if host not in (HOST, "localhost") or not 1 <= int(port) < 65535:
        raise SettingsError(f"a Kafka of one's own is at kafka://{HOST}:PORT, but FRESHET_BROKER is {broker!r}")
    if settings.broker_security != "PLAINTEXT":
        raise SettingsError("a Kafka of one's own is reached by PLAINTEXT alone: leave out FRESHET_BROKER_SECURITY")
    return replace(settings, broker=f"kafka://{HOST}:{port}")


def own_port(settings: Settings) -> int:
    """The port of this machine's own Kafka; its controller has the next one."""
    return int(settings.bootstrap[0].rpartition(":")[2])


def version() -> str:
    """The version of Apache Kafka."""
    found = ElementTree.parse(POM).findtext("{*}dependencies/{*}dependency/{*}version")  # noqa: S314  # a file of ours
    assert found
    return found


def fetch_jars(cache: Path, waiting: Callable[[float], None] | None = None) -> Path:
    """The folder of Kafka's jars under `cache`, fetched by Maven unless there; runs wait for one another.

    `waiting` is told several times a second for how many it has gone on. Raises BrokerError when mvn or java is
    missing, or mvn fails, takes over FETCH_SECONDS, or fetches anything but the files of SUMS.
    """
    jars = cache.resolve() / f"kafka-{version()}"
    if jars.is_dir():
        return jars
    mvn, _ = program("mvn"), program("java")
    cache.mkdir(parents=True, exist_ok=True)
    with open(f"{jars}.lock", "w") as lock, TemporaryDirectory(dir=cache) as unfinished:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            to = Path(unfinished, "jars").resolve()
            command = [mvn, "-B", "-q", "-C", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={to}"]
            _run(command, Path(unfinished, "output"), waiting or (lambda seconds: None))
            _check(to)
            to.rename(jars)
    return jars


def _check(jars: Path) -> None:
    """Raise BrokerError where the jars are not those of SUMS, each with its SHA-256."""
    expected = {name: digest for digest, name in (line.split() for line in SUMS.read_text().splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.iterdir()}
    if wrong := sorted(name for name, _ in expected.items() ^ found.items()):
        raise BrokerError(f"mvn fetched other jars than Kafka's: {', '.join(dict.fromkeys(wrong))}; none is used")


def _run(command: list[str], output: Path, waiting: Callable[[float], None]) -> None:
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None and (seconds := time.monotonic() - began) < FETCH_SECONDS:
            waiting(seconds)
            time.sleep(0.2)
    finally:
        process.kill()
        code = process.wait()
    if code != 0:
        how = f"took over {FETCH_SECONDS} s" if code < 0 else f"ended with code {code}"
        said = output.read_text(errors="replace")[-3000:]
        raise BrokerError(f"mvn could not fetch Kafka's jars: it {how}\n{said}")


def prepare(folder: Path, port: int, settings: str) -> None:
    """Write `folder`/server.properties: `settings` with its {port}, {controller_port} and {data} filled in.

    The commands below are run in the folder: its name may hold what neither these settings nor a class path can.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.properties").write_text(settings.format(port=port, controller_port=port + 1, data="data"))


def java(jars: Path, *main: str) -> list[str]:
    """The command that runs a class of Kafka. Raises BrokerError where there is no Java."""
    return [program("java"), *JVM_OPTIONS, "-cp", f"{jars}/*", *main]


def format_command(folder: Path, jars: Path) -> list[str] | None:
    """The command that makes `folder`/data, which is needed once; None where it is there."""
    if (folder / "data" / "meta.properties").exists():
        return None
    # An id is 16 bytes in base64; the first is 0 lest it begin with a dash, like an option.
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    return java(jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties")


def start_command(jars: Path) -> list[str]:
    """The command that is the broker."""
    return java(jars, "kafka.Kafka", "server.properties")


def run_kafka(settings: Settings) -> NoReturn:
    """Become this machine's own Kafka, on jars that are there. Raises BrokerError where it can't."""
    folder = settings.data / "kafka"
    prepare(folder, own_port(settings), SETTINGS + _DURABLE)
    jars = Path(fetch_jars(folder).name)
    format_data = format_command(folder, jars)
    os.chdir(folder)
    if format_data and (code := subprocess.run(format_data, stdin=subprocess.DEVNULL).returncode):
        raise BrokerError(f"Kafka could not format {folder / 'data'} (code {code})")
    command = start_command(jars)
    os.execv(command[0], command)  # noqa: S606  # the same process, so that it ends with the one that started it


def answers(port: int) -> bool:
    """Whether a broker on this machine answers an ApiVersions request (v0): the port opens before it serves."""
    try:
        with socket.create_connection((HOST, port), 1) as connection:
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            with connection.makefile("rb") as reply:
                return reply.read(10)[4:] == struct.pack(">ih", 7, 0)
    except OSError:
        return False


def program(name: str) -> str:
    """The path of a program. Raises BrokerError that says what to install."""
    path = shutil.which(name)
    if path is None:
        raise BrokerError(
            f"{name} is not on PATH: a real Apache Kafka needs Java 17 and, to be fetched, Maven"
            " (Debian: apt-get install maven openjdk-17-jre-headless)"
        )
    return path
