"""The three endpoints have the fields that the specification gives them, and a wrong file is told by file and line."""

import uuid
from pathlib import Path

import pytest

from schema.errors import SavedQueryError
from schema.saved_queries import ENDPOINTS, Parameter, SavedQuery, load_saved_queries, parse_saved_query

PATH = Path("folder/x.sql")


def parsed(*lines: str) -> SavedQuery:
    return parse_saved_query(PATH, "\n".join(lines))


def word(name: str, words: str) -> Parameter:
    return Parameter(name, "word", True, tuple(words.split()))


def test_there_are_three_endpoints_each_under_its_name_and_its_id() -> None:
    queries = load_saved_queries()
    names = {"functions.invocation-stats", "logs.all", "usage.api-counts"}
    assert {query.name for query in queries.values()} == names
    assert len({query.id for query in queries.values()}) == 3
    assert queries.keys() == names | {str(queries[name].id) for name in names}
    assert all(queries[str(queries[name].id)] is queries[name] for name in names)


def test_ids_stay_what_clients_have_been_told() -> None:
    assert {query.name: str(query.id) for query in load_saved_queries().values()} == {
        "functions.invocation-stats": "8f2c1d64-7b0e-4c55-9a6f-2d1f0b6f3a71",
        "logs.all": "3a9d5e10-46c8-4e0b-8d53-6c1b7e92f0a4",
        "usage.api-counts": "c47b82f9-0d31-4f6a-b2a8-95e3d06c7b18",
    }


@pytest.mark.parametrize(
    ("name", "cache", "warming", "parameters"),
    [
        (
            "functions.invocation-stats",
            900,
            300,
            [
                Parameter("project", "string", True, ()),
                Parameter("function_id", "string", False, ()),
                Parameter("interval", "string", False, ()),
            ],
        ),
        (
            "logs.all",
            None,
            None,
            [
                Parameter("project", "string", True, ()),
                Parameter("project_tier", "string", False, ()),
                Parameter("iso_timestamp_start", "timestamp", False, ()),
                Parameter("iso_timestamp_end", "timestamp", False, ()),
            ],
        ),
        (
            "usage.api-counts",
            900,
            300,
            [
                Parameter("project", "pattern", True, ()),
                word("interval", "minutely hourly daily 15min 30min 1hr 3hr 1day 3day 7day"),
            ],
        ),
    ],
)
def test_an_endpoint_has_the_fields_of_the_specification(
    name: str, cache: int | None, warming: int | None, parameters: list[Parameter]
) -> None:
    query = load_saved_queries()[name]
    assert (query.language, query.max_rows, query.sandboxed) == ("sql", 1000, False)
    assert (query.cache_seconds, query.warming_seconds) == (cache, warming)
    assert list(query.parameters) == parameters
    assert query.sql == next(
        file.read_text() for file in ENDPOINTS.glob("*.sql") if f"name: {name}\n" in file.read_text()
    )


def test_what_a_file_leaves_out_has_a_default() -> None:
    query = parsed("-- name: my.own-query", "SELECT 1")
    assert query.id == uuid.uuid5(uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11"), "my.own-query")
    assert (query.max_rows, query.cache_seconds, query.warming_seconds) == (1000, None, None)
    assert (query.parameters, query.json_columns) == ((), frozenset())


def test_the_head_ends_at_the_first_line_that_is_no_field() -> None:
    query = parsed("-- name: a", "-- max_rows: 5", "", "-- cache_seconds: 9", "-- parameter: nonsense", "SELECT 1")
    assert (query.max_rows, query.cache_seconds, query.parameters) == (5, None, ())
    assert "SELECT 1" in query.sql


def test_a_parameter_has_name_type_and_what_is_allowed() -> None:
    query = parsed("-- name: a", "-- parameter: b word: x y-1", "-- parameter: c_2 pattern required", "-- json: m n")
    assert query.parameters == (Parameter("b", "word", False, ("x", "y-1")), Parameter("c_2", "pattern", True, ()))
    assert query.json_columns == {"m", "n"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_rows: many", "max_rows"),
        ("max_rows: 0", "1 or more"),
        ("max_rows: -5", "max_rows"),
        ("max_rows: none", "max_rows"),
        ("cache_seconds: 1.5", "cache_seconds"),
        ("cache_seconds: never", "none"),
        ("warming_seconds: 0", "warming_seconds"),
        ("language: lql", "language can only be sql"),
        ("sandboxed: true", "sandboxed can only be false"),
        ("id: 42", "UUID"),
        ("name: other", "name is given twice"),
        ("caching: 900", "caching is no field"),
        ("parameter: project", "NAME TYPE"),
        ("parameter: Project string", "NAME TYPE"),
        ("parameter: project number", "string, timestamp, pattern, word"),
        ("parameter: project string maybe", "NAME TYPE"),
        ("parameter: interval word", "words"),
        ("parameter: project string: a b", "words"),
        ("parameter: twice string", "twice is declared twice"),
    ],
)
def test_a_wrong_line_is_told_by_file_and_line(line: str, said: str) -> None:
    with pytest.raises(SavedQueryError) as error:
        parsed("-- name: a", "-- parameter: twice string", f"-- {line}", "-- json: m", "SELECT 1")
    assert str(error.value).startswith(f"{PATH}:3: ")
    assert said in str(error.value)


@pytest.mark.parametrize("head", ["SELECT 1", "-- name: Upper", "-- name: a b", "-- name: .a", "-- name: a..b", ""])
def test_a_file_without_a_good_name_is_refused(head: str) -> None:
    with pytest.raises(SavedQueryError, match=r"folder/x\.sql:1: name"):
        parsed(head)


def test_a_file_dropped_into_the_folder_is_an_endpoint(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: a\nSELECT 1")
    (tmp_path / "notes.txt").write_text("no endpoint")
    assert [query.name for query in load_saved_queries(tmp_path).values()] == ["a", "a"]
    assert load_saved_queries(tmp_path / "none") == {}


@pytest.mark.parametrize("other", ["-- name: a", "-- name: b\n-- id: 5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11"])
def test_two_files_may_not_share_a_name_or_an_id(tmp_path: Path, other: str) -> None:
    (tmp_path / "1.sql").write_text("-- name: a\n-- id: 5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11\nSELECT 1")
    (tmp_path / "2.sql").write_text(f"{other}\nSELECT 1")
    with pytest.raises(SavedQueryError, match=r"2\.sql.*another endpoint"):
        load_saved_queries(tmp_path)
