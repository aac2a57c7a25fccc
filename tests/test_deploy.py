"""What is deployed is what is tested: docker-compose.yml, the Dockerfile and the systemd units.

There is no engine for containers here. Docker Compose itself and hadolint read the files, and the very commands, health
checks and variables that they have run as plain processes, with their folders and hosts in place of the containers'.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker
from service import free_port, wait_for

from ops.kafka import version

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(sys.executable).parent
UNITS = sorted((ROOT / "docs" / "operations" / "systemd").iterdir())
Run = subprocess.CompletedProcess[str]


def run(*command: str | Path, **environment: str) -> Run:
    return subprocess.run(
        command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """docker-compose.yml as Docker Compose understands it."""
    done = run(PROGRAMS / "docker-compose", "-f", ROOT / "docker-compose.yml", "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = json.loads(done.stdout)["services"]
    return services


def test_every_service_starts_again_stops_in_time_and_tells_its_health(compose: dict[str, Any]) -> None:
    assert set(compose) == {"kafka", "worker", "api"}
    assert compose["kafka"]["image"] == f"apache/kafka:{version()}", "the one that is tested"
    for service in compose.values():
        assert service["restart"] == "unless-stopped"
        assert service["stop_grace_period"] in ("30s", "1m0s")
        assert service["healthcheck"]["test"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", []))
    for name in ("worker", "api"):
        assert compose[name]["read_only"]
        assert compose[name]["tmpfs"] == ["/tmp"]  # noqa: S108  # in the container
        assert [(volume["source"], volume["target"]) for volume in compose[name]["volumes"]] == [("data", "/data")]


def test_nothing_is_wrong_with_the_dockerfile() -> None:
    done = run(PROGRAMS / "hadolint", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    final = (ROOT / "Dockerfile").read_text().rpartition("FROM ")[2]
    for line in ("COPY --from=build /freshet /freshet", "USER 10001:10001", "VOLUME /data"):
        assert f"\n{line}\n" in final
    assert "\nENV PATH=/freshet/bin:$PATH " in final


class Container:
    """A service of docker-compose.yml or a unit, as a process on this machine."""

    def __init__(self, command: list[str], places: dict[str, str], environment: dict[str, str], log: Path) -> None:
        self._places = places
        self.environment = {name: self._here(value) for name, value in environment.items()}
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self._command(command), env=self._all(), cwd=log.parent, stdout=output, stderr=output
            )

    def check(self, test: list[str]) -> Run:
        """Run a health check."""
        assert test[0] == "CMD"
        return subprocess.run(
            self._command(test[1:]), env=self._all(), cwd=self._log.parent, capture_output=True, text=True, timeout=60
        )

    def _here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def _command(self, words: list[str]) -> list[str]:
        return [self._here(word) for word in words]

    def _all(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("FRESHET_")}
        return ours | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"} | self.environment


@pytest.fixture
def started() -> Iterator[list[Container]]:
    containers: list[Container] = []
    yield containers
    for container in containers:
        container.process.kill()
        container.process.wait()


def properties(environment: dict[str, str]) -> str:
    """The settings of Kafka that its image makes of variables; the listeners' ports are mapped, and the folder."""
    lines = []
    for name, value in environment.items():
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS":
            lines.append(f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}")
    text = "\n".join(lines).replace("/var/lib/kafka/data", "{data}")
    text = text.replace("@kafka:9093", "@127.0.0.1:{controller_port}").replace("kafka:9092", "127.0.0.1:{port}")
    text = text.replace("://:9092", "://127.0.0.1:{port}").replace("://:9093", "://127.0.0.1:{controller_port}")
    return text.replace("://:19092", f"://127.0.0.1:{free_port()}").replace("localhost:19092", "127.0.0.1:{port}")


def test_the_services_of_compose_work_together_and_their_health_checks_tell_it(
    compose: dict[str, Any], started: list[Container], tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with KafkaBroker(tmp_path / "kafka", properties(compose["kafka"]["environment"]), alone=True) as kafka:
        places = {"kafka:9092": kafka.bootstrap, "/data": str(tmp_path / "data")}
        places |= {"0.0.0.0:4000": listen, "127.0.0.1:4000": listen}

        def start(name: str) -> Container:
            service = compose[name]
            container = Container(service["command"], places, service["environment"], tmp_path / f"{name}.log")
            started.append(container)
            return container

        api_test, worker_test = compose["api"]["healthcheck"]["test"], compose["worker"]["healthcheck"]["test"]
        api = start("api")
        wait_for("the API", lambda: "503" in api.check(api_test).stderr)  # not ready: no worker yet
        assert "no worker has asked the broker for anything yet" in api.check(worker_test).stderr
        worker = start("worker")
        wait_for("the worker's health", lambda: worker.check(worker_test).returncode == 0)
        assert worker.check(worker_test).stdout.startswith("a worker asked the broker ")
        wait_for("the API's health", lambda: api.check(api_test).returncode == 0)
        for container in (worker, api):
            container.process.send_signal(signal.SIGTERM)
            assert container.process.wait(30) == 0
        worker.environment["FRESHET_READY_SECONDS"] = "1"
        wait_for("the worker's end to show", lambda: "no worker has asked" in worker.check(worker_test).stderr)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit_and_little_exposed(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/freshet/bin/", f"{PROGRAMS}/"))
    done = run("systemd-analyze", "verify", "--man=no", here)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20", here)  # tenths
    assert done.returncode == 0, done.stdout[-200:]


def test_the_commands_of_the_units_work_together(started: list[Container], kafka: KafkaBroker, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    places = {"/var/lib/freshet": str(tmp_path / "data"), "/opt/freshet/bin": str(PROGRAMS)}
    for unit in UNITS:
        parsed = RawConfigParser(strict=False)
        parsed.optionxform = str  # type: ignore[assignment,method-assign]
        parsed.read(unit)
        service = parsed["Service"]
        environment = dict(item.split("=", 1) for item in shlex.split(service["Environment"]))
        environment |= {"FRESHET_BROKER": f"kafka://{kafka.bootstrap}", "FRESHET_LISTEN": listen}  # /etc/freshet.env
        command = shlex.split(service["ExecStart"])
        started.append(Container(command, places, environment, tmp_path / f"{unit.name}.log"))
    wait_for("a worker", lambda: started[0].check(["CMD", "freshet", "alive"]).returncode == 0)
    ready = [
        "CMD",
        "python",
        "-c",
        f"import urllib.request; urllib.request.urlopen('http://{listen}/ready', timeout=3)",
    ]
    wait_for("fresh answers", lambda: started[0].check(ready).returncode == 0)
    for container in started:
        container.process.send_signal(signal.SIGTERM)
        assert container.process.wait(30) == 0
