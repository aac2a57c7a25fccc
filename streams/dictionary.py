"""The zstd dictionary of entry blocks, trained once a database on the first records it sees.

Whole records compress to half with it (docs/decisions/0002-storage-layout.md). Blocks name the dictionary that they
were written with, so those written before it stay readable.
"""

from collections.abc import Sequence

import zstandard

from schema.blocks import train_dictionary
from schema.decoding import Record

_SAMPLES = 2000
_LARGEST_SAMPLE = 32 << 10  # bytes; a longer record says little about the others


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
