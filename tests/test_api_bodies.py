"""The shape of metadata that Studio reads: each object in an array of one; and rows as objects."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_api_reader import query_of

from api.bodies import arrays, body
from api.reader import Answer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)


def wrapped(value: Any, in_array: bool = False) -> Any:
    """The shape by its definition."""
    if isinstance(value, list):
        return [wrapped(element, True) for element in value]
    if isinstance(value, dict):
        members = {name: wrapped(member) for name, member in value.items()}
        return members if in_array else [members]
    return value


@given(JSON, st.sampled_from((None, 2)), st.booleans())
def test_every_object_that_is_no_element_is_put_into_an_array(value: Any, indent: int | None, ascii_only: bool) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert json.loads(arrays(written)) == wrapped(value)


@given(JSON)
def test_what_has_the_shape_keeps_it_to_the_byte(value: Any) -> None:
    once = arrays(json.dumps(value))
    assert arrays(once) == once


@pytest.mark.parametrize(
    ("sent", "shaped"),
    [
        ("{}", "[{}]"),
        ('{"request":{"headers":{"a":"b"},"n":1}}', '[{"request":[{"headers":[{"a":"b"}],"n":1}]}]'),
        ('[{"request":[{"headers":{}}]}]', '[{"request":[{"headers":[{}]}]}]'),
        (r'{"a":"{[\"}","{":"\\"}', r'[{"a":"{[\"}","{":"\\"}]'),
        (
            '{"big":18446744073709551616,"f":1.50,"e":1E400,"i":5}',
            '[{"big":18446744073709551616,"f":1.50,"e":1E400,"i":5}]',
        ),
        (r'{"twice":{},"twice":1, "half":"\ud800"}', r'[{"twice":[{}],"twice":1, "half":"\ud800"}]'),
    ],
)
def test_only_brackets_are_added(sent: str, shaped: str) -> None:
    assert arrays(sent) == shaped


def test_the_shape_concerns_the_column_metadata_alone() -> None:
    query = query_of("-- column: metadata json\n-- column: more json\nSELECT 1")
    answer = Answer(("metadata", "more", "text"), [('{"a":{}}', '{"b":{}}', "{}"), (None, None, None)])
    assert body(query, answer, "arrays") == (
        b'{"result":[{"metadata":[{"a":[{}]}],"more":{"b":{}},"text":"{}"},{"metadata":null,"more":null,"text":null}]}'
    )
    assert body(query, answer).startswith(b'{"result":[{"metadata":{"a":{}},')


NAMES = ('"', 'a "b"', "a\\b", "coalesce(a,\n  b)", "\t", "", "é", "column_0", "__init__", "a b")


@given(st.lists(st.sampled_from(NAMES) | st.text(), min_size=1, unique=True), st.data())
def test_rows_are_objects_of_all_columns_whatever_their_names(names: list[str], data: st.DataObject) -> None:
    values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    rows = data.draw(st.lists(st.tuples(*[values] * len(names)), max_size=3))
    told = json.loads(body(query_of("SELECT 1"), Answer(tuple(names), [*rows])))
    assert told == {"result": [dict(zip(names, row, strict=True)) for row in rows]}
    assert [[*row] for row in told["result"]] == [names] * len(rows)


@pytest.mark.parametrize("depth", [64, 5000])
def test_depth_costs_no_stack(depth: int) -> None:
    assert arrays('{"a":' * depth + "1" + "}" * depth) == '[{"a":' * depth + "1" + "}]" * depth
