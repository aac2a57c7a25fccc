"""`freshet import` on a real Kafka: every line once, whatever is killed when; bad lines told by number."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from confluent_kafka import Consumer, TopicPartition
from conftest import Topics
from kafka_broker import KafkaBroker
from service import wait_for

from ops.exports import Export
from ops.import_files import Importer, Tally
from schema.decoding import decode_edge
from schema.errors import FreshetError
from schema.messages import LARGEST_MESSAGE
from schema.settings import Settings


def pack_in_two(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: pack(data[: len(data) // 2]) + pack(data[len(data) // 2 :])


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip in two members": pack_in_two(gzip.compress),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd in two frames": pack_in_two(zstandard.ZstdCompressor().compress),
}


def start(kafka: KafkaBroker, topics: Topics, *arguments: Any) -> subprocess.Popen[str]:
    environment = {"FRESHET_BROKER": f"kafka://{kafka.bootstrap}", "FRESHET_TOPIC_EDGE": topics.edge}
    program = ["env", "--default-signal=INT", sys.executable]  # a shell's background jobs ignore it
    return subprocess.Popen(
        [*program, "-m", "ops", "import", *map(str, arguments)],
        env={**os.environ, **environment, "FRESHET_TOPIC_FUNCTIONS": topics.functions},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(kafka: KafkaBroker, topics: Topics, *arguments: Any) -> tuple[int, str, str]:
    process = start(kafka, topics, *arguments)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def export(count: int, start: int = 0, size: int = 100) -> bytes:
    entries = [{"id": str(start + number), "project": "p", "event_message": "x" * size} for number in range(count)]
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def ids(kafka: KafkaBroker, topic: str) -> Counter[str]:
    return Counter(json.loads(record.value or b"")["id"] for record in kafka.read_all(topic))


@pytest.mark.parametrize("form", PACKED)
def test_an_export_is_imported_once_however_often_it_is_asked_for(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "export"
    file.write_bytes(PACKED[form](export(12_000)))
    code, output, errors = run(kafka, topics, file)
    assert (code, errors) == (0, "")
    assert re.search(rf"12,000 events imported into {topics.edge} \([0-9,]+/s\), 0 bad lines", output)
    assert ids(kafka, topics.edge) == Counter(map(str, range(12_000)))
    code, output, _ = run(kafka, topics, file)
    assert code == 0
    assert "going on behind line 12,000" in output
    assert "0 events imported" in output
    assert len(kafka.read_all(topics.edge)) == 12_000
    assert run(kafka, topics, "--again", file)[0] == 0
    assert set(ids(kafka, topics.edge).values()) == {2}


def test_a_file_that_has_grown_goes_on_where_it_ended_and_another_of_its_name_does_not(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    file = tmp_path / "export"
    file.write_bytes(export(10))
    run(kafka, topics, file)
    with file.open("ab") as end:
        end.write(export(5, start=10) + b"bad\n")
    code, _, errors = run(kafka, topics, file)
    assert (code, errors) == (3, f"{file}:16: not_json: it is not JSON\n")
    assert ids(kafka, topics.edge) == Counter(map(str, range(15)))
    file.write_bytes(export(3))
    code, _, errors = run(kafka, topics, file)
    assert code == 1
    assert "it is another file by now" in errors
    file.write_bytes(export(3, start=100))
    assert run(kafka, topics, file)[0] == 0
    assert len(ids(kafka, topics.edge)) == 18


def test_a_last_line_without_an_end_is_not_doubled_when_its_file_grows_and_is_read_anew_when_it_grows_itself(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    file = tmp_path / "export"
    grown = (export(2)[:-1], b"\n" + export(2, start=2)[:-1], b"", b"\n" + export(1, start=4)[:-3])
    for number, added in enumerate(grown):
        with file.open("ab") as end:
            end.write(added)
        code, _, errors = run(kafka, topics, file)
        assert (code, errors) == ((0, "") if number < 3 else (3, f"{file}:5: not_json: it is not JSON\n"))
    assert ids(kafka, topics.edge) == Counter(map(str, range(4)))
    for added, code in ((b'"}', 0), (b"\n", 0)):
        with file.open("ab") as end:
            end.write(added)
        assert run(kafka, topics, file)[0] == code
    assert ids(kafka, topics.edge) == Counter(map(str, range(5)))


def test_bad_lines_are_told_by_number_and_the_others_are_imported(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    good = b'{"id":"good","project":"p"}'
    bad = {
        2: (b"no json", "not_json"),
        4: (b"[1]", "not_object"),
        5: (b"17", "not_object"),
        6: (b'{"timestamp":true}', "bad_timestamp"),
        8: (b'{"a":"\xff"}', "not_utf8"),
        9: (b'{"a":' + b"[" * 80 + b"]" * 80 + b"}", "too_deep"),
        10: (b'{"a":"' + b"x" * 2_000_000 + b'"}', "too_large"),
        11: (b'{"a":"' + b"x" * (LARGEST_MESSAGE + 200_000) + b'"}', "too_large"),
    }
    file = tmp_path / "export"
    file.write_bytes(b"\n".join(bad[line][0] if line in bad else b"" if line == 3 else good for line in range(1, 13)))
    code, output, errors = run(kafka, topics, file)
    assert code == 3
    assert "3 events imported" in output
    assert "8 bad lines" in output
    told = [re.fullmatch(rf"{re.escape(str(file))}:(\d+): (\w+): .+", line) for line in errors.splitlines()]
    assert {int(line[1]): line[2] for line in told if line} == {line: reason for line, (_, reason) in bad.items()}
    assert ids(kafka, topics.edge) == {"good": 3}


def test_invocations_go_into_their_topic_and_absent_ids_are_given(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    file = tmp_path / "export"
    file.write_bytes(b'{"metadata":{"project_ref":"p"}}\n{"metadata":{}}')
    assert run(kafka, topics, "--functions", file)[0] == 3
    assert list(ids(kafka, topics.functions).values()) == [1]
    assert kafka.read_all(topics.edge) == []


def test_the_steps_of_its_progress_make_up_the_file(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    file = tmp_path / "export"
    steps: list[int] = []
    file.write_bytes(export(12_000))
    settings = Settings(broker=f"kafka://{kafka.bootstrap}", topic_edge=topics.edge)
    with Importer(settings, topics.edge, file) as importer:
        importer.run(decode_edge, 1_000_000, False, Tally(), steps.append)
    assert len(steps) == 3
    assert sum(steps) == file.stat().st_size >> 10


def written(kafka: KafkaBroker, topic: str) -> int:
    """How many offsets a topic's log has, those of open transactions too."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "written", "isolation.level": "read_uncommitted"}
    client = Consumer(settings)
    try:
        partitions = client.list_topics(topic, timeout=30).topics[topic].partitions
        return sum(client.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in partitions)
    finally:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_import_that_is_killed_loses_and_doubles_nothing(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path, number: signal.Signals
) -> None:
    file, count = tmp_path / "export", 60_000
    file.write_bytes(export(count, size=1000))
    kills = 0
    for delay in (0.05, 0.2, 0.4, 0.1, 0.3):
        process = start(kafka, topics, file)
        before = written(kafka, topics.edge)
        wait_for("lines to arrive", lambda: process.poll() is not None or written(kafka, topics.edge) > before)  # noqa: B023
        time.sleep(delay)
        process.send_signal(number)
        process.communicate(timeout=60)
        kills += process.returncode not in (0,)
    assert kills >= 2
    assert run(kafka, topics, file)[0] == 0
    assert ids(kafka, topics.edge) == Counter(map(str, range(count)))


def test_a_broker_that_dies_stops_an_import_that_goes_on_afterwards(topics: Topics, tmp_path: Path) -> None:
    file, count = tmp_path / "export", 100_000
    file.write_bytes(export(count, size=500))
    with KafkaBroker(tmp_path / "kafka") as kafka:
        kafka.create_topic(topics.edge, 3, {"retention.ms": "-1"})
        process = start(kafka, topics, file)
        wait_for("lines to arrive", lambda: kafka.read_all(topics.edge))
        kafka.kill()
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "the same command goes on where this stopped" in errors
        kafka.start()
        assert run(kafka, topics, file)[0] == 0
        assert ids(kafka, topics.edge) == Counter(map(str, range(count)))


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_packed_file_that_breaks_off_or_is_damaged_is_told(tmp_path: Path, form: str) -> None:
    packed = PACKED[form](os.urandom(300_000).hex().encode())
    for number, data in enumerate((packed[:-9], packed[: len(packed) // 2], packed[:70_000] + packed[70_100:])):
        file = tmp_path / f"{number}"
        file.write_bytes(data)
        with Export(file) as lines, pytest.raises(FreshetError, match=str(file)):
            list(lines.lines())


def test_lines_are_numbered_and_placed_however_they_are_cut_into_pieces(tmp_path: Path) -> None:
    texts = [b"", b"a", b"x" * 65_535, b"", b"y" * 200_000, b"z" * 65_536, b"", b"end"]
    for end in (b"", b"\n"):
        file = tmp_path / "lines"
        file.write_bytes(b"\n".join(texts) + end)
        with Export(file) as lines:
            found = list(lines.lines())
        assert [line.text for line in found] == texts
        assert [line.number for line in found] == list(range(1, 9))
        assert found[-1].end == sum(map(len, texts)) + len(texts)
        assert [line.end for line in found[:3]] == [1, 3, 65_539]


def test_what_can_not_be_imported_is_told_in_a_line(kafka: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_bytes(b"")
    assert run(kafka, topics, tmp_path / "nowhere")[0] == 2
    code, _, errors = run(kafka, Topics("no-such-topic", topics.functions), file)
    assert (code, errors.count("\n")) == (1, 1)
    assert "start a worker" in errors
    assert run(kafka, topics, file)[0] == 0
