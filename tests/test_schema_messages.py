"""A message is cut into its elements, and a bad element costs its siblings nothing (contract section 4)."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.messages import MOST_ELEMENTS, Element, pair_surrogates, split, too_deep, trim

GOOD = b'{"timestamp":1700000000}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key not in ("batch", "resourceLogs")), JSON, max_size=4
)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def parts(value: bytes) -> list[tuple[int, str]]:
    """Each part's index, and its text or the reason why it is no element."""
    return [
        (part.index, part.data.decode() if isinstance(part, Element) else part.reason) for part in split(trim(value))
    ]


@given(st.lists(OBJECTS, min_size=1, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_elements_keep_their_place_and_their_bytes(objects: list[Any], indent: int | None, ascii_only: bool) -> None:
    written = [json.dumps(one, indent=indent, ensure_ascii=ascii_only) for one in objects]
    expected = list(enumerate(written))
    array = f" [ {' , '.join(written)} ] "
    assert parts(array.encode()) == parts(f'{{"a": 1, "batch":{array}, "z": []}}'.encode()) == expected
    assert parts(b"\xef\xbb\xbf\n" + written[0].encode() + b"\r\n") == expected[:1]


@given(st.lists(st.one_of(OBJECTS, st.none()), min_size=2, max_size=6), st.sampled_from(["\n", "\r\n", " \n\t"]))
def test_lines_are_numbered_from_the_first_blank_ones_too(lines: list[Any], end: str) -> None:
    written = ["" if line is None else json.dumps(line) for line in lines]
    first = next((number for number, line in enumerate(written) if line), 0)
    expected = [(number - first, line) for number, line in enumerate(written) if line]
    if len(expected) > 1:
        assert parts(end.join(written).encode()) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"batch":5}', [(0, '{"batch":5}')]),
        (b'{"batch":[],"batch":5}', [(0, '{"batch":[],"batch":5}')]),
        (b'{"\\u0062atch":[{},1]}', [(0, "{}"), (1, "not_object")]),
        (b'{"a":{"batch":[{}]}}', [(0, '{"a":{"batch":[{}]}}')]),
        (b"[]", []),
        (b'{"batch":[ ]}', []),
        (b'[1,{},"x",null,[{}],true]', [(0, "not_object"), (1, "{}")] + [(n, "not_object") for n in range(2, 6)]),
        (b"17", [(-1, "not_object")]),
        (b'"text"', [(-1, "not_object")]),
        (b"null", [(-1, "not_object")]),
        (b"-1.5e3", [(-1, "not_object")]),
        (b"9" * 5000, [(-1, "not_object")]),
        (b"plain text", [(-1, "not_json")]),
        (b"{", [(-1, "not_json")]),
        (b"{} {}", [(-1, "not_json")]),
        (b"[1]\n[2]", [(-1, "not_json")]),
        (b'{"a":1\n,"b":2', [(-1, "not_json")]),
        (b'{"a":\n1}', [(0, '{"a":\n1}')]),
        (b'{"batch":[{}]}\n{}', [(0, '{"batch":[{}]}'), (1, "{}")]),
    ],
)
def test_the_form_of_a_message_decides_what_its_elements_are(value: bytes, expected: list[tuple[int, str]]) -> None:
    assert parts(value) == expected


@pytest.mark.parametrize(
    "line", ["plain", "{", '{"a":NaN}', '{"a":1,}', '{"a":"\\x"}', "nul", '"abc', "'a'", "01", "-"]
)
def test_a_line_that_is_no_json_is_rejected_by_its_number(line: str) -> None:
    assert parts(f"\n{{}}\n\n{line}\n{{}}".encode()) == [(0, "{}"), (2, "not_json"), (3, "{}")]


@pytest.mark.parametrize("line", ["[1,2", "12x", "[]]", "[NaN]", '["\x01"]', "1 2", "truefalse", "[" * 70])
def test_a_broken_line_is_no_json_whatever_it_begins_with(line: str) -> None:
    assert parts(f"{line}\n{{}}".encode()) == [(0, "not_json"), (1, "{}")]


@pytest.mark.parametrize("line", ["[]", "17", "null", '"text"', "[1,2]", "9" * 5000])
def test_a_line_that_is_no_object_is_rejected_by_its_number(line: str) -> None:
    assert parts(f"{line}\n{{}}".encode()) == [(0, "not_object"), (1, "{}")]
    assert parts(f"{{}}\n{line}".encode()) == [(0, "{}"), (1, "not_object")]


def test_64_levels_are_not_too_deep_and_65_are() -> None:
    assert not too_deep(b'{"a":%b}' % nested(63))
    assert too_deep(b'{"a":%b}' % nested(64))
    assert not too_deep(b"[%b]" % b",".join([nested(63)] * 100))


def test_brackets_in_strings_are_no_levels() -> None:
    assert not too_deep(b'{"a":"%b","b\\\\":"\\"%b"}' % (b"[{" * 500, b"{" * 500))
    assert too_deep(b'{"a":"\\\\","b":%b,"c":"]"}' % nested(64))


@pytest.mark.parametrize("levels", [100, 2000, 100_000])
def test_what_nests_very_deep_costs_its_siblings_nothing(levels: int) -> None:
    deep = b'{"timestamp":1,"a":%b}' % nested(levels)
    for value in (b"[%b,%b,%b]", b'{"batch":[%b, %b, %b]}', b"%b\n%b\n%b"):
        found = list(split(value % (GOOD, deep, GOOD)))
        assert [part.index for part in found] == [0, 1, 2]
        assert [part.data for part in found if isinstance(part, Element) and not too_deep(part.data)] == [GOOD, GOOD]
    assert parts(b"[%b,%b]" % (nested(levels), GOOD)) == [(0, "too_deep"), (1, GOOD.decode())]


@pytest.mark.parametrize(
    "broken", [b"[" * 5000, b'{"a":' * 5000, b'{"a":%b' % (b"[" * 5000), b"[" * 5000 + b"}" * 5000]
)
def test_a_broken_line_that_nests_very_deep_costs_the_other_lines_nothing(broken: bytes) -> None:
    assert parts(broken) == [(-1, "not_json")]
    assert parts(b"%b\n%b" % (broken, GOOD)) == [(0, "not_json"), (1, GOOD.decode())]
    assert parts(b"%b\n%b" % (GOOD, broken)) == [(0, GOOD.decode()), (1, "not_json")]


def test_lines_that_nest_very_deep_after_brackets_that_close_nothing_raise_nothing() -> None:
    deep = b'{"timestamp":1,"a":%b}' % nested(5000)
    found = list(split(b"\n".join([b"]" * 9000, deep, GOOD, b"}" * 9000, deep])))
    assert [part.index for part in found] == [0, 1, 2, 3, 4]
    assert [part.reason for part in found if not isinstance(part, Element)] == ["not_json", "not_json"]
    assert [too_deep(part.data) for part in found if isinstance(part, Element)] == [True, False, True]


@pytest.mark.parametrize("value", [b"[" * 2000 + b'\\"' * 20_000, b"{}\n" + b"[" * 70 + b'\\"' * 20_000])
def test_no_message_takes_time_by_the_square_of_its_length(value: bytes) -> None:
    began = time.perf_counter()
    list(split(value))
    assert time.perf_counter() - began < 1.0  # some milliseconds; by the square it was 3 s, and half an hour for 1 MB


def test_the_number_of_elements_is_bounded() -> None:
    assert len(parts(b"[%b]" % b",".join([b"{}"] * MOST_ELEMENTS))) == MOST_ELEMENTS
    assert len(parts(b"\n".join([b"{}"] * MOST_ELEMENTS))) == MOST_ELEMENTS
    for value in (b"[%b]" % b",".join([b"{}"] * (MOST_ELEMENTS + 1)), b"\n".join([b"{}"] * (MOST_ELEMENTS + 2))):
        assert parts(value) == [(-1, "too_large")]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud83d", "\ufffd"),
        (rb"\ude00", "\ufffd"),
        (rb"\uDE00\uD83D", "\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud83d", "\\ud83d"),
        (rb"\\\ud83dx", "\\\ufffdx"),
        (rb"\ud83d\n", "\ufffd\n"),
        (rb"\u00e9\ud800\u0041", "é\ufffdA"),
    ],
)
def test_half_a_surrogate_pair_reads_as_the_replacement_character(sent: bytes, read: str) -> None:
    paired = pair_surrogates(b'"%b"' % sent)
    assert json.loads(paired) == read
    assert len(paired) == len(sent) + 2


@given(st.text(st.characters()))
def test_pairing_changes_nothing_but_halves(text: str) -> None:
    read = json.loads(pair_surrogates(json.dumps(text).encode()))
    assert read == "".join(
        "\ufffd" if 0xD800 <= ord(letter) < 0xE000 else letter for letter in json.loads(json.dumps(text))
    )


def deepest(value: Any) -> int:
    """How many levels a JSON value nests."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(deepest, value), default=0) if isinstance(value, list) else 0


MARKS = st.text(st.sampled_from('[]{}"\\,x\n'), max_size=8)
MARKED = st.recursive(
    MARKS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(MARKS, inner, max_size=3), max_leaves=30
)


@given(MARKED, st.sampled_from([None, 1]))
def test_brackets_and_quotes_in_strings_are_no_levels(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    for most in range(6):
        assert too_deep(text, most) == (deepest(value) > most)
