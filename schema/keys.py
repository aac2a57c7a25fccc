"""API keys: `fr_<id>_<secret>`. The database holds the SHA-256 of the secret only.

A secret is 32 random bytes, so a plain hash is as good as a slow one: there is nothing to guess.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

_PREFIX = "fr"
NOBODY = bytes(32)
"""What a secret is compared with where no key has the id sent: no text is known whose SHA-256 this is."""


class NewKey(NamedTuple):
    """A key just made: what is shown once (`text`), and what is stored."""

    text: str
    id: str
    hash: bytes


def make_key() -> NewKey:
    """A new random key."""
    identifier, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return NewKey(f"{_PREFIX}_{identifier}_{secret}", identifier, hash_secret(secret))


def hash_secret(secret: str) -> bytes:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode(errors="backslashreplace")).digest()


def split_key(text: str) -> tuple[str, str] | None:
    """The id and the secret in a key as sent, or None where it has not a key's form."""
    prefix, _, rest = text.partition("_")
    identifier, _, secret = rest.partition("_")
    return (identifier, secret) if prefix == _PREFIX and identifier and secret else None


def same_secret(secret: str, stored: bytes) -> bool:
    """Whether a secret is the one whose hash is stored, compared in constant time."""
    return hmac.compare_digest(hash_secret(secret), stored)
