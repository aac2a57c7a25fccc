"""The zstd dictionary of entry blocks, trained once a database on the first records it sees.

Whole records compress to half with it (docs/decisions/0002-storage-layout.md). Blocks name the dictionary that they
were written with, so those written before it stay readable. It holds pieces of the records that it was trained on: one
of a time when less was redacted is not used any more, and goes with the last block that names it
(docs/decisions/0012-redaction.md).
"""

import sqlite3
from collections.abc import Collection, Sequence

import zstandard

from schema.blocks import NO_DICTIONARY, train_dictionary
from schema.decoding import Record

_SAMPLES = 2000
_LARGEST_SAMPLE = 32 << 10  # bytes; a longer record says little about the others
_BLOCKS_A_STEP = 500


class DictionaryTrainer:
    """Collects samples until there are enough to train on."""

    def __init__(self) -> None:
        self._samples: list[bytes] = []

    def offer(self, records: Sequence[Record]) -> bool:
        """Take samples from a batch; True when there are enough."""
        for record in records:
            if record.value and len(record.value) <= _LARGEST_SAMPLE and len(self._samples) < _SAMPLES:
                self._samples.append(record.value)
        return len(self._samples) >= _SAMPLES

    def train(self) -> bytes | None:
        """The dictionary; None where the samples give none, and new ones are to be collected."""
        samples, self._samples = self._samples, []
        try:
            return train_dictionary(samples)
        except zstandard.ZstdError:
            return None


def usable_dictionary(db: sqlite3.Connection, redacted: Collection[str]) -> int:
    """The newest dictionary whose samples had at least these kinds redacted; NO_DICTIONARY where there is none."""
    kinds = db.execute("SELECT id, redacted FROM dictionaries ORDER BY id DESC")
    return next((number for number, had in kinds if _has(had, redacted)), NO_DICTIONARY)


def _has(had: str, redacted: Collection[str]) -> bool:
    return set(redacted) <= set(had.split(","))


class UnusedDictionaries:
    """Drops the dictionaries that may hold what is redacted now, once no block names them.

    A block never changes and a new one has a higher id than all before it. So of each it is known up to which block
    none names it, and a step looks at a few of those behind: at one, for as long as that is there.
    """

    def __init__(self, redacted: Collection[str]) -> None:
        self._redacted = redacted
        self._looked: dict[int, int] = {}

    def step(self, db: sqlite3.Connection) -> None:
        """Look at some blocks, within a transaction. Without redaction there is nothing to do."""
        if self._redacted:
            for number, had in db.execute("SELECT id, redacted FROM dictionaries").fetchall():
                if not _has(had, self._redacted) and not self._may_be_named(db, number):
                    _drop(db, number)

    def _may_be_named(self, db: sqlite3.Connection, number: int) -> bool:
        blocks = "SELECT id, dictionary FROM entry_blocks WHERE id > ? ORDER BY id LIMIT ?"
        looked = 0
        for block, dictionary in db.execute(blocks, (self._looked.get(number, 0), _BLOCKS_A_STEP)):
            if dictionary == number:
                return True
            self._looked[number] = block
            looked += 1
        return looked == _BLOCKS_A_STEP


def _drop(db: sqlite3.Connection, number: int) -> None:
    """Delete a dictionary, and its bytes from the pages that become free."""
    (before,) = db.execute("PRAGMA secure_delete").fetchone()
    db.execute("PRAGMA secure_delete = on").fetchone()
    db.execute("DELETE FROM dictionaries WHERE id = ?", (number,))
    db.execute(f"PRAGMA secure_delete = {before}").fetchone()
