"""The real log shippers that the tests run, on their configurations in docs/producers."""

import gzip
import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATIONS = ROOT / "docs" / "producers"
UNPACKED = ROOT / ".cache" / "producers"
"""Debian's packages, unpacked and not installed: two of them can't be installed together."""
MADE = ROOT / ".cache"
"""What `make producers` leaves."""
LIBRARIES = UNPACKED / "usr" / "lib"


def program(name: str) -> str:
    """A program's path. Raises RuntimeError where it is neither unpacked nor on PATH."""
    folders = [UNPACKED / "usr" / "sbin", UNPACKED / "usr" / "bin"]
    path = shutil.which(name, path=os.pathsep.join(map(str, folders))) or shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is neither in {UNPACKED} nor on PATH: on Debian, .ci/producers fetches it")
    return path


def configured(name: str, folder: Path, **places: str) -> Path:
    """A copy of a configuration in which each of some places, by another name, stands for the one in the original.

    Raises ValueError for a place that the original does not have.
    """
    text = (CONFIGURATIONS / name).read_text()
    for there, here in places.items():
        if there not in text:
            raise ValueError(f"{name} has no {there}")
        text = text.replace(there, here)
    copy = folder / name
    copy.write_text(text)
    return copy


@contextmanager
def running(command: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the block is left, its output in `folder`, with some environment of its own."""
    log = folder / f"{Path(command[0]).name}.log"
    libraries = os.pathsep.join([str(LIBRARIES / "syslog-ng"), os.environ.get("LD_LIBRARY_PATH", "")])
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "LD_LIBRARY_PATH": libraries, **environment},
        )
        try:
            yield process
            assert process.poll() is None, f"it ended: {log.read_text()}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def rsyslog(configuration: Path) -> list[str]:
    """The command that runs rsyslog in the foreground."""
    modules = next(UNPACKED.glob("usr/lib/*/rsyslog"), None)
    found = [] if modules is None else ["-M", str(modules)]
    return [program("rsyslogd"), "-n", "-f", str(configuration), "-i", "rsyslog.pid", *found]


def syslog_ng(configuration: Path) -> list[str]:
    """The command that runs syslog-ng in the foreground."""
    modules = next(LIBRARIES.glob("syslog-ng/*/libkafka.so"), None)
    found = [] if modules is None else [f"--module-path={modules.parent}"]
    files = [f"--{name}=syslog-ng.{name}" for name in ("persist-file", "pidfile", "control")]
    return [program("syslog-ng"), "--foreground", "--no-caps", "-f", str(configuration), *files, *found]


def made(name: str) -> Path:
    """A program or a folder of jars that make has left. Raises RuntimeError where it is not there."""
    if not (MADE / name).exists():
        raise RuntimeError(f"{MADE / name} is not there: make producers")
    return MADE / name


def otel_collector(configuration: Path) -> list[str]:
    """The command that runs OpenTelemetry's collector."""
    return [str(made("otel-collector")), "--config", str(configuration)]


def log4j(configuration: Path, host: str) -> list[str]:
    """The command that logs the requests to a host that stand on standard input."""
    source = ROOT / "tests" / "log4j" / "Requests.java"
    settings = f"-Dlog4j2.configurationFile={configuration}"
    return [program("java"), "-cp", f"{made('log4j')}/*", settings, str(source), host]


def post_logs(port: int, logs: dict[str, Any]) -> bool:
    """Whether the collector took logs, as OTLP's JSON; it has not where nothing listens yet."""
    headers = {"Content-Type": "application/json"}
    request = Request(f"http://localhost:{port}/v1/logs", json.dumps(logs).encode(), headers)
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        return False


def telegraf(configuration: Path) -> list[str]:
    """The command that runs Telegraf."""
    return [str(made("telegraf")), "--config", str(configuration)]


NGINX = """
daemon off;
master_process off;
pid nginx.pid;
events {}
http {
    client_body_temp_path temporary;
    proxy_temp_path temporary;
    fastcgi_temp_path temporary;
    uwsgi_temp_path temporary;
    scgi_temp_path temporary;
    include %s;
    server {
        listen 127.0.0.1:%d;
        location /rest { return 200; }
        location /auth { access_log syslog:server=127.0.0.1:%d,tag=edge,nohostname combined; return 401; }
        location /storage { access_log syslog:server=127.0.0.1:%d,tag=edge combined; return 503; }
    }
}
"""


def nginx(access_log: Path, folder: Path, port: int, syslog_port: int) -> list[str]:
    """The command that runs nginx in the foreground.

    It logs /rest as a file of docs/producers says, /auth without its name and in the combined form, /storage with it.
    """
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX % (access_log, port, syslog_port, syslog_port))
    return [program("nginx"), "-c", str(configuration), "-p", str(folder), "-e", "stderr"]


def post_logpush(port: int, password: str, body: bytes) -> int | None:
    """The status of the answer to a body as Logpush posts it; None where nothing listens yet."""
    headers = {
        "Authorization": f"Basic {b64encode(f'logpush:{password}'.encode()).decode()}",
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
    }
    request = Request(f"http://localhost:{port}/logpush", gzip.compress(body), headers)
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        return None
