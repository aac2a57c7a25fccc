"""The embedded broker: librdkafka's mock cluster, for trying Freshet out without a Kafka (design section 8).

It is in memory, keeps 5 MB a partition, and its log is new at each start.
"""

import time
import uuid
from dataclasses import replace

from confluent_kafka import KafkaException, Producer

from schema.errors import LogError
from schema.settings import Settings

_READY_SECONDS = 10.0


class EmbeddedBroker:
    """A broker that lives as long as this object, in this process."""

    def __init__(self, settings: Settings) -> None:
        self._cluster = Producer(
            {
                "bootstrap.servers": "embedded:1",
                "test.mock.num.brokers": 1,
                "allow.auto.create.topics": True,
                "log_level": 3,
            }
        )
        address = self._address()
        for topic in (settings.topic_edge, settings.topic_functions):
            self._create(topic)
        self.settings = replace(settings, broker=f"kafka://{address}", log_id=f"embedded-{uuid.uuid4()}")
        """The settings with which the other processes find this broker and know its log from any other."""

    def _address(self) -> str:
        try:
            brokers = list(self._cluster.list_topics(timeout=_READY_SECONDS).brokers.values())
        except KafkaException as error:
            raise LogError(f"the embedded broker does not answer: {error}") from error
        return f"{brokers[0].host}:{brokers[0].port}"

    def _create(self, topic: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            found = self._cluster.list_topics(topic, timeout=_READY_SECONDS).topics[topic]
            if found.error is None and found.partitions:
                return
            time.sleep(0.05)
        raise LogError(f"the embedded broker does not create topic {topic}")
