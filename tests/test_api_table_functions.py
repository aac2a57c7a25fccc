"""Python functions as tables: their columns, arguments however they are given, and what goes wrong."""

from collections.abc import Iterator

import apsw
import pytest

from api.table_functions import register_table


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")

    def steps(start: int, limit: int, by: int = 1) -> list[tuple[int, int, str]]:
        return [(place, start + place * by, f"{place}") for place in range(limit)]

    register_table(connection, "steps", steps, ("place", "value", "text"))
    connection.execute("CREATE TABLE starts (start)")
    connection.execute("INSERT INTO starts VALUES (10), (20), (30)")
    yield connection
    connection.close()


def rows(db: apsw.Connection, sql: str) -> list[tuple[object, ...]]:
    return db.execute(sql).fetchall()


def test_a_function_gives_its_rows_in_their_order(db: apsw.Connection) -> None:
    assert rows(db, "SELECT * FROM steps(5, 3)") == [(0, 5, "0"), (1, 6, "1"), (2, 7, "2")]
    assert rows(db, "SELECT text, value FROM steps(5, 2, 10)") == [("0", 5), ("1", 15)]
    assert rows(db, "SELECT * FROM steps(5, 0)") == []
    assert rows(db, "SELECT count(*), sum(value) FROM steps(1, 100)") == [(100, 5050)]


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT value FROM steps WHERE start = 5 AND "limit" = 2 AND by = 10',
        'SELECT value FROM steps(5) WHERE by = 10 AND "limit" = 2',
        "SELECT value FROM (SELECT 5 AS a) JOIN steps(a, 2, 10)",
    ],
)
def test_arguments_may_be_given_in_any_way(db: apsw.Connection, sql: str) -> None:
    assert rows(db, sql) == [(5,), (15,)]


def test_arguments_are_columns_that_can_be_asked_for(db: apsw.Connection) -> None:
    assert rows(db, 'SELECT value, start, "limit", by FROM steps(5, 1, 7)') == [(5, 5, 1, 7)]
    assert rows(db, "SELECT start, by FROM steps(5, 1)") == [(5, None)]


def test_a_join_asks_anew_for_each_row(db: apsw.Connection) -> None:
    joined = "SELECT s.start, value FROM starts s JOIN steps(s.start, 2) ORDER BY 1, 2"
    assert rows(db, joined) == [(10, 10), (10, 11), (20, 20), (20, 21), (30, 30), (30, 31)]
    twice = "SELECT a.value, b.value FROM steps(1, 2) a JOIN steps(a.value, 2) b ORDER BY 1, 2"
    assert rows(db, twice) == [(1, 1), (1, 2), (2, 2), (2, 3)]


def test_conditions_on_columns_are_sqlites_own(db: apsw.Connection) -> None:
    assert rows(db, "SELECT value FROM steps(1, 9) WHERE value > 7 OR place = 0 ORDER BY value DESC") == [
        (9,),
        (8,),
        (1,),
    ]


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        ("SELECT * FROM steps(1)", TypeError, "missing 1 required"),
        ("SELECT * FROM steps(1, 2, 3, 4)", apsw.SQLError, "too many arguments"),
        ('SELECT * FROM steps(1, 2) WHERE "limit" = 3', apsw.SQLError, "no query solution"),
        ('SELECT * FROM steps(1) WHERE "limit" > 3', apsw.SQLError, "no query solution"),
        ("SELECT * FROM steps('x', 2)", TypeError, "str"),
        ("DELETE FROM steps", apsw.SQLError, "may not be modified"),
        ("CREATE VIRTUAL TABLE mine USING steps", apsw.SQLError, "no such module"),
    ],
)
def test_what_goes_wrong_is_told(db: apsw.Connection, sql: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        rows(db, sql)
    assert rows(db, "SELECT value FROM steps(1, 1)") == [(1,)]
