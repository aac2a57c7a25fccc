"""`freshet rejects list`, `show` and `export`, and `GET /api/rejects`, over a store with rejects of every sort."""

import asyncio
import base64
import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_api_http import Api, error_in
from test_ops_cli import complaint, freshet

from ops.keys import add_key
from schema.decoding import decode_functions
from schema.events import PlacedReject, Source
from schema.messages import Reject
from schema.retention import INVOCATIONS
from schema.shown import shown
from schema.tables import migrate
from schema.timestamps import HOUR, datetime_text
from streams.batch import Topic
from streams.fold import fold_invocations
from streams.rejects import Wanted, messages
from streams.retry import CUT, NOT_READ, Retry
from streams.retry_log import NoLog
from streams.store import FoldedBatch, Store

NOW = 1_750_000_000_123_456
EDGE, FUNCTIONS = Source("log-1", "edge", 0), Source("log-1", "functions", 3)
HOSTILE = b'{"a": "\x1b]0;owned\x07\r\n\xe2\x80\xae\x9b31m \xff \\u001b"}'
OLD = json.dumps({"timestamp": NOW - HOUR, "metadata": {"project_ref": "p", "response": {}}}).encode()


@dataclass
class Shelf:
    """A folder whose data hold rejects."""

    folder: Path

    def rejects(self, *words: str) -> Any:
        """What a command prints as JSON."""
        done = freshet(self.folder, "rejects", *words, "--json")
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)


def fill(data: Path) -> None:
    """Rejects 1 to 40 of edge, an hour apart, then three of functions."""
    with closing(Store(migrate(data), lambda: NOW)) as store:
        store.open_positions({EDGE: 0, FUNCTIONS: 0})
        for number in range(40):
            store._clock = lambda at=NOW + number * HOUR: at  # type: ignore[misc]
            reject = PlacedReject(number, Reject(-1, "not_json", b"x" * 50 * number + b"\n"), NOW // 1000)
            assert store.apply(
                FoldedBatch(EDGE, number, number + 1, 40, rejects=[reject], counts={"reject.not_json": 1})
            )
        of_functions = [
            PlacedReject(7, Reject(2, "future", HOSTILE), 0),
            PlacedReject(8, Reject(0, "too_large", b"y" * 5000), NOW // 1000),
            PlacedReject(9, Reject(0, "too_deep", OLD), NOW // 1000),
        ]
        counts = {"reject.future": 1, "reject.too_large": 1, "reject.too_deep": 2, "retried.too_deep": 1}
        assert store.apply(FoldedBatch(FUNCTIONS, 0, 10, 10, rejects=of_functions, counts=counts))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    folder = tmp_path_factory.mktemp("shelf")
    fill(folder / "data")
    return Shelf(folder)


def test_the_newest_are_listed_below_the_counts_and_nothing_raw(shelf: Shelf) -> None:
    done = freshet(shelf.folder, "rejects", "list", "--limit", "4")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "edge: not_json 40 kept"
    assert "functions: too_deep 1 kept, 1 retried" in lines
    assert [line.split()[0] for line in lines[-5:-1]] == ["43", "42", "41", "40"]
    assert lines[-1] == "the newest 4 of 43: --limit shows more"
    assert "functions[3] 7:2" in lines[-3]
    assert done.stdout.replace("\n", "").isprintable()
    assert max(map(len, lines)) < 180


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), range(24, 44)),
        (("--limit", "0"), ()),
        (("--reason", "future", "--reason", "too_deep"), (41, 43)),
        (("--topic", "functions"), (41, 42, 43)),
        (("--topic", "functions", "--reason", "not_json"), ()),
        (("--partition", "3", "--offset", "8"), (42,)),
        (("--offset", "8"), (9, 42)),
        (("--until", datetime_text(NOW + 2 * HOUR)), (1, 2)),
        (("--since", datetime_text(NOW + 38 * HOUR), "--topic", "edge"), (39, 40)),
        (("--since", "1h"), ()),
        (("--until", "1h", "--partition", "3"), (41, 42, 43)),
        (("--reason", "' OR 1 --"), ()),
    ],
)
def test_filters_choose(shelf: Shelf, words: tuple[str, ...], expected: Any) -> None:
    told = shelf.rejects("list", *words)
    assert [one["id"] for one in told["rejects"]] == sorted(expected, reverse=True)
    if words and words[0] != "--limit":
        assert told["kept"] == len(expected) == sum(one["kept"] for one in told["counts"])


def test_what_is_no_time_is_told_so(shelf: Shelf) -> None:
    assert complaint(shelf.folder, "rejects", "list", "--since", "yesterday").startswith(
        "--since is 'yesterday': it must"
    )


def test_one_is_shown_with_its_place_reason_and_bytes(shelf: Shelf) -> None:
    done = freshet(shelf.folder, "rejects", "show", "41")
    assert "reject 41: future, element 2\nfrom functions[3], offset 7, log log-1\n" in done.stdout
    assert done.stdout.splitlines()[-1] == shown(HOSTILE)
    assert done.stdout.replace("\n", "").isprintable()
    whole = freshet(shelf.folder, "rejects", "show", "42").stdout
    assert "5,000 bytes, of which the first 4,096 are kept:\n" in whole
    told = shelf.rejects("show", "41")
    assert base64.b64decode(told["data"]) == HOSTILE
    assert (told["encoding"], told["element"], told["time"], told["size"]) == (
        "base64",
        2,
        NOW + 39 * HOUR,
        len(HOSTILE),
    )
    assert "there is no reject 44" in complaint(shelf.folder, "rejects", "show", "44")


def test_an_export_has_all_of_them_and_overwrites_nothing(shelf: Shelf, tmp_path: Path) -> None:
    file = tmp_path / "rejects.ndjson"
    done = freshet(shelf.folder, "rejects", "export", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"43 rejects in {file}\n")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(43, 0, -1))
    assert rows[0]["data"] == OLD.decode()
    assert {"topic", "partition", "offset", "element", "reason", "time", "data", "encoding"} <= rows[0].keys()
    assert complaint(shelf.folder, "rejects", "export", str(file)) == f"{file} is there already: name another file"
    piped = freshet(shelf.folder, "rejects", "export", "-", "--topic", "functions")
    assert [json.loads(line)["id"] for line in piped.stdout.splitlines()] == [43, 42, 41]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_a_store_it_is_said(tmp_path: Path) -> None:
    for words in (("list",), ("show", "1"), ("export", "-"), ("retry",)):
        assert "there is no database in" in complaint(tmp_path, "rejects", *words)
    assert list(tmp_path.iterdir()) == []


def test_text_of_unknown_origin_is_shown_as_what_can_be_printed() -> None:
    assert shown('{"a": "ü\t\x1b[31m\u202e"}\n'.encode() + b"\xff\x00") == r'{"a": "ü\t\x1b[31m\u202e"}\n\xff\x00'
    assert shown("日本語".encode(), 3) == "日本語"
    assert shown(b"abcdef", 4) == "abc…"
    assert shown(b"\x00" * 10, 12) == r"\x00\x00\x0…"


def test_without_a_log_a_retry_takes_the_kept_bytes_and_keeps_to_the_horizons(tmp_path: Path) -> None:
    fill(tmp_path)
    topics: Any = {"functions": Topic(decode_functions, fold_invocations)}
    with closing(Store(migrate(tmp_path), lambda: NOW)) as store:
        store.advance_horizons({(INVOCATIONS, 1): NOW, (INVOCATIONS, 60): NOW - 30 * 60 * 1_000_000})
        retry = Retry(store, NoLog(), topics, lambda: NOW)
        for source, ids in messages(store.connection, Wanted()):
            asyncio.run(retry.message(source, ids))
        told = retry.retried
    assert (dict(told.folded), told.events, told.impossible[NOT_READ]) == ({"too_deep": 1}, 1, 40)
    assert dict(told.still) == {"future": 1}
    with closing(sqlite3.connect(tmp_path / "freshet-1.db")) as db:
        assert db.execute("SELECT grain, count FROM invocations ORDER BY grain").fetchall() == [(3600, 1), (86400, 1)]
        counters = dict(db.execute("SELECT name, count FROM counters WHERE topic = 'functions'"))
    assert counters == {
        **{"reject.future": 1, "reject.too_large": 1, "reject.too_deep": 2, "retried.too_deep": 2},
        **{"events": 1, "expired.invocations.1": 1, "expired.invocations.60": 1},
    }


def test_without_a_log_there_is_nothing_to_retry_where_redaction_left_a_length_alone(tmp_path: Path) -> None:
    topic: Any = Topic(decode_functions, fold_invocations).redacting(["tokens"])
    bad = json.dumps({"timestamp": "token=x", "metadata": {"project_ref": "p", "response": {}}}).encode()
    received = [
        SimpleNamespace(offset=at, timestamp=NOW // 1000, value=one) for at, one in enumerate((b"token=x", bad))
    ]
    with closing(Store(migrate(tmp_path), lambda: NOW)) as store:
        store.open_positions({FUNCTIONS: 0})
        assert store.apply(FoldedBatch(FUNCTIONS, 0, 2, 2, rejects=topic.decode(FUNCTIONS, received).rejects))
        retry = Retry(store, NoLog(), {"functions": topic}, lambda: NOW)
        for source, ids in messages(store.connection, Wanted()):
            asyncio.run(retry.message(source, ids))
    assert (dict(retry.retried.impossible), dict(retry.retried.still)) == ({CUT: 1}, {"bad_timestamp": 1})


@pytest.fixture(scope="module")
def api(shelf: Shelf) -> Iterator[tuple[Api, str]]:
    key = add_key(shelf.folder / "data", "all")
    with Api(shelf.folder) as api:
        yield api, key


def test_the_api_tells_counts_and_the_newest(api: tuple[Api, str]) -> None:
    reply = api[0].get("/api/rejects?limit=3", {"X-API-KEY": api[1]})
    assert reply.status == 200
    assert reply.body["counts"] == [
        {"topic": "edge", "reason": "not_json", "count": 40, "retried": 0, "kept": 40},
        {"topic": "functions", "reason": "future", "count": 1, "retried": 0, "kept": 1},
        {"topic": "functions", "reason": "too_deep", "count": 2, "retried": 1, "kept": 1},
        {"topic": "functions", "reason": "too_large", "count": 1, "retried": 0, "kept": 1},
    ]
    assert [one["id"] for one in reply.body["rejects"]] == [43, 42, 41]
    assert reply.body["rejects"][2] == {
        **{"id": 41, "topic": "functions", "partition": 3, "offset": 7, "element": 2, "reason": "future"},
        **{"time": NOW + 39 * HOUR, "bytes": len(HOSTILE), "sample": shown(HOSTILE)},
    }
    assert len(reply.body["rejects"][1]["sample"]) == 120
    metrics = api[0].get("/metrics").content.decode()
    assert 'freshet_rejects_total{reason="too_deep",topic="functions"} 2.0' in metrics
    assert 'freshet_retried_rejects_total{reason="too_deep",topic="functions"} 1.0' in metrics
    assert len(api[0].get("/api/rejects", {"X-API-KEY": api[1]}).body["rejects"]) == 20


def test_only_a_key_without_any_scope_sees_rejects(api: tuple[Api, str], shelf: Shelf) -> None:
    data = shelf.folder / "data"
    for key in (
        add_key(data, "one project", projects=["p"]),
        add_key(data, "ingest", allow=["ingest"]),
        add_key(data, "one endpoint", endpoints=["logs.all"]),
    ):
        assert error_in(api[0].get("/api/rejects", {"X-API-KEY": key}), 403)["status"] == "PERMISSION_DENIED"
    assert error_in(api[0].get("/api/rejects"), 401)
    for limit in ("0", "101", "x", "1&limit=2"):
        answer = error_in(api[0].get(f"/api/rejects?limit={limit}", {"X-API-KEY": api[1]}), 400)
        assert answer["errors"][0]["parameter"] == "limit"
