"""logs.all as the reader computes it, against the oracle, on small stores cut in every way."""

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import DAY, HOUR, MINUTE, SECOND, TIERS, Oracle, Record, rows_agree
from test_api_reader import LOG, SET_GENERATION, fill, in_another_process, reading

from api.bodies import body
from api.deadline import Deadline
from api.reader import Reader
from api.recent_entries import recent_entries
from schema.blocks import Decompressor, train_dictionary
from schema.clock import system_clock
from schema.decoding import ID_NAMESPACE
from schema.errors import QueryTimeout
from schema.saved_queries import load_saved_queries
from schema.tables import control_path, migrate, store_path
from streams.packing import Packer
from streams.sealing import Sealer, commit
from streams.store import Store

QUERY = load_saved_queries()["logs.all"]
NOW = 1_750_000_000_123_456
"""2025-06-15T15:06:40.123456Z"""
RETENTIONS = sorted(set(TIERS.values()))
IDS = ("a", "b", "B", "é", "10", 9, None, "")
MESSAGES = ("", "GET | 200", "zwei\nZeilen", None, {"as": ["an", "object"]}, 1.5)
METADATA: tuple[Any, ...] = ({}, {"request": {"path": "/rest/é"}}, [{"request": [{}]}], None, "text")
steps = st.sampled_from((-1, 0, 0, 1))


class Group(NamedTuple):
    """Entries of one moment, that many µs ago, in one project; ties by the dozen."""

    age: int
    size: int
    project: str
    seed: int
    batches: tuple[int, int]


@st.composite
def groups(draw: st.DrawFn, now: int) -> Group:
    edge = now - draw(st.sampled_from((0, 0, 0, *RETENTIONS)))
    grain = draw(st.sampled_from((1, MINUTE, HOUR, DAY)))
    edge += draw(st.sampled_from((0, grain))) - edge % grain
    age = now - edge - draw(steps) - draw(st.sampled_from((0, 0, 0, SECOND, HOUR)))
    batches = draw(st.sampled_from(((0, 0), (0, 1), (1, 1), (0, 2), (2, 2))))
    return Group(
        age, draw(st.sampled_from((1, 2, 7, 60, 129))), draw(st.sampled_from("pppq")), draw(st.integers(0, 9)), batches
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Group]]:
    grain = draw(st.sampled_from((1, SECOND, MINUTE, HOUR, DAY)))
    now = NOW - NOW % grain + draw(st.sampled_from((-1, 0, 1)))
    return now, draw(st.lists(groups(now), max_size=6))


def entries(now: int, groups: list[Group]) -> dict[int, list[Record]]:
    """The entries of all groups, each in one of its group's batches."""
    batches: dict[int, list[Record]] = {}
    offset = 0
    for group in groups:
        chance = Random(group.seed)
        for _ in range(group.size):
            fields = {
                "id": chance.choice(IDS),
                "event_message": chance.choice(MESSAGES),
                "metadata": chance.choice(METADATA),
            }
            event = {"timestamp": now - group.age, "project": group.project, **fields}
            record = Record("edge", 0, offset, 0, json.dumps(event, ensure_ascii=chance.random() < 0.5).encode())
            batches.setdefault(chance.choice(group.batches), []).append(record)
            offset += 1
    return batches


def stored(data: Path, batches: dict[int, list[Record]], packers: list[Packer] | None = None) -> Oracle:
    """Fill a store and an oracle, the batches in turn with each of the packers."""
    oracle = Oracle(LOG, "edge", "functions")
    migrate(data)
    for number, records in enumerate(batches.values()):
        oracle.feed(records)
        fill(data, [records], packers[number % len(packers)] if packers else None)
    return oracle


def answered(
    reader: Reader, now: int, project: str, tier: str | None, start: int | None = None, end: int | None = None
) -> list[dict[str, Any]]:
    """The rows as a client reads them."""
    parameters = {"project": project, "project_tier": tier, "iso_timestamp_start": start, "iso_timestamp_end": end}
    rows: list[dict[str, Any]] = json.loads(body(QUERY, reader.run(QUERY, parameters, None, now, 10)))["result"]
    return rows


def dictionaries(data: Path, *names: str) -> list[Packer]:
    """Packers without a dictionary and with each of some, which are kept in the store."""
    packers = [Packer()]
    for name in names:
        samples = [
            f'{{"project":"p","id":"{name}-{n}","metadata":{{"request":{{"path":"/{name}/{n % 7}"}}}}}}'
            for n in range(2000)
        ]
        content = train_dictionary([sample.encode() for sample in samples])
        with closing(sqlite3.connect(migrate(data))) as db, db:
            number = db.execute("INSERT INTO dictionaries (trained_at, content) VALUES (0, ?)", (content,)).lastrowid
        assert number
        packers.append(Packer(number, content))
    return packers


def test_entries_of_sealed_blocks_are_shown_as_they_came(tmp_path: Path) -> None:
    oracle = Oracle(LOG, "edge", "functions")
    chance = Random(1)
    records = []
    for number in range(300):
        identity = str(UUID(int=chance.getrandbits(128)))
        fields = {"id": identity.upper() if number % 3 else identity, "metadata": {"request_id": identity}}
        event = {"timestamp": NOW - number % 70, "project": "p", "event_message": MESSAGES[0], **fields}
        records.append(Record("edge", 0, number, 0, json.dumps(event, indent=number % 2 or None).encode()))
    oracle.feed(records)
    fill(tmp_path, [records[start : start + 10] for start in range(0, 300, 10)])
    path = migrate(tmp_path)
    with closing(Store(path, system_clock)) as store, closing(Sealer(path, system_clock, close_every=0)) as sealer:
        while merges := sealer.prepare():
            commit(store, merges)
        sealed = store.connection.execute("SELECT min(sealed), min(count) FROM entry_blocks").fetchall()
    assert sealed == [(1, 100)]
    with reading(tmp_path) as reader:
        rows_agree(answered(reader, NOW, "p", "FREE"), oracle.logs_all(NOW, "p", "FREE"))


@settings(max_examples=60, deadline=None)
@given(histories(), st.lists(st.tuples(steps, steps), min_size=1, max_size=3))
def test_entries_equal_the_oracle_however_they_are_cut_into_batches(
    history: tuple[int, list[Group]], beside: list[tuple[int, int]]
) -> None:
    now, groups = history
    times = [None, now, *{now - group.age for group in groups}]
    with tempfile.TemporaryDirectory() as folder:
        oracle = stored(Path(folder), entries(now, groups))
        with reading(Path(folder)) as reader:
            for tier in (*TIERS, None):
                rows_agree(answered(reader, now, "p", tier), oracle.logs_all(now, "p", tier))
            for (before, behind), start, end in (
                (step, start, end) for step in beside for start in times for end in times
            ):
                bounds = (None if start is None else start + before, None if end is None else end + behind)
                rows_agree(answered(reader, now, "p", "PAYG", *bounds), oracle.logs_all(now, "p", "PAYG", *bounds))


def test_blocks_with_several_dictionaries_are_read_side_by_side(tmp_path: Path) -> None:
    migrate(tmp_path)
    groups = [Group(minutes * MINUTE, 10, "p", minutes, (minutes, minutes)) for minutes in range(9)]
    oracle = stored(tmp_path, entries(NOW, groups), dictionaries(tmp_path, "first", "second"))
    reader = Reader(tmp_path)
    for _ in range(2):
        rows = answered(reader, NOW, "p", "FREE")
        assert len(rows) == 90
        rows_agree(rows, oracle.logs_all(NOW, "p", "FREE"))


def test_each_generation_has_dictionaries_of_its_own(tmp_path: Path) -> None:
    batches = entries(NOW, [Group(MINUTE, 9, "p", 1, (0, 0))])
    oracle = stored(tmp_path, batches, dictionaries(tmp_path, "old")[1:])
    with closing(sqlite3.connect(control_path(tmp_path))) as db, db:
        db.execute("UPDATE generation SET current = 2")
    stored(tmp_path, batches, dictionaries(tmp_path, "new")[1:])
    reader = Reader(tmp_path)
    for generation in (2, 1, 2):
        in_another_process(SET_GENERATION, tmp_path, generation)
        rows_agree(answered(reader, NOW, "p", "FREE"), oracle.logs_all(NOW, "p", "FREE"))


@pytest.mark.parametrize("tier", [*TIERS, None])
def test_an_entry_at_the_end_of_the_tier_window_is_left_out_and_one_a_microsecond_newer_is_not(
    tmp_path: Path, tier: str | None
) -> None:
    retention = TIERS[tier or "FREE"]
    ages = {retention + older: Group(retention + older, 1, "p", 0, (older, older)) for older in (-1, 0, 1)}
    stored(tmp_path, entries(NOW, list(ages.values())))
    reader = Reader(tmp_path)
    newest = [row["timestamp"] for row in answered(reader, NOW, "p", tier)]
    assert newest == [NOW - retention + 1]
    long_ago = [row["timestamp"] for row in answered(reader, NOW, "p", tier, 0)]
    assert long_ago == newest


def test_the_start_is_excluded_and_the_end_included(tmp_path: Path) -> None:
    stored(tmp_path, entries(NOW, [Group(age, 1, "p", 0, (0, 0)) for age in range(5)]))
    reader = Reader(tmp_path)
    rows = answered(reader, NOW, "p", "FREE", NOW - 3, NOW - 1)
    assert [NOW - row["timestamp"] for row in rows] == [1, 2]
    assert answered(reader, NOW, "p", "FREE", NOW - 3, NOW - 3) == []
    assert answered(reader, NOW, "p", "FREE", NOW - 1, NOW - 3) == []


def test_the_newest_hundred_of_more_on_one_moment_are_the_last_by_id_and_bytes(tmp_path: Path) -> None:
    batches = entries(NOW, [Group(0, 150, "p", 1, (0, 1)), Group(1, 50, "p", 2, (1, 2))])
    oracle = stored(tmp_path, batches)
    rows = answered(Reader(tmp_path), NOW, "p", "FREE")
    assert len(rows) == 100
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    rows_agree(rows, oracle.logs_all(NOW, "p", "FREE"))


def test_an_entry_without_an_id_has_the_same_one_however_batches_are_cut(tmp_path: Path) -> None:
    event = json.dumps({"timestamp": NOW, "project": "p", "event_message": "no id"}).encode()
    records = [Record("edge", 3, offset, 0, event) for offset in range(40, 44)]
    answers = []
    for name, cut in (("one", [records]), ("four", [[record] for record in records])):
        stored(tmp_path / name, dict(enumerate(cut)))
        answers.append(answered(Reader(tmp_path / name), NOW, "p", None))
    assert answers[0] == answers[1]
    ids = {row["id"] for row in answers[0]}
    assert ids == {str(uuid5(ID_NAMESPACE, f"{LOG}/edge/3/{offset}/0")) for offset in range(40, 44)}


def test_a_project_that_was_never_heard_of_has_no_entries(tmp_path: Path) -> None:
    stored(tmp_path, entries(NOW, [Group(0, 3, "p", 0, (0, 0))]))
    for project in ("P", "p ", "p\0", "", "q"):
        assert answered(Reader(tmp_path), NOW, project, "ENTERPRISE") == []


def test_reading_past_the_time_limit_is_given_up(tmp_path: Path) -> None:
    stored(tmp_path, entries(NOW, [Group(SECOND, 7, "p", 0, (0, 0))]))
    reader = Reader(tmp_path)
    parameters = {"project": "p", "project_tier": None, "iso_timestamp_start": None, "iso_timestamp_end": None}
    with pytest.raises(QueryTimeout):
        reader.run(QUERY, parameters, None, NOW, 0)
    assert len(answered(reader, NOW, "p", None)) == 7
    db = apsw.Connection(str(store_path(tmp_path, 1)), flags=apsw.SQLITE_OPEN_READONLY)

    def decompress(_: int, payload: bytes) -> bytes:
        return Decompressor().decompress(payload)

    with pytest.raises(QueryTimeout, match="longer than 0 s"):
        list(recent_entries(db, decompress, Deadline(0), "p", 0, None, 100))
    assert len(list(recent_entries(db, decompress, Deadline(10), "p", 0, None, 3))) == 3
    db.close()
