"""The last use of keys is written now and then, never back in time, and not lost where it can't be written at once."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from api.key_uses import KeyUses
from ops.keys import add_key
from schema.keys import split_key

READ = "import sys; from ops.keys import *; print([key.last_used_at for key in list_keys(Path(sys.argv[1]))])"


def used(data: Path) -> str:
    """Asked in another process: this one has the database open through apsw."""
    return subprocess.check_output([sys.executable, "-c", READ, str(data)], text=True).strip()


def identifier(key: str) -> str:
    parts = split_key(key)
    assert parts is not None
    return parts[0]


def test_they_are_written_while_the_server_runs_and_when_it_stops(tmp_path: Path) -> None:
    one, two = (identifier(add_key(tmp_path, name)) for name in ("one", "two"))

    async def serve() -> None:
        uses = KeyUses(tmp_path, every_seconds=0.05)
        await uses.process_startup({}, {})
        uses.note(one, 5)
        uses.note(one, 7)
        while await asyncio.to_thread(used, tmp_path) != "[7, None]":
            await asyncio.sleep(0.01)
        uses.note(one, 6)
        uses.note(two, 8)
        uses.note("gone", 9)
        await uses.process_shutdown({}, {})

    asyncio.run(asyncio.wait_for(serve(), 30))
    assert used(tmp_path) == "[7, 8]"


def test_what_can_not_be_written_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uses = KeyUses(tmp_path)
    uses.note("early", 1)
    uses.write()
    assert "later perhaps" in caplog.text
    key = identifier(add_key(tmp_path, "one"))
    uses.note(key, 5)
    uses.write()
    assert used(tmp_path) == "[5]"
    caplog.clear()
    uses.write()
    assert not caplog.text


def test_without_a_use_nothing_is_opened_or_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    KeyUses(tmp_path / "nowhere").write()
    assert not caplog.text
    assert list(tmp_path.iterdir()) == []
