"""Every command in every document is run: here, on a real Kafka, or by the test that the table below names."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import click
import pytest
from documented_commands import ROOT, Block, Shell, blocks, same
from kafka_broker import KafkaBroker
from render_docs import DOCUMENTS as RENDERED
from service import free_port

from ops.cli import main
from ops.keys import add_key

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FROM_NOTHING = {ROOT / "README.md", ROOT / "docs" / "quickstart.md"}
"""These start what they need; for all others Freshet runs, with a key in $KEY and its address in $URL."""
THE_SAME = {"make run": "freshet up --demo"}
"""What the Makefile has for a command, behind its set-up of .venv."""
ELSEWHERE = {
    "make setup": ".ci/run: make -j2 setup",
    "make test": ".ci/run: make test",
    "make lint": ".ci/run: make lint",
    ".venv/bin/python -m pytest tests/test_schema_intervals.py": "Makefile: .venv/bin/python -m pytest",
    ".venv/bin/python -m pytest -k unknown_setting": "Makefile: .venv/bin/python -m pytest",
    ".venv/bench/bin/python -m bench ingest --events 1000000 --into build": (
        "tests/test_bench.py::test_ingest_measures_one_worker_two_and_invocations"
    ),
    "kafka-topics.sh --bootstrap-server localhost:9092 --alter --topic cloudflare.logs.prod --partitions 8": (
        "tests/test_end_to_end_replay.py::test_what_changes_during_a_replay_is_in_the_new_generation"
    ),
    "docker compose up -d --build --wait": (
        "tests/test_deploy.py::test_the_services_of_compose_work_together_and_their_health_checks_tell_it"
    ),
    "docker compose run --rm worker freshet keys add NAME": (
        "tests/test_wheel.py::test_an_installed_freshet_answers_with_all_that_belongs_to_it"
    ),
    "/opt/freshet/bin/pip install --require-hashes -r requirements/run.txt": (
        "Dockerfile: install --no-cache-dir --require-hashes -r requirements/run.txt"
    ),
    "/opt/freshet/bin/pip install --no-deps --no-build-isolation .": (
        "Dockerfile: install --no-cache-dir --no-deps --no-build-isolation ."
    ),
    "freshet up --broker kafka": (
        "tests/test_ops_kafka.py::test_after_everything_was_killed_rows_and_messages_are_still_there"
    ),
    "freshet accept-recreated cloudflare.logs.prod": (
        "tests/test_end_to_end_log.py::test_a_topic_created_anew_ends_the_worker_and_can_be_accepted"
    ),
}
"""Commands that are not run here, each with the test that does the same, or with the place that has CI run it."""


@pytest.fixture(scope="module")
def places(kafka: KafkaBroker) -> dict[str, str]:
    """What stands in this run for the addresses and topics of the documents."""
    listen, trial = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    name = uuid4().hex[:12]
    return {
        "localhost:9092": kafka.bootstrap,
        "127.0.0.1:4000": listen,
        "localhost:4000": listen,
        "127.0.0.1:4001": trial,
        "cloudflare.logs.prod": f"edge-{name}",
        "deno-relay-logs": f"functions-{name}",
        **THE_SAME,
    }


@pytest.fixture(scope="module")
def environment(places: dict[str, str]) -> dict[str, str]:
    return {
        "FRESHET_LISTEN": places["127.0.0.1:4000"],
        "FRESHET_TOPIC_EDGE": places["cloudflare.logs.prod"],
        "FRESHET_TOPIC_FUNCTIONS": places["deno-relay-logs"],
        "FRESHET_SESSION_SECONDS": "6",
        "FRESHET_QUERY_SECONDS": "2",  # for as long a replay leaves the old tables to answers under way
    }


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, places: dict[str, str], environment: dict[str, str]
) -> Iterator[dict[str, str]]:
    """The environment of a reader for whom Freshet runs, on a Kafka."""
    folder = tmp_path_factory.mktemp("running")
    data = folder / "data"
    listen = f"127.0.0.1:{free_port()}"
    there = environment | {"FRESHET_DATA": str(data), "FRESHET_LISTEN": listen, "FRESHET_GROUP": folder.name}
    there["FRESHET_BROKER"] = f"kafka://{places['localhost:9092']}"
    key = add_key(data, "reader", allow=["query", "ingest"])
    with Shell(folder, {}, **there) as shell:
        shell.run(Block(["freshet up"], ""))
        yield there | {"KEY": key, "URL": f"http://{listen}"}


def commands() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        for block in blocks(document.read_text()):
            for command in block.commands:
                yield document, command


def run_here(document: Path) -> list[Block]:
    """A document's blocks without the commands that are run elsewhere."""
    found = []
    for block in blocks(document.read_text()):
        left = [command for command in block.commands if command not in ELSEWHERE]
        if left:
            found.append(Block(left, block.shown))
    return found


HERE = [document for document in DOCUMENTS if document not in RENDERED and run_here(document)]


@pytest.mark.parametrize("document", HERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_do_what_it_says(
    document: Path, tmp_path: Path, places: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if document in FROM_NOTHING:
        environment, here = request.getfixturevalue("environment") | {"FRESHET_GROUP": tmp_path.name}, places
    else:
        environment = request.getfixturevalue("running")
        here = places | dict.fromkeys(["127.0.0.1:4000", "localhost:4000"], environment["FRESHET_LISTEN"])
    with Shell(tmp_path, here, **environment) as shell:
        for block in run_here(document):
            shell.run(block)


def test_what_is_run_elsewhere_is_in_a_document_and_there() -> None:
    documented = {command for _, command in commands()}
    assert set(ELSEWHERE) <= documented
    for place in ELSEWHERE.values():
        file, separator, words = re.split(r"(::|: )", place, maxsplit=1)
        assert (f"def {words}(" if separator == "::" else words) in (ROOT / file).read_text(), place


def test_what_stands_for_a_command_is_what_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target, command in THE_SAME.items():
        assert re.search(rf"^{target.removeprefix('make ')}: .*\n\t@\.venv/bin/{command}$", makefile, re.MULTILINE)


def test_every_freshet_command_and_option_in_a_document_is_there() -> None:
    """Those between backquotes, which no shell runs: their words and options at least."""
    found = 0
    for document in DOCUMENTS:
        for words in re.findall(r"`freshet ([^`]+)`", document.read_text()):
            command: click.Command = main
            rest = words.split()
            while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+,?", rest[0]):
                name = rest.pop(0).rstrip(",")
                assert name in command.commands, f"{document.name}: freshet {words}"
                command = command.commands[name]
            options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            for option in re.findall(r"--[a-z-]+", " ".join(rest)):
                assert option in options, f"{document.name}: freshet {words}"
            found += 1
    assert found > 40


def test_every_benchmark_that_a_document_names_is_there() -> None:
    benchmarks = set(re.findall(r'^        "([a-z-]+)": "', (ROOT / "bench" / "__main__.py").read_text(), re.MULTILINE))
    named = {name for document in DOCUMENTS for name in re.findall(r"python -m bench ([a-z-]+)", document.read_text())}
    assert {"replay", "http-ingest"} <= named <= benchmarks


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        (Block(["export A=1", "no-such-program $A"], ""), "no-such-program $A\nended with 127"),
        (Block(["echo $NOWHERE"], ""), "NOWHERE: unbound variable"),
        (Block(["false | cat"], ""), "ended with 1"),
        (Block(["echo one"], "two"), "did not print\ntwo\nbut\none"),
        (Block(["freshet no-such-command"], ""), "No such command"),
        (Block(["curl -s http://127.0.0.1:1/"], ""), "show what it answers"),
    ],
)
def test_what_fails_in_a_shell_or_prints_something_else_is_told(tmp_path: Path, block: Block, complaint: str) -> None:
    with Shell(tmp_path, {}) as shell, pytest.raises(AssertionError) as error:
        shell.run(block)
    assert complaint in str(error.value)


def test_a_shell_keeps_what_was_exported_and_commands_go_on_over_lines(tmp_path: Path) -> None:
    first, second = blocks(
        "```sh\nexport A='1\n2'  # a note\n```\n\n```sh\nprintf %s \\\n  \"$A\"\n```\n\n```text\n1 …\n```\n"
    )
    assert (len(first.commands), len(second.commands)) == (1, 1)
    with Shell(tmp_path, {}) as shell:
        shell.run(first)
        shell.run(second)


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ('{"a": [\n  {"b": 1}\n]}\n', '{"a":[{"b":1}]}', True),
        ('{"a": "fr_…"}', '{"a":"fr_123"}', True),
        ('{"a": "fr_…"}', '{"a":"x"}', False),
        ("rejects: none", "rejects: none\nmore", False),
    ],
)
def test_shown_and_printed_are_the_same_but_for_white_space_and_dots(shown: str, printed: str, equal: bool) -> None:
    assert same(shown, printed) is equal
