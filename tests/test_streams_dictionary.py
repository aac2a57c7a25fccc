"""The dictionary is trained once there are enough records, never on what teaches nothing, and kept while it is used."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from events import Traffic

from schema.blocks import Compressor, Decompressor
from schema.settings import Settings
from schema.tables import migrate
from streams.dictionary import DictionaryTrainer
from streams.retention import Pruner
from streams.store import Store

NOW = 1_750_000_000_123_456
INSERT = """
INSERT INTO entry_blocks (project, min_timestamp, max_timestamp, count, dictionary, payload)
VALUES ('p', 1, 1, 1, ?, x'')
"""
SAMPLES = 2000
LARGEST = 32 << 10


class Received(NamedTuple):
    """A record as the trainer gets it."""

    offset: int
    timestamp: int
    value: bytes | None


def received(*values: bytes | None) -> list[Received]:
    return [Received(offset, NOW // 1000, value) for offset, value in enumerate(values)]


def records(count: int) -> list[Received]:
    messages = Traffic(3, NOW, "edge", "functions").messages(2 * count)
    return received(*[message.value for message in messages if message.value and len(message.value) < 5000][:count])


def test_there_are_enough_samples_after_two_thousand_in_any_number_of_batches() -> None:
    trainer, samples = DictionaryTrainer(), records(SAMPLES)
    for start in range(0, SAMPLES - 100, 100):
        assert not trainer.offer(samples[start : start + 100])
    assert not trainer.offer([])
    assert not trainer.offer(samples[-100:-1])
    assert trainer.offer(samples[-1:])


def test_a_batch_may_hold_more_than_enough() -> None:
    assert DictionaryTrainer().offer(records(SAMPLES) * 3)


def test_records_without_a_value_and_very_long_ones_are_no_samples() -> None:
    trainer = DictionaryTrainer()
    assert not trainer.offer(received(*[None, b"", b"x" * (LARGEST + 1)] * SAMPLES))
    assert not trainer.offer(records(SAMPLES - 1))
    assert trainer.offer(received(b"x" * LARGEST))


def test_a_trained_dictionary_halves_records_like_the_samples() -> None:
    trainer = DictionaryTrainer()
    assert trainer.offer(records(SAMPLES))
    dictionary = trainer.train()
    assert dictionary is not None
    assert len(dictionary) <= 64 << 10
    values = [one.value for one in records(3000)[SAMPLES:] if one.value]
    compressor, decompressor, plain = Compressor(dictionary), Decompressor(dictionary), Compressor()
    stored = [compressor.compress(value) for value in values]
    assert [decompressor.decompress(one) for one in stored] == values
    assert sum(map(len, stored)) < sum(len(plain.compress(value)) for value in values) / 2


def test_samples_that_give_no_dictionary_make_room_for_new_ones() -> None:
    trainer = DictionaryTrainer()
    assert not trainer.offer(received(b"x"))
    assert trainer.train() is None
    assert not trainer.offer(records(SAMPLES - 1))
    assert trainer.offer(records(1))
    assert trainer.train() is not None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return migrate(tmp_path)


def test_one_is_used_where_at_least_what_is_redacted_now_was_redacted(path: Path) -> None:
    with closing(Store(path, lambda: 1)) as store:
        assert store.dictionary() == (0, None)
        assert store.add_dictionary(b"plain") == store.dictionary() == (1, b"plain")
        assert store.add_dictionary(b"late") == (1, b"plain")  # another worker was faster
        assert store.dictionary(["tokens"]) == (0, None)
        assert store.add_dictionary(b"both", ["tokens", "addresses"]) == (2, b"both")
        for kinds in ([], ["addresses"], ["addresses", "tokens"]):
            assert store.dictionary(kinds) == store.add_dictionary(b"late", kinds) == (2, b"both")
        assert store.dictionary(["authorization"]) == (0, None)


def test_one_that_may_hold_what_is_redacted_now_goes_with_the_last_block_that_names_it(path: Path) -> None:
    secret = b"Hidd3n" * 3000
    with closing(Store(path, lambda: 1)) as store:

        def block(dictionary: int) -> None:
            with store.transaction() as db:
                db.execute(INSERT, (dictionary,))

        def dictionaries(steps: int, *redacted: str) -> list[int]:
            pruner = Pruner(store, lambda: 1, Settings().kept, redacted)
            for _ in range(steps):
                pruner.step()
            return [number for (number,) in store.connection.execute("SELECT id FROM dictionaries ORDER BY id")]

        store.add_dictionary(secret)
        store.add_dictionary(b"two", ["tokens"])
        for number in range(1100):
            block(1 if number == 1050 else 2)
        assert dictionaries(5) == dictionaries(5, "tokens") == [1, 2]
        with store.transaction() as db:
            db.execute("DELETE FROM entry_blocks WHERE dictionary = 1")
        assert dictionaries(5) == dictionaries(2, "tokens") == [1, 2]  # without redaction, and after two looks of three
        assert dictionaries(3, "tokens") == [2]
        with pytest.raises(sqlite3.IntegrityError, match="dictionary of a block is gone"):
            block(1)
        block(2)
        store.connection.execute("PRAGMA wal_checkpoint(truncate)")
        assert secret[:6] not in path.read_bytes()
        assert dictionaries(5, "addresses") == [2]
        with store.transaction() as db:
            db.execute("DELETE FROM entry_blocks")
        assert dictionaries(1, "addresses") == []


def test_one_is_kept_while_blocks_that_name_it_come_and_go(path: Path) -> None:
    with closing(Store(path, lambda: 1)) as store:
        store.add_dictionary(b"one")
        pruner = Pruner(store, lambda: 1, Settings().kept, ["tokens"])
        for _ in range(5):
            with store.transaction() as db:
                db.execute(INSERT, (0,))
                db.execute(INSERT, (1,))
                db.execute("DELETE FROM entry_blocks WHERE dictionary = 1 AND id < (SELECT max(id) FROM entry_blocks)")
            pruner.step()
            assert store.dictionary() == (1, b"one")
