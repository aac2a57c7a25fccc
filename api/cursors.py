"""The cursor of logs.search: a place in the order of a project's entries.

Its text is `TIMESTAMP`, in front of all entries of that time, or `TIMESTAMP-COUNT-ID`: behind the first COUNT of the
entries found whose time is this and whose id begins like this. ID is the hexadecimal form of the id's first bytes, so
that no id makes a URL too long. Entries that tie on time and id are told apart by COUNT, in the order of their bytes.
"""

import re
from typing import NamedTuple

from schema.errors import ParameterError

CURSOR = r"[0-9]{1,16}(-[0-9]{1,9}-([0-9a-f]{2}){0,128})?"
"""What a cursor looks like."""
_ID_BYTES = 128
_PARTS = re.compile(CURSOR)


class Cursor(NamedTuple):
    """Time in µs, how many entries there have been passed, and the beginning of their id; None: none of that time."""

    timestamp: int
    passed: int
    id: bytes | None

    def __str__(self) -> str:
        return str(self.timestamp) if self.id is None else f"{self.timestamp}-{self.passed}-{self.id.hex()}"


def id_key(identity: str) -> bytes:
    """The beginning of an id, as UTF-8; its order is that of ids."""
    return identity.encode()[:_ID_BYTES]


def parse_cursor(parameter: str, text: str) -> Cursor:
    """A cursor from its text. Raises ParameterError where it is none."""
    if _PARTS.fullmatch(text) is None:
        raise ParameterError(parameter, text, "not a cursor: send the `next` of the answer before")
    timestamp, *rest = text.split("-")
    return Cursor(int(timestamp), int(rest[0]), bytes.fromhex(rest[1])) if rest else Cursor(int(timestamp), 0, None)
