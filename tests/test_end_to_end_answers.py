"""Start reading here: bytes on two topics of a real Kafka become the three answers over HTTP.

Thousands of messages in every shape go through a real broker, a worker and the API, and every answer is compared with
the brute-force oracle, which shares no code with them.
"""

from collections.abc import Iterator
from itertools import product

import pytest
from conftest import Topics
from events import DAY, HOUR, MINUTE, SECOND, Traffic
from kafka_broker import KafkaBroker
from oracle import COUNTS_INTERVALS, STATS_INTERVALS, TIERS, Oracle, Record, rows_agree
from service import Service

NOW = 1_750_000_000_123_456
"""2025-06-15T15:06:40.123456Z: within its second, minute, hour and day, so that truncation shows."""

MESSAGES = 4000


class Answered:
    """What was sent, what the service answers, and what the oracle says."""

    def __init__(self, service: Service, traffic: Traffic, oracle: Oracle) -> None:
        self.service, self.traffic, self.oracle = service, traffic, oracle

    @property
    def projects(self) -> list[str]:
        """Every project, one that only stands in others' URLs, and one that was never heard of."""
        traffic = self.traffic
        return [*traffic.projects, traffic.default, traffic.quiet, traffic.ghost, "never-heard-of"]


@pytest.fixture(scope="module")
def answered(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answered]:
    folder = tmp_path_factory.mktemp("answers")
    topics = Topics(f"edge-{folder.name}", f"functions-{folder.name}")
    for name in topics:
        kafka.create_topic(name, 4, {"retention.ms": "-1"})
    traffic = Traffic(20261121, NOW, *topics)
    with Service(folder, kafka, *topics) as service:
        service.set_clock(NOW)
        service.start("worker")
        service.start_api()
        messages = traffic.messages(MESSAGES) + traffic.window_edges()
        kafka.produce([(m.topic, None, m.key, m.value, m.timestamp_ms) for m in messages])
        oracle = Oracle(service.log_of_topics(), *topics)
        oracle.feed(Record(*record) for topic in topics for record in kafka.read_all(topic))
        service.wait_until_applied()
        yield Answered(service, traffic, oracle)


def test_invocation_statistics_equal_the_oracle(answered: Answered) -> None:
    rows = 0
    intervals = [*STATS_INTERVALS, None, "", "2day"]
    for project, interval in product(answered.projects, intervals):
        for function in [None, "", answered.traffic.functions.get(project, ["f"])[0], "no-such-function"]:
            expected = answered.oracle.invocation_stats(NOW, project, function, interval)
            rows_agree(
                answered.service.rows(
                    "functions.invocation-stats", project=project, function_id=function, interval=interval
                ),
                expected,
            )
            rows += len(expected)
    assert rows > 1000


def test_the_newest_logs_equal_the_oracle(answered: Answered) -> None:
    rows = 0
    for project, tier in product(answered.projects, [*TIERS, None, "", "pro", "TEAM"]):
        expected = answered.oracle.logs_all(NOW, project, tier)
        rows_agree(answered.service.rows("logs.all", project=project, project_tier=tier), expected)
        rows += len(expected)
    assert rows > 1000


def test_logs_within_time_bounds_equal_the_oracle(answered: Answered) -> None:
    project = answered.traffic.projects[0]
    times = sorted(row["timestamp"] for row in answered.oracle.logs_all(NOW, project, "PRO"))
    bounds = [None, times[0], times[0] - 1, times[50], times[50] + 1, times[-1], NOW - HOUR, NOW - 3 * DAY, NOW + DAY]
    for start, end in product(bounds, bounds):
        expected = answered.oracle.logs_all(NOW, project, "PAYG", start, end)
        answer = answered.service.rows(
            "logs.all",
            project=project,
            project_tier="PAYG",
            iso_timestamp_start="" if start is None else iso(start),
            iso_timestamp_end="" if end is None else iso(end).replace("Z", "+00:00"),
        )
        rows_agree(answer, expected)


@pytest.mark.parametrize("interval", COUNTS_INTERVALS)
def test_api_counts_of_every_pattern_equal_the_oracle(answered: Answered, interval: str) -> None:
    rows = 0
    for pattern in answered.traffic.patterns():
        expected = answered.oracle.api_counts(NOW, pattern, interval)
        rows_agree(answered.service.rows("usage.api-counts", project=pattern, interval=interval), expected)
        rows += len(expected)
    assert rows > 70


@pytest.mark.parametrize("grain", [SECOND, MINUTE, HOUR, DAY], ids=["second", "minute", "hour", "day"])
@pytest.mark.parametrize("step", [-1, 0, 1])
def test_answers_turn_over_at_the_very_microsecond(answered: Answered, grain: int, step: int) -> None:
    now = NOW - NOW % grain + step
    service, oracle, traffic = answered.service, answered.oracle, answered.traffic
    service.set_clock(now)
    try:
        for project in (traffic.quiet, traffic.projects[1]):
            for interval in STATS_INTERVALS:
                expected = oracle.invocation_stats(now, project, None, interval)
                rows_agree(service.rows("functions.invocation-stats", project=project, interval=interval), expected)
            for interval in COUNTS_INTERVALS:
                expected = oracle.api_counts(now, project, interval)
                rows_agree(service.rows("usage.api-counts", project=project, interval=interval), expected)
            for tier in TIERS:
                rows_agree(
                    service.rows("logs.all", project=project, project_tier=tier), oracle.logs_all(now, project, tier)
                )
    finally:
        service.set_clock(NOW)


def test_what_could_not_be_taken_is_kept_with_its_place_and_reason(answered: Answered) -> None:
    kept = answered.service.ask_store('SELECT topic, partition, "offset", element, reason FROM rejects')
    assert len(kept) == len(set(kept))
    assert set(kept) == answered.oracle.rejects
    assert {reason for *_, reason in kept} >= {
        *("not_json", "not_utf8", "too_deep", "not_object", "bad_timestamp", "no_project", "future")
    }
    counted = dict(answered.service.ask_store("SELECT name, sum(count) FROM counters GROUP BY name"))
    for name in ("empty", "no_response"):
        assert counted[name] == answered.oracle.skipped[name]
    for reason in {reason for *_, reason in kept}:
        assert counted[f"reject.{reason}"] == sum(row[-1] == reason for row in kept)


def test_a_pattern_that_re2_refuses_is_a_400_that_says_why(answered: Answered) -> None:
    for pattern in answered.traffic.refused_patterns():
        reply = answered.service.get("/api/endpoints/usage.api-counts", project=pattern, interval="daily")
        assert reply.status == 400, pattern
        (detail,) = reply.body["error"]["errors"]
        assert (detail["parameter"], detail["value"]) == ("project", pattern)
        assert "RE2" in detail["message"]


def iso(micros: int) -> str:
    """A time in ISO 8601 with all its microseconds."""
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
