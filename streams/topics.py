"""The broker before the worker starts: which cluster it is, and that the topics are there."""

import logging

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from schema.connection import connection
from schema.errors import LogError
from schema.settings import Settings

log = logging.getLogger("freshet.topics")
_REPLICAS = 3  # or as many as there are brokers


async def prepare_topics(settings: Settings) -> str:
    """Create the topics that are missing; returns the log's identity: the setting's, or the cluster's id.

    Raises LogError where no broker answers, or a topic is missing and may not be created.
    """
    admin = AIOKafkaAdminClient(**connection(settings))
    try:
        await admin.start()
    except KafkaError as error:
        await admin.close()
        raise no_broker(settings, error) from error
    try:
        present = await admin.list_topics()
        cluster = await admin.describe_cluster()
        replicas = min(_REPLICAS, len(cluster["brokers"]))
        for topic in (settings.topic_edge, settings.topic_functions):
            if topic not in present:
                await _create(admin, NewTopic(topic, settings.topic_partitions, replicas))
        return settings.log_id or str(cluster["cluster_id"])
    finally:
        await admin.close()


def no_broker(settings: Settings, error: KafkaError) -> LogError:
    """The error for a broker that does not answer."""
    remedy = "start it, or set FRESHET_BROKER"
    if settings.broker_security != "PLAINTEXT":
        remedy += f"; with {settings.broker_security}, see FRESHET_BROKER_USER and FRESHET_BROKER_CA_FILE too"
    return LogError(f"no broker answers at {settings.broker} ({error}): {remedy}")


async def _create(admin: AIOKafkaAdminClient, topic: NewTopic) -> None:
    try:
        response = await admin.create_topics([topic])
        _, code, *_ = response.topic_errors[0]
        if code == TopicAlreadyExistsError.errno:  # another worker was faster
            return
        if code:
            raise for_code(code)
    except KafkaError as error:
        raise LogError(
            f"topic {topic.name} is missing and can't be created ({error!r}): create it with "
            f"{topic.num_partitions} partitions, or let this worker's user create topics"
        ) from error
    log.info("created topic %s with %d partitions", topic.name, topic.num_partitions)
