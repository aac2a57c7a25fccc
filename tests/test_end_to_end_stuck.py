"""A worker in any state in which nothing goes on ends by itself, and the one that takes its place goes on."""

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from conftest import Topics
from events import Traffic
from idle_spare import idle_spare
from kafka_broker import KafkaBroker
from service import PATIENCE, Service
from stuck_worker import STATES

from schema.settings import to_environment
from streams.watchdog import STUCK


def test_the_watchdog_ends_a_worker_in_every_dead_state(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    with ExitStack() as stack:
        services: dict[str, Service] = {}
        for number, state in enumerate(STATES):
            folder = tmp_path / str(number)
            folder.mkdir()
            service = services[state] = stack.enter_context(Service(folder, kafka, *topics))
            service.settings = replace(service.settings, group=f"{topics[0]}-{number}", stuck_seconds=15)
            program = [sys.executable, str(Path(__file__).with_name("stuck_worker.py")), state]
            with (folder / "stuck.log").open("wb") as log:
                environment = {**os.environ, **to_environment(service.settings)}
                service.processes.append(subprocess.Popen(program, env=environment, stdout=log, stderr=log))
        some = services["nothing applied"]
        traffic = Traffic(19, 1_750_000_000_000_000, *topics)
        messages = traffic.messages(50)
        some.kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])
        for state, service in services.items():
            assert service.processes[0].wait(PATIENCE) == STUCK
            said = (service.folder / "stuck.log").read_text()
            assert f"this worker is stuck: {'it lags' if state == 'nothing applied' else STATES[state][1]}" in said
            assert STATES[state][1] in said
        some.start("worker")
        some.wait_until_applied()


def test_an_idle_spare_takes_over(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "kafka") as kafka:
        idle, _ = idle_spare(kafka, tmp_path, minutes=0.5, stuck_seconds=15)
    assert idle
