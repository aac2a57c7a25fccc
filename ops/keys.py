"""Making API keys."""

import sqlite3
from contextlib import closing
from pathlib import Path

from schema.clock import system_clock
from schema.errors import FreshetError
from schema.keys import make_key
from schema.tables import migrate_control


def add_key(data: Path, name: str, replace: bool = False) -> str:
    """Make a key and return it; only its hash is stored.

    Raises FreshetError where the name is taken and not to be replaced.
    """
    if not name.strip():
        raise FreshetError("a key has a name: freshet keys add NAME")
    key = make_key()
    with closing(sqlite3.connect(migrate_control(data), timeout=10)) as db, db:
        if replace:
            db.execute("DELETE FROM keys WHERE name = ?", (name,))
        try:
            db.execute(
                "INSERT INTO keys (id, name, hash, created_at) VALUES (?, ?, ?, ?)",
                (key.id, name, key.hash, system_clock()),
            )
        except sqlite3.IntegrityError as error:
            raise FreshetError(f"there is a key called {name} already: choose another name") from error
    return key.text
