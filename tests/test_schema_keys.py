"""API keys are random, are told apart by their id, and are stored as a hash only."""

from hypothesis import given
from hypothesis import strategies as st

from schema.keys import hash_secret, make_key, same_secret, split_key

# what a command line or a header may hold: bytes that are no UTF-8 stand as U+DC80 to U+DCFF
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)))


def test_a_new_key_is_split_into_the_id_and_the_secret_that_were_made() -> None:
    for _ in range(200):
        key = make_key()
        parts = split_key(key.text)
        assert parts is not None
        assert parts[0] == key.id
        assert same_secret(parts[1], key.hash)


def test_no_two_keys_are_alike() -> None:
    keys = [make_key() for _ in range(500)]
    assert len({key.text for key in keys}) == len({key.id for key in keys}) == len({key.hash for key in keys}) == 500


def test_what_is_stored_does_not_tell_the_secret() -> None:
    key = make_key()
    secret = key.text.removeprefix(f"fr_{key.id}_")
    assert len(secret) >= 43  # 32 random bytes
    assert len(key.hash) == 32
    assert secret.encode() not in key.hash
    assert secret not in key.id


def test_a_secret_is_the_same_only_to_the_last_character() -> None:
    key = make_key()
    secret = key.text.removeprefix(f"fr_{key.id}_")
    other = "A" if secret[-1] != "A" else "B"
    wrong = ("", secret[:-1], secret[:-1] + other, secret + "A", secret.swapcase(), f" {secret}", make_key().text)
    assert not any(same_secret(text, key.hash) for text in wrong)


@given(TEXTS.filter(lambda text: text != "" and "_" not in text), TEXTS.filter(bool))
def test_a_secret_may_hold_underscores(identifier: str, secret: str) -> None:
    assert split_key(f"fr_{identifier}_{secret}") == (identifier, secret)


@given(TEXTS)
def test_no_text_raises_and_none_but_a_keys_form_is_taken(text: str) -> None:
    parts = split_key(text)
    if parts is not None:
        assert text == "fr_" + "_".join(parts)
        assert not same_secret(parts[1], make_key().hash)


def test_what_has_not_a_keys_form_is_none() -> None:
    for text in ("", "fr", "fr_", "fr_a", "fr_a_", "fr__b", "_a_b", "FR_a_b", " fr_a_b", "Bearer fr_a_b", "xx_a_b"):
        assert split_key(text) is None


@given(TEXTS)
def test_a_hash_is_the_same_each_time(secret: str) -> None:
    assert hash_secret(secret) == hash_secret(secret)
    assert same_secret(secret, hash_secret(secret))
