"""Making, listing and revoking API keys. The API looks at them anew for each request."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from schema.clock import system_clock
from schema.errors import FreshetError
from schema.keys import make_key
from schema.tables import migrate_control
from schema.timestamps import datetime_text


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is known of a key: its scopes (None: all), and times in µs since the epoch."""

    name: str
    id: str
    projects: list[str] | None
    endpoints: list[str] | None
    allow: list[str]
    created_at: int
    expires_at: int | None
    last_used_at: int | None


def add_key(
    data: Path,
    name: str,
    replace: bool = False,
    projects: Sequence[str] = (),
    endpoints: Sequence[str] = (),
    allow: Sequence[str] = ("query",),
    expires_at: int | None = None,
) -> str:
    """Make a key and return it; only its hash is stored. No projects or endpoints mean all; `expires_at` is in µs.

    Raises FreshetError where the name is taken and not to be replaced.
    """
    if not name.strip():
        raise FreshetError("a key has a name: freshet keys add NAME")
    if not all((*projects, *endpoints)):
        raise FreshetError("the name of a project or an endpoint is empty: leave the option out for all of them")
    key = make_key()
    scopes = (_stored(projects), _stored(endpoints), json.dumps(sorted(set(allow))))
    with closing(sqlite3.connect(migrate_control(data), timeout=10)) as db, db:
        if replace:
            db.execute("DELETE FROM keys WHERE name = ?", (name,))
        try:
            db.execute(_INSERT, (key.id, name, key.hash, system_clock(), *scopes, expires_at))
        except sqlite3.IntegrityError as error:
            raise FreshetError(f"there is a key called {name} already: choose another name") from error
    return key.text


def revoke_key(data: Path, name: str) -> None:
    """Delete a key; the next request with it is refused. Raises FreshetError where there is none of that name."""
    with closing(sqlite3.connect(migrate_control(data), timeout=10)) as db, db:
        if not db.execute("DELETE FROM keys WHERE name = ?", (name,)).rowcount:
            raise FreshetError(f"there is no key called {name}: freshet keys list shows those that there are")


def list_keys(data: Path) -> list[StoredKey]:
    """All keys by name."""
    with closing(sqlite3.connect(migrate_control(data), timeout=10)) as db:
        return [
            StoredKey(name, identifier, _scope(projects), _scope(endpoints), json.loads(allow), *times)
            for name, identifier, projects, endpoints, allow, *times in db.execute(_SELECT)
        ]


def show_keys(keys: Sequence[StoredKey], as_json: bool) -> None:
    """Print keys for people, or as JSON."""
    if as_json:
        click.echo(json.dumps({"keys": [asdict(key) for key in keys]}))
        return
    click.echo(f"{'name':20} {'id':12} {'made':19} {'expires':19} {'last used':19} scope")
    now = system_clock()
    for key in keys:
        expired = key.expires_at is not None and key.expires_at <= now
        times = (key.created_at, key.expires_at, key.last_used_at)
        made, expires, used = ("-" if time is None else datetime_text(time) for time in times)
        click.echo(f"{key.name:20} {key.id:12} {made} {expires:19} {used:19} {_told(key)}{', EXPIRED' * expired}")


def _told(key: StoredKey) -> str:
    projects = "all projects" if key.projects is None else f"projects {' '.join(key.projects)}"
    endpoints = "all endpoints" if key.endpoints is None else f"endpoints {' '.join(key.endpoints)}"
    return f"{' and '.join(key.allow)}, {projects}, {endpoints}"


def _stored(scope: Sequence[str]) -> str | None:
    return json.dumps(sorted(set(scope))) if scope else None


def _scope(stored: str | None) -> list[str] | None:
    return None if stored is None else json.loads(stored)


_INSERT = """
INSERT INTO keys (id, name, hash, created_at, projects, endpoints, allow, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT = """
SELECT name, id, projects, endpoints, allow, created_at, expires_at, last_used_at FROM keys ORDER BY name
"""
