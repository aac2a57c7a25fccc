"""An answer's JSON, in the shape that its readers want."""

import re
from typing import Any, Literal

import msgspec

from api.reader import Answer
from api.redaction import redact_json, redact_text
from schema.saved_queries import ENDPOINTS, SavedQuery

MetadataShape = Literal["as-sent", "arrays"]
_encode = msgspec.json.Encoder().encode
_checked = msgspec.json.Decoder(msgspec.Raw).decode  # 0.25 µs a KB
_METADATA = "metadata"
_PIECES = re.compile(r'[\[\]{}]|(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")++', re.DOTALL)


def body(query: SavedQuery, answer: Answer, shape: MetadataShape = "as-sent", redact: bool = False) -> bytes:
    """`{"result": [{column: value, …}, …]}`; columns of JSON text go in as they are, but for `shape` and `redact`.

    `shape` concerns the column metadata; `redact` takes IP addresses out of all texts.
    Where the query has a column that says how the answer goes on, that becomes `next` beside the result.
    Raises msgspec.DecodeError where a column of JSON holds none.
    """
    rows: list[dict[str, Any]] = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    json_columns = query.json_columns
    as_it_came = query.path.parent == ENDPOINTS  # Freshet's own pass on JSON that was looked at when it came
    for row in rows:
        if redact:
            for column, value in row.items():
                if isinstance(value, str) and column != query.next_column:  # a cursor is sent back as it is
                    row[column] = redact_json(value) if column in json_columns else redact_text(value)
        for column in json_columns:
            if row[column] is not None:
                text = row[column]
                if not as_it_came:
                    _checked(text)
                row[column] = msgspec.Raw(arrays(text) if shape == "arrays" and column == _METADATA else text)
    if query.next_column is None:
        return _encode({"result": rows})
    following = [row.pop(query.next_column) for row in rows]
    last = following[-1] if following else None
    return _encode({"result": rows if last is None else rows[:-1], "next": last})


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
