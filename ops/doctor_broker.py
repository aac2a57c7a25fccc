"""What `freshet doctor` looks at in Kafka: reached as the settings say, topics, retention, and the clock."""

import asyncio
from collections.abc import Iterator
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from ops.findings import BAD, DOUBTFUL, GOOD, Finding
from schema.clock import system_clock
from schema.connection import connection
from schema.errors import FreshetError
from schema.settings import EMBEDDED, Settings
from schema.timestamps import SECOND
from streams.rebuild import LogReader
from streams.topics import no_broker

_HOUR = 3600.0
_SHORT = 24 * _HOUR  # seconds of retention
_AHEAD = 60.0  # seconds that the newest record may be ahead of this machine's clock
_MILLISECOND = 1000  # µs


def check_broker(settings: Settings) -> Iterator[Finding]:
    """The broker, each topic, the clock; the broker alone where it does not answer."""
    if settings.broker == EMBEDDED:
        yield Finding(
            DOUBTFUL,
            "broker",
            "the embedded one, which lives inside `freshet up` and forgets all when that ends",
            "for more than trying out, set FRESHET_BROKER to kafka://host:port",
        )
        return
    try:
        findings = asyncio.run(_ask(settings))
    except (FreshetError, OSError) as error:
        yield Finding(BAD, "broker", str(error), "correct the settings that begin with FRESHET_BROKER")
    except KafkaError as error:
        text, _, remedy = str(no_broker(settings, error)).rpartition(": ")
        yield Finding(BAD, "broker", text, remedy)
    else:
        yield from findings


async def _ask(settings: Settings) -> list[Finding]:
    admin = AIOKafkaAdminClient(**connection(settings))
    try:
        await admin.start()
        cluster = await admin.describe_cluster()
        how = f"{settings.broker} answers ({settings.broker_security}, {len(cluster['brokers'])} brokers)"
        findings = [Finding(GOOD, "broker", how)]
        present = await admin.list_topics()
        there = []
        for topic in (settings.topic_edge, settings.topic_functions):
            if topic not in present:
                remedy = "start a worker, which creates it, or create it and let this user read it"
                findings.append(Finding(BAD, "topic", f"{topic} is missing", remedy))
                continue
            there.append(topic)
            findings.append(_topic(topic, await _partitions(admin, topic), await _configuration(admin, topic)))
    finally:
        await admin.close()
    if there:
        findings.append(await _clock(settings, there))
    return findings


async def _partitions(admin: AIOKafkaAdminClient, topic: str) -> int:
    (described,) = await admin.describe_topics([topic])
    return len(described["partitions"])


async def _configuration(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    """A topic's settings by name; none where this user may not ask."""
    responses = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    resources: list[Any] = [resource for response in responses for resource in response.resources]
    return {entry[0]: entry[1] for code, _, _, _, entries in resources if not code for entry in entries}


def _topic(topic: str, partitions: int, configuration: dict[str, str]) -> Finding:
    text = f"{topic} has {partitions} partition{'s' * (partitions != 1)}"
    if "compact" in configuration.get("cleanup.policy", ""):
        remedy = f"set cleanup.policy=delete on {topic}"
        return Finding(BAD, "topic", f"{text}, but is compacted: records of one key replace each other", remedy)
    if "retention.ms" not in configuration:
        return Finding(DOUBTFUL, "topic", f"{text}; how long it keeps them this user may not ask", "")
    seconds = int(configuration["retention.ms"]) / 1000
    size = int(configuration.get("retention.bytes", -1))
    kept = "for ever" if seconds < 0 else f"{seconds / _HOUR:,.1f} h"
    text += f", kept {kept}" + (f" or {size / 2**30:,.1f} GiB a partition" if size >= 0 else "")
    if 0 <= seconds < _SHORT:
        remedy = f"raise retention.ms of {topic}: workers that stand still for longer lose what was deleted meanwhile"
        return Finding(DOUBTFUL, "topic", text, remedy)
    return Finding(GOOD, "topic", text)


async def _clock(settings: Settings, topics: list[str]) -> Finding:
    """This machine's clock against the newest records; a log without any says nothing."""
    async with LogReader(settings) as reader:
        newest = await reader.newest([tp for topic in topics for tp in await reader.partitions(topic)])
    if not newest:
        return Finding(GOOD, "clock", "no record to hold it against yet")
    tp, milliseconds = max(newest.items(), key=lambda item: item[1])
    ahead = (milliseconds * _MILLISECOND - system_clock()) / SECOND
    if ahead > _AHEAD:
        text = f"the newest record, in {tp.topic}[{tp.partition}], is {ahead:,.0f} s ahead of this machine"
        return Finding(BAD, "clock", text, "set the clocks of this machine and of the producers (NTP)")
    return Finding(GOOD, "clock", f"the newest record is {max(0.0, -ahead):,.0f} s old")
