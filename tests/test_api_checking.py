"""What is wrong with a saved query is told when the API starts, with file and line; and a query can only read."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from test_api_reader import ask, query_of, reading

from api import checking
from api.bodies import MetadataShape, body, row_count
from api.checking import check_saved_queries
from api.functions import HARMLESS
from api.reader import Reader
from schema.errors import SavedQueryError
from schema.saved_queries import load_saved_queries, parse_saved_query
from schema.tables import migrate

HEAD = "-- name: mine\n-- parameter: project string required\n\n"
ENDLESS = (
    "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, @project FROM n",
    "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i), @project FROM n",
)
GOOD = "SELECT sum(count) AS count\nFROM invocations\nWHERE project = @project AND bucket <= @now"


def check(text: str) -> None:
    check_saved_queries([parse_saved_query(Path("own/mine.sql"), text)])


def told(text: str) -> str:
    """The error of a file, without its name."""
    with pytest.raises(SavedQueryError) as error:
        check(text)
    message = str(error.value)
    assert message.startswith("own/mine.sql:")
    return message.removeprefix("own/mine.sql:")


def test_the_endpoints_of_freshet_are_good() -> None:
    check_saved_queries(set(load_saved_queries().values()))


@pytest.mark.parametrize(
    "sql",
    [
        GOOD,
        f"{GOOD};\n-- that was it; really\n/* it was; */ ;\n",
        "-- a word first; it says @nothing\nWITH n(i) AS (VALUES (1)) SELECT i, @project FROM n",
        "SELECT id, @project AS p FROM recent_entries(@project, 0, NULL, 5)",
        "SELECT value, @project FROM json_each('[1]')",
        "VALUES (@project)",
        "SELECT json_extract(@project, '$.a') AS fails_with_this_value",
        "SELECT merged_histogram(histogram) FROM invocations WHERE project = @project",
        "SELECT datetime_text(9e300), @project AS fails_at_this_time",
        "SELECT bucket, @project FROM request_counts(1, 0, 60)",
    ],
)
def test_a_good_query_is_taken(sql: str) -> None:
    check(HEAD + sql)


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_query_that_would_never_end_does_not_hold_up_the_start(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_SECONDS", 0.1)
    begun = time.monotonic()
    check(HEAD + sql)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("sql", "line", "said"),
    [
        ("SELEC 1", 4, 'near "SELEC": syntax error'),
        ("SELECT @project,\n\n  1 +", 4, "incomplete input"),
        ("SELECT 'é日本語',\n nope\nFROM invocations WHERE project = @project", 5, "no such column: nope"),
        ("SELECT @project\nFROM\n  nope", 6, "no such table: nope"),
        ("SELECT @project,\nnope(1)", 5, "no such function: nope"),
        ("SELECT @project,\nlower(1, 2)", 5, "wrong number of arguments to function lower()"),
        ("SELECT 1\nFROM invocations\nWHERE project = @projekt", 6, "@projekt is not declared in the head"),
        ("SELECT @project,\n?", 5, "a parameter without a name is not declared in the head"),
        ("SELECT 1", 2, "parameter project is never used"),
        ("SELECT @project AS a,\n1 AS a", 4, "the answer has 2 columns a"),
        ("SELECT @project;\nSELECT 2", 5, "a saved query is one statement"),
        ("SELECT @project;\n\nDROP TABLE rejects", 6, "a saved query is one statement"),
        ("", 4, "a saved query is a SELECT"),
        ("-- nothing", 4, "a saved query is a SELECT"),
        ("EXPLAIN SELECT @project", 4, "a saved query is a SELECT"),
        ("BEGIN", 4, "a saved query is a SELECT"),
        ("ROLLBACK", 4, "a saved query is a SELECT"),
        ("DELETE FROM rejects WHERE topic = @project", 4, "not authorized"),
        ("INSERT INTO counters VALUES (@project, '', 1) RETURNING count", 4, "not authorized"),
        ("UPDATE store SET replay = @project", 4, "not authorized"),
        ("CREATE TABLE t AS SELECT @project", 4, "not authorized"),
        ("CREATE TEMP VIEW v AS SELECT 1", 4, "not authorized"),
        ("ATTACH @project AS other", 4, "not authorized"),
        ("DETACH main", 4, "not authorized"),
        ("VACUUM INTO @project", 4, "a saved query is a SELECT"),
        ("PRAGMA table_info(invocations)", 4, "not authorized"),
        ("SELECT *, @project FROM pragma_table_info('invocations')", 4, "prohibited"),
        ("SELECT *, @project FROM dbstat", 4, "prohibited"),
        ("SELECT name, @project FROM sqlite_schema", 4, "prohibited"),
        ("SELECT @project, name FROM _sqlite_migrations", 4, "prohibited"),
        ("SELECT hash, @project FROM keys", 4, "no such table: keys"),
        ("SELECT hash, @project FROM control.keys", 4, "no such table: control.keys"),
        ("SELECT\nload_extension(@project)", 5, "not authorized"),
        ("SELECT\nwritefile(@project, 'x')", 5, "no such function: writefile"),
        ("SELECT\nreadfile(@project)", 5, "no such function: readfile"),
        ("SELECT randomblob(@project)", 4, "not authorized"),
        ("SELECT sqlite_compileoption_get(@project)", 4, "not authorized"),
        ("SELECT fts3_tokenizer(@project)", 4, "not authorized"),
        ("SELECT *\nFROM recent_entries(@project, 0, NULL, 5, 6)", 5, "too many arguments"),
        ("SELECT *\nFROM recent_entries(@project)", 4, "missing 3 required positional arguments"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(sql: str, line: int, said: str) -> None:
    message = told(HEAD + sql)
    assert message.startswith(f"{line}: ")
    assert said in message


def test_columns_have_to_be_as_declared() -> None:
    head = "-- name: mine\n-- column: a integer\n-- column: b string\n"
    check(f"{head}SELECT 1 AS a, 'x' AS b")
    assert told(f"{head}SELECT 1 AS b, 'x' AS a") == "2: the answer's columns are b, a, not as declared"
    assert told("-- name: mine\n-- next: more\nSELECT 1 AS a") == "2: the answer has no column more"
    check(f"{head}-- next: more\nSELECT 1 AS a, 'x' AS b, NULL AS more")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    migrate(tmp_path)
    with reading(tmp_path) as reader:
        yield reader


def test_rows_beyond_the_most_are_cut_but_not_the_word_that_there_are_more(reader: Reader) -> None:
    two = "SELECT 1 AS a, NULL AS more UNION ALL SELECT 2, NULL UNION ALL SELECT "
    for sql, result, following in ((f"{two}NULL, 'x'", [1, 2], "x"), (f"{two}3, NULL", [1, 2], None)):
        query = query_of(sql, max_rows=2, next="more")
        answer = json.loads(body(query, reader.run(query, {}, None, 1, 10)))
        assert answer == {"result": [{"a": a} for a in result], "next": following}


@pytest.mark.parametrize("text", ["{", "]", "", "{'a': 1}", "nul"])
def test_what_is_no_json_is_never_answered_as_json(reader: Reader, text: str) -> None:
    query = query_of("-- column: a json\nSELECT @text AS a")
    with pytest.raises(msgspec.DecodeError):
        body(query, reader.run(query, {"text": text}, None, 1, 10))


@pytest.mark.parametrize(
    "statement",
    [
        *("DELETE FROM rejects", "PRAGMA journal_mode", "ATTACH ':memory:' AS other", "SELECT load_extension('x')"),
        *("SELECT * FROM pragma_database_list", "SELECT count(*) FROM pragma_database_list"),
        *("SELECT * FROM dbstat", "SELECT sql FROM sqlite_schema", "CREATE TEMP TABLE t (a)", "SELECT fts5(1)"),
    ],
)
def test_a_reader_refuses_all_but_reading_whatever_it_is_asked(reader: Reader, statement: str) -> None:
    with pytest.raises((apsw.AuthError, apsw.SQLError), match=r"not authorized|prohibited"):
        ask(reader, statement)
    assert ask(reader, "SELECT retired FROM store") == [(0,)]


@pytest.mark.parametrize(
    "sql", ["SELECT hex(replace(printf('%9999999d', 1), ' ', '1234567890'))", "SELECT printf('%999999999d', 1)"]
)
def test_no_value_grows_beyond_bounds(reader: Reader, sql: str) -> None:
    with pytest.raises(apsw.TooBigError):
        ask(reader, sql)


def test_functions_that_are_called_harmless_are_in_sqlite_and_all_others_are_looked_at() -> None:
    """A new SQLite may bring functions: each is to be put on one side or the other."""
    with closing(apsw.Connection(":memory:")) as db:
        there = {name for (name,) in db.execute("SELECT name FROM pragma_function_list")}
    families = (
        "bm25",
        "fts",
        "geopoly_",
        "highlight",
        "json",
        "match",
        "offsets",
        "optimize",
        "rtree",
        "snippet",
        "sqlite_",
    )
    harmful = {"changes", "last_insert_rowid", "load_extension", "randomblob", "subtype"}
    harmful |= {"total_changes", "zeroblob"}
    assert there >= HARMLESS
    assert {name for name in there - HARMLESS - harmful if not name.startswith(families)} == set()


def test_a_query_is_bound_to_its_parameters_and_never_spliced(reader: Reader) -> None:
    query = query_of("SELECT @text AS text, typeof(@text) AS type")
    hostile = "'; DROP TABLE rejects; --"
    assert reader.run(query, {"text": hostile}, None, 1, 10).rows == [(hostile, "text")]


ROWS = "SELECT 1 AS a, '[1.50, \"10.0.0.1\"]' AS b UNION ALL SELECT 2, '{}' UNION ALL SELECT NULL, 'null'"
ARRAY = f"SELECT json_group_array(json_object('a', a, 'b', json(b))), count(*) FROM ({ROWS})"  # noqa: S608  # a query of our own


@pytest.mark.parametrize("shape", ["as-sent", "arrays"])
@pytest.mark.parametrize("redact", [False, True])
def test_an_array_is_answered_as_its_rows_would_be(reader: Reader, redact: bool, shape: MetadataShape) -> None:
    for most in (1, 2, 1000):
        array = query_of(ARRAY, max_rows=most, result="array", column="a integer or null")
        rows = query_of(ROWS, max_rows=most, column="b json")
        answers = [reader.run(query, {}, None, 1, 10) for query in (array, rows)]
        found, expected = (
            json.loads(body(query, answer, shape, redact)) for query, answer in zip((array, rows), answers, strict=True)
        )
        assert found == expected
        assert len(found["result"]) == min(most, 3)
        assert row_count(array, answers[0]) == 3


def test_metadata_in_an_array_is_nested_where_that_is_wanted(reader: Reader) -> None:
    sql = 'SELECT json_array(json_object(\'metadata\', json(\'{"request": {"path": "/"}}\'))), 1'
    query = query_of(sql, result="array", column="metadata json")
    answer = reader.run(query, {}, None, 1, 10)
    assert json.loads(body(query, answer))["result"] == [{"metadata": {"request": {"path": "/"}}}]
    assert json.loads(body(query, answer, "arrays"))["result"] == [{"metadata": [{"request": [{"path": "/"}]}]}]


@pytest.mark.parametrize(
    "sql", ["SELECT NULL, NULL", "SELECT '[]', 0 WHERE false", "SELECT '[]', 0", "SELECT x'5b5d', 0"]
)
def test_an_array_may_be_empty(reader: Reader, sql: str) -> None:
    query = query_of(sql, result="array")
    answer = reader.run(query, {}, None, 1, 10)
    assert (body(query, answer), row_count(query, answer)) == (b'{"result":[]}', 0)


@pytest.mark.parametrize("sql", ["SELECT '[1', 1", "SELECT '{}', 1", "SELECT '[1]', 1", "SELECT '', 0"])
def test_what_is_no_array_of_rows_is_never_answered(reader: Reader, sql: str) -> None:
    query = query_of(sql, result="array")
    with pytest.raises(msgspec.DecodeError):
        body(query, reader.run(query, {}, None, 1, 10))


def test_an_array_comes_with_its_number_of_rows() -> None:
    check("-- name: mine\n-- result: array\nSELECT '[]' AS x, 0 AS y")
    assert "two columns" in told("-- name: mine\n-- result: array\nSELECT '[]' AS x")
    assert "3: an array" in told("-- name: mine\n-- about: éééééééé\n-- result: array\nSELECT '[]' AS x")
    assert "next is for rows" in told("-- name: mine\n-- result: array\n-- next: x\nSELECT '[]' AS x, 0 AS y")
    assert "result can only be rows or array" in told("-- name: mine\n-- result: list\nSELECT 1 AS a")
