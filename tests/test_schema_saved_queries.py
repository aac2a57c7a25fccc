"""The three endpoints have the fields that the specification gives them, and a wrong file is told by file and line."""

import uuid
from pathlib import Path

import pytest

from schema.errors import SavedQueryError
from schema.saved_queries import ENDPOINTS, Column, Parameter, SavedQuery, load_saved_queries, parse_saved_query

PATH = Path("folder/x.sql")


def parsed(*lines: str) -> SavedQuery:
    return parse_saved_query(PATH, "\n".join(lines))


WORDS = ("minutely", "hourly", "daily", "15min", "30min", "1hr", "3hr", "1day", "3day", "7day")


def test_every_endpoint_is_there_under_its_name_and_its_id() -> None:
    queries = load_saved_queries()
    names = {path.stem for path in ENDPOINTS.glob("*.sql")}
    assert names > {"functions.invocation-stats", "logs.all", "usage.api-counts"}
    assert {query.name for query in queries.values()} == names
    assert len({query.id for query in queries.values()}) == len(names)
    assert queries.keys() == names | {str(queries[name].id) for name in names}
    assert all(queries[str(queries[name].id)] is queries[name] for name in names)


def test_ids_stay_what_clients_have_been_told() -> None:
    assert {query.name: str(query.id) for query in load_saved_queries().values()} == {
        "functions.invocation-stats": "8f2c1d64-7b0e-4c55-9a6f-2d1f0b6f3a71",
        "logs.all": "3a9d5e10-46c8-4e0b-8d53-6c1b7e92f0a4",
        "usage.api-counts": "c47b82f9-0d31-4f6a-b2a8-95e3d06c7b18",
        "functions.statistics": "49ae78d3-316a-5bef-8edd-37e67b5a0e1e",
        "logs.search": "bd39bde6-f8d6-590a-9cbf-d325a1d15454",
    }


@pytest.mark.parametrize(
    ("name", "cache", "warming", "parameters"),
    [
        (
            "functions.invocation-stats",
            900,
            300,
            [
                ("project", "string", True, ()),
                ("function_id", "string", False, ()),
                ("interval", "string", False, ()),
            ],
        ),
        (
            "logs.all",
            None,
            None,
            [
                ("project", "string", True, ()),
                ("project_tier", "string", False, ()),
                ("iso_timestamp_start", "timestamp", False, ()),
                ("iso_timestamp_end", "timestamp", False, ()),
            ],
        ),
        (
            "usage.api-counts",
            900,
            300,
            [
                ("project", "pattern", True, ()),
                ("interval", "word", True, WORDS),
            ],
        ),
    ],
)
def test_an_endpoint_has_the_fields_of_the_specification(
    name: str, cache: int | None, warming: int | None, parameters: list[tuple[object, ...]]
) -> None:
    query = load_saved_queries()[name]
    assert (query.language, query.max_rows, query.sandboxed) == ("sql", 1000, False)
    assert (query.cache_seconds, query.warming_seconds) == (cache, warming)
    assert [(one.name, one.type, one.required, one.words) for one in query.parameters] == parameters
    assert not any(one.default for one in query.parameters)
    assert query.sql == next(
        file.read_text() for file in ENDPOINTS.glob("*.sql") if f"name: {name}\n" in file.read_text()
    )


def test_what_a_file_leaves_out_has_a_default() -> None:
    query = parsed("-- name: my.own-query", "SELECT 1")
    assert query.id == uuid.uuid5(uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11"), "my.own-query")
    assert (query.max_rows, query.cache_seconds, query.warming_seconds) == (1000, None, None)
    assert (query.about, query.parameters, query.columns, query.json_columns, query.next_column) == (
        "",
        (),
        (),
        (),
        None,
    )


def test_the_head_ends_at_the_first_line_that_is_no_field() -> None:
    query = parsed("-- name: a", "-- max_rows: 5", "", "-- cache_seconds: 9", "-- parameter: nonsense", "SELECT 1")
    assert (query.max_rows, query.cache_seconds, query.parameters) == (5, None, ())
    assert "SELECT 1" in query.sql


@pytest.mark.parametrize(
    ("written", "parameter"),
    [
        ("b word: x y-1", Parameter("b", "word", False, ("x", "y-1"))),
        ("b word required: x -- One word.", Parameter("b", "word", True, ("x",), about="One word.")),
        ("b word: x y = y", Parameter("b", "word", False, ("x", "y"), default="y")),
        ("b word: x y = y -- A = b -- c", Parameter("b", "word", False, ("x", "y"), default="y", about="A = b -- c")),
        ("c_2 pattern required", Parameter("c_2", "pattern", True)),
        ("c timestamp -- A time.", Parameter("c", "timestamp", False, about="A time.")),
        ("d string = none -- x: y", Parameter("d", "string", False, default="none", about="x: y")),
        ("n integer", Parameter("n", "integer", False, (), -(10**18), 10**18)),
        ("n integer required: -5..7", Parameter("n", "integer", True, (), -5, 7)),
        ("n integer: 1..1 = 1", Parameter("n", "integer", False, (), 1, 1, "1")),
        ("n cursor", Parameter("n", "cursor", False)),
    ],
)
def test_a_parameter_has_name_type_and_what_is_allowed(written: str, parameter: Parameter) -> None:
    assert parsed("-- name: a", f"-- parameter: {written}").parameters == (parameter,)


def test_a_column_has_name_type_and_may_be_null() -> None:
    lines = ("a integer", "b_2 number or null -- In ms.", "C json", "d string -- x")
    query = parsed("-- name: a", *(f"-- column: {line}" for line in lines), "-- next: e", "-- about: It says so.")
    assert query.columns == (
        Column("a", "integer", False),
        Column("b_2", "number", True, "In ms."),
        Column("C", "json", False),
        Column("d", "string", False, "x"),
    )
    assert (query.json_columns, query.next_column, query.about) == (("C",), "e", "It says so.")


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
        ("parameter: project number", "string, integer, timestamp, pattern, cursor, word"),
        ("parameter: now integer", "now is Freshet's own"),
        ("parameter: api_key string", "api_key is Freshet's own"),
        ("parameter: n integer: 5", "LEAST..MOST"),
        ("parameter: n integer: 5..4", "LEAST..MOST"),
        ("parameter: n integer: a..b", "LEAST..MOST"),
        ("parameter: n integer: 1..5 = 6", "no integer within the range"),
        ("parameter: n integer = many", "no integer within the range"),
        ("parameter: w word: a b = c", "not one of the words"),
        ("parameter: p string required = x", "default"),
        ("parameter: t timestamp = now", "default"),
        ("parameter: p string =", "NAME TYPE"),
        ("column: a text", "string, integer, number, json"),
        ("column: a", "NAME TYPE"),
        ("column: a string null", "NAME TYPE"),
        ("column: m integer", "column m is declared twice"),
        ("parameter: project string maybe", "NAME TYPE"),
        ("parameter: interval word", "words"),
        ("parameter: project string: a b", "words"),
        ("parameter: twice string", "twice is declared twice"),
    ],
)
def test_a_wrong_line_is_told_by_file_and_line(line: str, said: str) -> None:
    with pytest.raises(SavedQueryError) as error:
        parsed("-- name: a", "-- parameter: twice string", "-- column: m json", f"-- {line}", "SELECT 1")
    assert str(error.value).startswith(f"{PATH}:4: ")
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
    both = load_saved_queries(ENDPOINTS, tmp_path)
    assert {*both} == {*load_saved_queries()} | {"a", str(both["a"].id)}


@pytest.mark.parametrize(
    "head", ["-- name: logs.all", "-- name: mine\n-- id: 3a9d5e10-46c8-4e0b-8d53-6c1b7e92f0a4", "-- name: x"]
)
def test_a_file_can_not_take_the_place_of_an_endpoint_of_freshet(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.sql").write_text("-- name: x\nSELECT 1")
    (tmp_path / "b.sql").write_text(f"{head}\nSELECT 1")
    with pytest.raises(
        SavedQueryError, match=r"b\.sql: .* is the name or id of another endpoint already, that of .*sql"
    ):
        load_saved_queries(ENDPOINTS, tmp_path)


def test_a_file_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.sql").mkdir()
    with pytest.raises(SavedQueryError, match=r"a\.sql: can't be read: Is a directory"):
        load_saved_queries(tmp_path)
    (tmp_path / "a.sql").rmdir()
    (tmp_path / "a.sql").write_bytes(b"-- name: \xff")
    with pytest.raises(SavedQueryError, match=r"a\.sql: not UTF-8 at byte 9"):
        load_saved_queries(tmp_path)


@pytest.mark.parametrize("other", ["-- name: a", "-- name: b\n-- id: 5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11"])
def test_two_files_may_not_share_a_name_or_an_id(tmp_path: Path, other: str) -> None:
    (tmp_path / "1.sql").write_text("-- name: a\n-- id: 5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11\nSELECT 1")
    (tmp_path / "2.sql").write_text(f"{other}\nSELECT 1")
    with pytest.raises(SavedQueryError, match=r"2\.sql.*another endpoint"):
        load_saved_queries(tmp_path)
