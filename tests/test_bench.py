"""The benchmarks run from end to end, in their smallest form and without the peers, so that they can't rot."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from bench.cases import CASES, OWN_CASES
from bench.drawing import draw
from bench.figures import Chart, Result, Table, load, percentile, save
from bench.hammer import _own
from bench.load import REFS, edge_events, edge_requests, function_events
from bench.query import PATTERNS
from bench.report import PAGE
from bench.stores import _TRAINING_SEED, StoredRecord
from schema.decoding import decode_edge, decode_functions
from schema.events import Source

ROOT = Path(__file__).parents[1]
START = 1_760_000_000_000_000


def run_bench(into: Path, name: str, events: int) -> Result:
    """The result of one benchmark, which also has to stand in the page."""
    command = [sys.executable, "-m", "bench", name, "--events", str(events), "--rounds", "1", "--short", "--no-peers"]
    run = subprocess.run([*command, "--into", str(into)], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (result,) = load(name, into / "performance")
    page = (into / "performance.md").read_text()
    for table in result.tables:
        assert table.title in run.stdout
        assert f"**{table.title}**" in page
    return result


def test_ingest_measures_one_worker_two_and_invocations(tmp_path: Path) -> None:
    (table,) = run_bench(tmp_path, "ingest", 4000).tables  # CPU time is told in steps of 10 ms
    assert [row[0] for row in table.rows] == [
        *("Freshet, one worker", "Freshet, two workers", "Freshet, one worker, function invocations"),
    ]
    for _, rate, _, cpu, _, memory in table.rows:
        assert all(isinstance(cell, int | float) and cell > 0 for cell in (rate, cpu, memory))
    ElementTree.parse(tmp_path / "performance" / "ingest.svg")


def test_http_ingest_measures_events_and_the_queries_beside_them(tmp_path: Path) -> None:
    (table,) = run_bench(tmp_path, "http-ingest", 400).tables
    assert [[cell is not None for cell in row] for row in table.rows] == [
        [True, False, False, True, True],
        [True, True, True, False, False],
        *[[True, True, False, True, True]] * 2,
    ]


def test_query_asks_every_case_and_pattern(tmp_path: Path) -> None:
    cases, patterns = run_bench(tmp_path, "query", 600).tables
    assert len(cases.rows) == len(CASES) + len(OWN_CASES)
    assert [row[0] for row in patterns.rows] == list(PATTERNS)
    assert all(isinstance(cell, float) and cell > 0 for row in cases.rows for cell in row[1:3])


def test_the_load_is_the_same_each_time_and_as_hosted_projects_send_it() -> None:
    events = list(edge_events(2000, START))
    assert events == list(edge_events(2000, START))
    sizes = [len(value) for _, value in events]
    assert 2300 < sum(sizes) / len(sizes) < 2700
    unique = {event.url for event in edge_requests(2000, START) if event.search}
    assert 0.25 < len(unique) / 2000 < 0.35
    records = [StoredRecord(number, 0, value) for number, (_, value) in enumerate(events)]
    decoded = decode_edge(Source("log", "edge", 0), records)
    assert not decoded.rejects
    assert [event.url for event in decoded.events] == [event.url for event in edge_requests(2000, START)]
    assert {event.project for event in decoded.events} <= set(REFS)


def test_a_dictionary_is_trained_on_events_that_are_not_measured() -> None:
    trained = {event.token for event in edge_requests(50, START, seed=_TRAINING_SEED)}
    for seed in range(3):
        assert trained.isdisjoint(event.token for event in edge_requests(50, START, seed=seed))


def test_the_client_asks_for_its_urls_in_turn_so_that_few_share_an_answer() -> None:
    asked: Counter[bytes] = Counter()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked[(await reader.readuntil(b"\r\n\r\n")).split()[1]] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except asyncio.IncompleteReadError:
            writer.close()

    async def ask() -> dict[str, float]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await _own([f"http://127.0.0.1:{port}/?n={number}" for number in range(4)], "key", True, 0.05)

    assert asyncio.run(ask())["failures"] == 0
    assert set(asked) == {b"/?n=%d" % number for number in range(4)}
    assert max(asked.values()) - min(asked.values()) <= 1


def test_every_function_event_is_an_invocation_with_a_time() -> None:
    records = [StoredRecord(number, 0, value) for number, (_, value) in enumerate(function_events(500, START))]
    decoded = decode_functions(Source("log", "functions", 0), records)
    assert len(decoded.events) == 500
    assert all(event.execution_time is not None and event.function for event in decoded.events)


def test_results_of_one_subject_stand_beside_each_other_by_variant_and_short_forms_by_themselves(
    tmp_path: Path,
) -> None:
    def result(variant: str, short: bool, cell: int) -> Result:
        return Result("query", [Table("t", ["a"], [[cell]])], variant=variant, short=short)

    for new in (result("1 M", False, 1), result("10 M", False, 2), result("1 M", False, 3)):
        save(new, tmp_path)
    assert [old.tables[0].rows for old in load("query", tmp_path)] == [[[2]], [[3]]]
    save(result("1 M", True, 4), tmp_path)
    assert [old.short for old in load("query", tmp_path)] == [True]


@pytest.mark.parametrize(
    "chart",
    [
        Chart("c", "Bars & <more>", "ms", {"a": [1.0, None], "b": [300.0, 0.02]}, ["x", "y"], logarithmic=True),
        Chart("c", "Lines", "MB", {"worker": [1.0, 2.0, 3.0]}, [], x=[0.0, 1.0, 2.0]),
    ],
    ids=lambda chart: chart.title,
)
def test_a_chart_is_well_formed_and_holds_its_names(chart: Chart) -> None:
    texts = [element.text for element in ElementTree.fromstring(draw(chart)).iter() if element.text]
    assert any(text.startswith(chart.title) for text in texts)
    assert set(chart.labels) <= set(texts)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile(range(1, 101), 99) == 99
    assert percentile([5], 99) == 5
    assert percentile([1, 2, 3, 4], 50) == 2


def test_the_page_has_a_place_for_every_benchmark_and_its_results_can_be_read() -> None:
    page = PAGE.read_text()
    for file in (PAGE.parent / "performance").glob("*.json"):
        assert msgspec.json.decode(file.read_bytes(), type=list[Result])
    subjects = (
        "profile",
        "ingest",
        "http-ingest",
        "freshness",
        "query",
        "http",
        "disk",
        "memory",
        "patterns",
        "replay",
    )
    for subject in [*subjects, "replay"]:
        assert f"<!-- {subject} -->" in page
        assert f"<!-- /{subject} -->" in page
