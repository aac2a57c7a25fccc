"""Fixtures that all tests share: one Kafka a run, two topics a test."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest
from kafka_broker import KafkaBroker


class Topics(NamedTuple):
    """The names of one test's two topics."""

    edge: str
    functions: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, started once a run on a data folder of its own. Don't stop or kill it: make your own for that."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topics(kafka: KafkaBroker) -> Topics:
    """Two empty topics with names of this test's own, 4 partitions each, that keep every record however old."""
    names = Topics(*(f"{kind}-{uuid4().hex[:12]}" for kind in Topics._fields))
    for name in names:
        kafka.create_topic(name, 4, {"retention.ms": "-1"})
    return names
