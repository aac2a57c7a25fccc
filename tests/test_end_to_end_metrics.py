"""A scrape of real workers and API processes: sums over all of them, and every name that operators' files use."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]
from conftest import Topics
from events import Traffic
from kafka_broker import KafkaBroker
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from service import Service, wait_for

from schema.timestamps import SECOND

NOW = 1_750_000_000_123_456
OPERATIONS = Path(__file__).parents[1] / "docs" / "operations"
LABEL = r"[a-z_]+"


@pytest.fixture
def service(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, kafka, *topics) as service:
        yield service


def families(service: Service) -> list[Metric]:
    with urlopen(f"http://{service.settings.listen}/metrics", timeout=10) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def scrape(service: Service) -> list[Sample]:
    return [sample for family in families(service) for sample in family.samples]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def entry(timestamp: int, **fields: Any) -> bytes:
    return json.dumps({"timestamp": timestamp, "project": "p", **fields}).encode()


def test_every_scrape_tells_the_sum_over_all_processes_and_keeps_it_when_they_end(service: Service) -> None:
    service.set_clock(NOW)
    workers = [service.start("worker"), service.start("worker")]
    wait_for("partitions", lambda: len(service.applied()) == 8)
    for partition in range(4):
        service.kafka.produce([(service.edge, partition, None, entry(NOW), NOW // 1000)] * 10)
    service.wait_until_applied()
    service.start_api(api_processes=3)
    asked = Counter[int]()
    for number in range(60):
        asked[service.get("/api/endpoints/logs.all", project="p").status] += 1
        if not number % 10:
            asked[service.get("/api/endpoints/logs.all", project="").status] += 1
    assert set(asked) == {200, 400}
    for _ in range(12):  # each process answers some of them
        samples = scrape(service)
        assert total(samples, "freshet_api_requests_total", endpoint="logs.all", status="200") == asked[200]
        assert total(samples, "freshet_api_requests_total", status="400") == asked[400]
        assert total(samples, "freshet_api_query_seconds_count", endpoint="logs.all") == asked[200]
        assert total(samples, "freshet_worker_batch_records_sum") == 40
        assert total(samples, "freshet_worker_commit_seconds_count") >= 4
        assert total(samples, "freshet_workers") == 2
    wait_for("three processes", lambda: total(scrape(service), "freshet_api_processes") == 3)
    for worker in workers:
        worker.kill()
        worker.wait()
    samples = scrape(service)
    assert total(samples, "freshet_workers") == 0
    assert total(samples, "freshet_worker_batch_records_sum") == 40
    service.stop(service.processes[-1])
    service.start_api()
    samples = scrape(service)
    assert total(samples, "freshet_api_requests_total", endpoint="logs.all", status="200") == asked[200]


def test_the_lag_of_a_partition_at_its_end_grows_once_all_workers_are_dead(service: Service) -> None:
    service.set_clock(NOW)
    worker = service.start("worker")
    service.kafka.produce([(service.edge, 0, None, entry(NOW), NOW // 1000)])
    service.wait_until_applied()
    service.start_api()
    wait_for("/ready", lambda: service.get("/ready").status == 200)
    assert total(scrape(service), "freshet_lag_seconds") == 0
    worker.kill()
    worker.wait()
    told = []
    for seconds in (10, 50, 100):
        service.set_clock(NOW + seconds * SECOND)
        told.append({s.value for s in scrape(service) if s.name == "freshet_lag_seconds"})
    assert [round(max(values)) for values in told] == [0, 50, 100]
    time.sleep(0.6)  # for as long a look of /ready counts
    reply = service.get("/ready")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
    assert reply.body == {"status": "not ready", "reasons": ["no worker has asked the broker for 100 s"]}


def test_ready_says_that_there_is_no_store(service: Service) -> None:
    service.start_api()
    reply = service.get("/ready")
    assert reply.status == 503
    assert "start a worker" in reply.body["reasons"][0]
    assert service.get("/health").status == 200


def expressions() -> list[tuple[str, str]]:
    """Every expression of the dashboard and of the alert rules, each with the text in which its labels are shown."""
    dashboard = json.loads((OPERATIONS / "grafana.json").read_text())
    found = [
        (target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    rules = yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())
    for group in rules["groups"]:
        found += [(rule["expr"], rule["annotations"]["summary"]) for rule in group["rules"]]
    return found


def test_every_metric_and_label_of_the_dashboard_and_the_alerts_is_exposed(service: Service) -> None:
    now = time.time_ns() // 1000
    service.start("worker", keep_seconds=15 * 60 * SECOND)
    late = Traffic(3, now, service.edge, service.functions).invocation_at(
        now - 3600 * SECOND, project="p", record_ms=now // 1000
    )
    wait_for("horizons", lambda: service.applied() and service.ask_store("SELECT 1 FROM horizons"))
    time.sleep(2)  # the worker takes them up once a second
    values = [entry(now), b"{", entry(now, id={})]
    service.kafka.produce([(service.edge, 0, None, value, now // 1000) for value in values])
    service.kafka.produce([(service.functions, 0, None, late.value, now // 1000)])
    service.wait_until_applied()
    service.start_api()
    service.get("/api/endpoints/logs.all", project="p")
    samples = scrape(service)
    listed = re.findall(r"`(freshet_[a-z_]+)`", (OPERATIONS / "README.md").read_text())
    assert {name.removesuffix("_total") for name in listed} == {family.name for family in families(service)}
    exposed: dict[str, set[str]] = {}
    for sample in samples:
        exposed.setdefault(sample.name, set()).update(sample.labels)
    assert len(expressions()) > 30
    for expression, shown in expressions():
        names = re.findall(r"freshet_[a-z_]+", expression)
        assert names or "up{" in expression
        assert set(names) <= set(exposed), expression
        for name, selector in re.findall(r"(freshet_[a-z_]+)\{([^}]*)\}", expression):
            assert set(re.findall(rf"({LABEL})\s*[!=]", selector)) <= exposed[name], expression
        labels = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
        labels |= set(re.findall(rf"{{{{\s*(?:\$labels\.)?({LABEL})\s*}}}}", shown))
        known = {label for name in names for label in exposed[name]} | ({"instance"} if "up{" in expression else set())
        assert labels <= known, expression
