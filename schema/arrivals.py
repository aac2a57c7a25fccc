"""The order in which entries came: by the id of the block that a batch made of them.

Sealing merges blocks into new ones, whose ids are higher than those of blocks that were added before. So for each entry
of a merged block the table `arrivals` keeps the id of the block in which it came: whoever has followed up to block N
reads the blocks above N and takes the entries that came in one above N, each once, in whichever block they are by now.
"""

import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from schema.blocks import unpack_numbers

FOLLOWED_BLOCKS = 50_000
"""So many ids back `arrivals` is kept; further back there is no going on."""
PLACE = re.compile(r"([0-9]{1,9})-([0-9]{1,18})")
_CAME_IN = "SELECT came_in FROM arrivals WHERE block = ?"


class Database(Protocol):
    """A connection of either library."""

    def execute(self, sql: str, values: Any, /) -> Any:
        """Run a statement."""


class Place(NamedTuple):
    """Up to where entries have been followed: a generation of the store, and the id of a block in it."""

    generation: int
    block: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.block}"


def parse_place(text: str) -> Place | None:
    """A place from its text, or None where it is none."""
    match = PLACE.fullmatch(text)
    return None if match is None else Place(int(match[1]), int(match[2]))


def came_in(db: Database, block: int, count: int) -> Sequence[int]:
    """The ids of the blocks in which the `count` entries of a block came: its own, unless it was merged lately."""
    row = db.execute(_CAME_IN, (block,)).fetchone()
    return [block] * count if row is None else unpack_numbers("q", zlib.decompress(row[0]))
