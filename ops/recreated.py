"""The remedy for a topic that was deleted and created anew."""

import asyncio
from contextlib import closing

from schema.clock import system_clock
from schema.errors import FreshetError
from schema.settings import EMBEDDED, Settings
from schema.tables import migrate
from streams.store import Store
from streams.topics import prepare_topics


def accept(settings: Settings, topic: str) -> int:
    """Have a topic's present log read from its start, as a new log; returns how often that has been said of the topic.

    Raises FreshetError for a topic that is not Freshet's, LogError where no broker answers.
    """
    if topic not in (settings.topic_edge, settings.topic_functions):
        raise FreshetError(f"{topic} is not read; the topics are {settings.topic_edge} and {settings.topic_functions}")
    if settings.broker == EMBEDDED:
        raise FreshetError("the embedded broker's topics are new at each start, and known to be")
    cluster = asyncio.run(prepare_topics(settings))
    with closing(Store(migrate(settings.data), system_clock)) as store:
        return store.accept_recreation(cluster, topic)
