"""The dictionary is trained once there are enough records, and never on what teaches nothing."""

from typing import NamedTuple

from events import Traffic

from schema.blocks import Compressor, Decompressor
from streams.dictionary import DictionaryTrainer

NOW = 1_750_000_000_123_456
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
