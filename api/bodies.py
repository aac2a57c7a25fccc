"""An answer's JSON, in the shape that its readers want."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import starmap
from typing import Any, Literal

import msgspec

from api.reader import Answer
from api.redaction import redact_json, redact_text
from schema.saved_queries import SavedQuery

MetadataShape = Literal["as-sent", "arrays"]
_encode = msgspec.json.Encoder().encode
_checked = msgspec.json.Decoder(msgspec.Raw).decode  # 0.25 µs a KB
_rows = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_METADATA = "metadata"
_PIECES = re.compile(r'[\[\]{}]|(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")++', re.DOTALL)


def body(query: SavedQuery, answer: Answer, shape: MetadataShape = "as-sent", redact: bool = False) -> bytes:
    """`{"result": [{column: value, …}, …]}`; columns of JSON text go in as they are, but for `shape` and `redact`.

    `shape` concerns the column metadata; `redact` takes IP addresses out of all texts.
    Where the query has a column that says how the answer goes on, that becomes `next` beside the result.
    Raises msgspec.DecodeError where a column of JSON holds none.
    """
    if query.as_array:
        pieces = [_array(query, row[0], shape, redact) for row in answer.rows if row[0] is not None]
        return b'{"result":%b}' % (pieces[0] if len(pieces) == 1 else _joined(pieces))
    json_columns = query.json_columns
    if not (redact or json_columns or query.next_column):
        return _encode({"result": [*starmap(_object(answer.columns), answer.rows)]})
    rows: list[dict[str, Any]] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    for row in rows:
        if redact:
            for column, value in row.items():
                if isinstance(value, str) and column != query.next_column:  # a cursor is sent back as it is
                    row[column] = redact_json(value) if column in json_columns else redact_text(value)
        for column in json_columns:
            if row[column] is not None:
                text = row[column]
                if not query.shipped:  # of whose columns the JSON was looked at when it came
                    _checked(text)
                row[column] = msgspec.Raw(arrays(text) if shape == "arrays" and column == _METADATA else text)
    if query.next_column is None:
        return _encode({"result": rows})
    following = [row.pop(query.next_column) for row in rows]
    last = following[-1] if following else None
    return _encode({"result": rows if last is None else rows[:-1], "next": last})


def row_count(query: SavedQuery, answer: Answer) -> int:
    """How many rows an answer has."""
    if query.as_array:
        return sum(count for _, count in answer.rows if isinstance(count, int))
    return len(answer.rows)


@lru_cache(maxsize=256)
def _object(columns: tuple[str, ...]) -> Callable[..., Any]:
    """What makes an object of a row: 0.2 µs one of eight columns, 0.8 by way of a dict."""
    names = [f"column_{number}" for number in range(len(columns))]
    fields: list[tuple[str, type]] = [(name, object) for name in names]
    try:
        return msgspec.defstruct("Row", fields, rename=dict(zip(names, columns, strict=True)), gc=False)
    except ValueError:  # a name with what JSON escapes: that of an expression is its text
        return lambda *row: dict(zip(columns, row, strict=True))


def _array(query: SavedQuery, array: Any, shape: MetadataShape, redact: bool) -> bytes:
    """The JSON array of all rows, of which most go out as they are."""
    if redact:
        array = redact_json(array if isinstance(array, str) else array.decode())
    nests = shape == "arrays" and _METADATA in query.json_columns
    if nests or not query.shipped:
        rows = _rows(array)[: query.max_rows]
        for row in rows if nests else ():
            row[_METADATA] = msgspec.Raw(arrays(bytes(row[_METADATA]).decode()))
        return _encode(rows)
    return array.encode() if isinstance(array, str) else bytes(array)


def _joined(pieces: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(piece[1:-1] for piece in pieces if piece != b"[]")


def arrays(text: str) -> str:
    """JSON in which each object that is not an array's element is put into an array of one (contract section 1).

    The original's warehouse nests records as repeated, so its readers look for `metadata[0].request[0]`. Only brackets
    are added: numbers, strings and the order of members stay as they were written.
    """
    pieces: list[str] = []
    inside: list[str] = []
    for piece in _PIECES.findall(text):
        if piece == "{":
            opened = "{" if inside and inside[-1] == "[" else "[{"
            inside.append(opened)
            pieces.append(opened)
        elif piece == "[":
            inside.append(piece)
            pieces.append(piece)
        elif piece == "}":
            pieces.append("}]" if inside.pop() == "[{" else "}")
        else:
            if piece == "]":
                inside.pop()
            pieces.append(piece)
    return "".join(pieces)
