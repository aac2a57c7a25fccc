"""The embedded broker: a Kafka to try things out with, new at each start."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from service import wait_for

from ops.embedded import EmbeddedBroker
from schema.settings import EMBEDDED, Settings, load_settings, to_environment

SETTINGS = Settings(data=Path("nowhere"), topic_edge="edge", topic_functions="functions")


@pytest.fixture(scope="module")
def broker() -> EmbeddedBroker:
    return EmbeddedBroker(SETTINGS)


def test_its_settings_tell_other_processes_where_it_is_and_change_nothing_else(broker: EmbeddedBroker) -> None:
    settings = broker.settings
    assert settings.broker.startswith("kafka://127.0.0.1:")
    assert SETTINGS.broker == EMBEDDED
    changed = {name for name in SETTINGS.__dataclass_fields__ if getattr(settings, name) != getattr(SETTINGS, name)}
    assert changed == {"broker", "log_id"}
    assert load_settings(to_environment(settings), Path("none.toml")) == settings


def test_its_log_is_another_one_at_each_start(broker: EmbeddedBroker) -> None:
    other = EmbeddedBroker(SETTINGS)
    assert other.settings.log_id != broker.settings.log_id
    assert other.settings.broker != broker.settings.broker
    assert other.settings.log_id.startswith("embedded-")


def test_both_topics_are_there_and_keep_what_is_produced(broker: EmbeddedBroker) -> None:
    (address,) = broker.settings.bootstrap
    producer = Producer({"bootstrap.servers": address})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        for topic in ("edge", "functions"):
            assert len(producer.list_topics(topic, timeout=10).topics[topic].partitions) > 0
            producer.produce(topic, b"of " + topic.encode(), partition=0)
        assert producer.flush(10) == 0
        for topic in ("edge", "functions"):
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = wait_for("the message", lambda: consumer.poll(0.1))
            assert (message.error(), message.offset(), message.value()) == (None, 0, b"of " + topic.encode())
    finally:
        consumer.close()
