"""Topics filled for a benchmark, compressed with lz4 as producers do."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import Producer
from kafka_broker import KafkaBroker

from ops.bars import Bars

PARTITIONS = 4
_SECONDS = 120.0
_SHOWN_EVERY = 1000
NO_SETTINGS: Mapping[str, str | int | float] = MappingProxyType({})


def producer(kafka: KafkaBroker, settings: Mapping[str, str | int | float] = NO_SETTINGS) -> Producer:
    """A producer as applications set one up: lz4, batches, acknowledged by the broker."""
    return Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
            "log_level": 0,
            **settings,
        }
    )


def holding_producer(kafka: KafkaBroker, name: str) -> Producer:
    """A producer whose events nobody who reads what is committed sees, until `commit_transaction`."""
    holding = producer(kafka, {"transactional.id": name, "transaction.timeout.ms": 600_000})
    holding.init_transactions()
    holding.begin_transaction()
    return holding


def make_topic(kafka: KafkaBroker, name: str) -> str:
    """A topic that keeps what is in it however old; returns its name."""
    kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
    return name


def fill(to: Producer, topic: str, events: Iterable[tuple[bytes, bytes]], count: int) -> None:
    """Produce events to a topic and wait until the broker has them. Raises RuntimeError where one is refused."""
    refused: list[Any] = []
    with Bars() as bars:
        bars.watcher.step(f"producing to {topic}", count)
        for number, (key, value) in enumerate(events, 1):
            while True:
                try:
                    to.produce(topic, value, key, on_delivery=lambda error, _: refused.append(error) if error else None)
                    break
                except BufferError:
                    to.poll(0.1)
            if number % _SHOWN_EVERY == 0:
                to.poll(0)
                bars.watcher.done(_SHOWN_EVERY)
        left = to.flush(_SECONDS)
    if left or refused:
        raise RuntimeError(f"{topic}: {left} events not acknowledged, {len(refused)} refused: {refused[:1]}")
