"""Deduplication decides by the log's order alone, however batches are cut, wherever a worker dies, whoever goes on."""

import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schema.blocks import Decompressor, unpack_entries
from schema.decoding import decode_edge, decode_functions
from schema.events import Source
from schema.tables import migrate
from streams import duplicates
from streams.batch import FetchedBatch, Topic
from streams.duplicates import MARK_BYTES, RecentIds, StoredIds
from streams.fold import fold_edge, fold_invocations
from streams.packing import Packer
from streams.store import Store

NOW = 1_750_000_000_123
SOURCE = Source("log", "edge", 0)
EDGE, FUNCTIONS = Topic(decode_edge, fold_edge), Topic(decode_functions, fold_invocations)
WINDOW = 600_000
MINUTE = 60_000
NAMES = st.sampled_from(["a", "b", "c", "1a"])
TIMES = st.one_of(
    st.sampled_from([-1, 0, 1, NOW, NOW + WINDOW, NOW + WINDOW + MINUTE - NOW % MINUTE, NOW + WINDOW + MINUTE]),
    st.integers(NOW, NOW + 3 * WINDOW),
)
SIGHTINGS = st.lists(st.tuples(st.sampled_from(["", "1", "p"]), NAMES, TIMES), max_size=60)
CUTS = st.lists(st.integers(0, 60), max_size=8)
Sighting = tuple[str, str, int]


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes


def brute_force(sightings: Sequence[Sighting], window: int, most: int) -> list[bool]:
    """Whether each is a duplicate, by the words of the module and of the decision's page."""
    taken: list[tuple[str, str, int]] = []
    decisions = []
    slot = 0
    for project, identity, timestamp in sightings:
        slot = max(slot, timestamp // (window // 10))
        known = [(p, i) for p, i, then in taken if slot - then <= 10][-most:]
        duplicate = (project, identity) in known
        if not duplicate:
            taken = [*taken[-most:], (project, identity, slot)]
        decisions.append(duplicate)
    return decisions


def batches_of(sightings: Sequence[Sighting], cuts: Sequence[int]) -> list[tuple[int, Sequence[Sighting]]]:
    edges = sorted({0, *(cut for cut in cuts if cut <= len(sightings)), len(sightings)})
    return [(start, sightings[start:end]) for start, end in itertools.pairwise(edges)]


@settings(max_examples=1000, deadline=None)
@example([("p", "a", NOW), ("p", "b", NOW), ("p", "a", NOW), ("p", "a", NOW)], [3], 1, WINDOW)
@given(SIGHTINGS, CUTS, st.sampled_from([1, 3, 1 << 20]), st.sampled_from([WINDOW, 3_600_000]))
def test_any_cut_with_the_ids_loaded_anew_before_each_batch_decides_as_brute_force(
    sightings: list[Sighting], cuts: list[int], most: int, window: int
) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(
            "CREATE TABLE recent_ids (log, topic, partition, time, offset, marks, "
            "PRIMARY KEY (log, topic, partition, time, offset))"
        )
        kept_in_memory = RecentIds(window, 0, most=most)
        decisions: dict[str, list[bool]] = {"loaded": [], "kept": []}
        for start, part in batches_of(sightings, cuts):
            loaded = RecentIds(window, start, duplicates.load(db, SOURCE), most)
            for name, ids in (("loaded", loaded), ("kept", kept_in_memory)):
                assert ids.position == start
                ids.begin(start)
                decisions[name] += [ids.is_duplicate(*sighting) for sighting in part]
                changes = ids.end(start + len(part))
                if name == "loaded" and changes is not None:
                    duplicates.save(db, SOURCE, changes)
        expected = brute_force(sightings, window, most)
        assert decisions == {"loaded": expected, "kept": expected}


def test_an_id_is_known_for_the_window_and_at_most_a_tenth_longer() -> None:
    for past, known in ((WINDOW, True), (WINDOW + MINUTE, False)):
        ids = RecentIds(WINDOW, 0)
        assert [ids.is_duplicate("p", "a", NOW), ids.is_duplicate("p", "a", NOW + past)] == [False, known]


def test_a_late_record_is_judged_at_the_partitions_time() -> None:
    ids = RecentIds(WINDOW, 0)
    assert not ids.is_duplicate("p", "a", NOW)
    assert not ids.is_duplicate("p", "b", NOW + 2 * WINDOW)
    assert not ids.is_duplicate("p", "a", NOW)
    assert ids.is_duplicate("p", "a", 0)


def test_what_has_expired_goes_from_disk_and_the_newest_slot_stays(tmp_path: Path) -> None:
    with closing(Store(migrate(tmp_path), lambda: NOW)) as store:
        ids = RecentIds(WINDOW, 0)
        kept = []
        for number in range(40):
            ids.begin(number)
            ids.is_duplicate("p", str(number), NOW + number * MINUTE)
            changes = ids.end(number + 1)
            assert changes is not None
            with store.transaction() as db:
                duplicates.save(db, SOURCE, changes)
                kept.append(len(duplicates.load(db, SOURCE)))
        assert kept == [*range(1, 12), *[11] * 29]


def test_memory_and_disk_hold_the_newest_ids_up_to_the_bound() -> None:
    ids = RecentIds(WINDOW, 0, most=100)
    stored: list[StoredIds] = []
    for start in range(0, 1000, 10):
        ids.begin(start)
        assert not any(ids.is_duplicate("p", str(number), NOW) for number in range(start, start + 10))
        changes = ids.end(start + 10)
        assert changes is not None
        stored = [row for row in [*stored, *changes.added] if row[:2] >= changes.first]
        assert sum(len(row.marks) for row in stored) <= 110 * MARK_BYTES
    assert [ids.is_duplicate("p", number, NOW) for number in ("900", "999", "899")] == [True, True, False]


ELEMENTS = st.one_of(
    st.builds(lambda p, i: {"project": p, "id": i}, st.sampled_from(["p", "q"]), NAMES),
    st.builds(lambda i: {"project": "p", "id": i}, st.sampled_from([None, "", 5, "5", 1.5, True, {"a": 1}])),
    st.just({"project": "p"}),
    st.just({"project": "p", "id": "rejected", "timestamp": "no time"}),
)
VALUES = st.one_of(
    st.builds(lambda element: msgspec.json.encode({"timestamp": NOW, **element}), ELEMENTS),
    st.builds(
        lambda many: msgspec.json.encode([{"timestamp": NOW, **one} for one in many]), st.lists(ELEMENTS, max_size=4)
    ),
    st.builds(
        lambda many: b"\n".join(msgspec.json.encode({"timestamp": NOW, **one}) for one in many),
        st.lists(ELEMENTS, min_size=2, max_size=4),
    ),
    st.sampled_from([b"", b"poison"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(VALUES, TIMES), min_size=1, max_size=30), st.data())
def test_crashes_other_workers_and_replays_in_other_cuts_store_the_same(
    values: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    records = [Received(offset, time, value) for offset, (value, time) in enumerate(values)]
    contents = []
    for number in range(2):
        with TemporaryDirectory() as folder:
            cuts = data.draw(st.lists(st.integers(1, len(records)), max_size=6), label=f"cuts {number}")
            contents.append(_applied(Path(folder), records, sorted({*cuts, len(records)}), data))
    assert contents[0] == contents[1]


def _applied(folder: Path, records: list[Received], ends: list[int], data: st.DataObject) -> list[object]:
    """The content of a store to which batches up to these ends were applied, some twice, by workers that die."""
    path = migrate(folder)
    workers = [closing(Store(path, lambda: NOW)) for _ in range(2)]
    with workers[0] as first, workers[1] as second:
        first.open_positions({SOURCE: 0})
        ids = duplicates.recent_ids(first.connection, SOURCE, WINDOW, 0)
        start = 0
        for end in ends:
            batch = FetchedBatch(SOURCE, start, end, end, 0, records[start:end])
            if data.draw(st.booleans(), label="dies before the commit"):
                EDGE.folded(batch, Packer(), recent=ids)
                ids = duplicates.recent_ids(second.connection, SOURCE, WINDOW, start)
            folded = EDGE.folded(batch, Packer(), recent=ids)
            assert second.apply(folded)
            assert not first.apply(folded)
            if data.draw(st.booleans(), label="dies after the commit"):
                ids = duplicates.recent_ids(first.connection, SOURCE, WINDOW, end)
            start = end
        with first.transaction() as db:
            entries = [
                entry
                for count, payload in db.execute("SELECT count, payload FROM entry_blocks")
                for entry in unpack_entries(Decompressor().decompress(payload), count, payload)
            ]
            marks = b"".join(row.marks for row in duplicates.load(db, SOURCE))
            return [sorted(entries), db.execute("SELECT * FROM counters ORDER BY name").fetchall(), marks]


@pytest.mark.parametrize("topic", [EDGE, FUNCTIONS])
def test_duplicates_within_a_message_and_a_batch_count_once_and_by_name(topic: Topic) -> None:  # type: ignore[type-arg]
    def element(identity: object, project: str = "p") -> dict[str, object]:
        metadata = {"project_ref": project, "response": {"status_code": 200}}
        return {"timestamp": NOW, "project": project, "id": identity, "metadata": metadata}

    values = [
        msgspec.json.encode([element("a"), element("a"), element("a", "q"), element(None), element(None)]),
        msgspec.json.encode({"batch": [element("a"), element(""), element(""), element(7), element("7")]}),
        b"\n".join([msgspec.json.encode(element("b")), msgspec.json.encode(element("b"))]),
    ]
    records = [Received(offset, NOW, value) for offset, value in enumerate(values)]
    batch = FetchedBatch(SOURCE, 0, 3, 3, 0, records)
    counts = topic.folded(batch, Packer(), recent=RecentIds(WINDOW, 0)).counts
    assert (counts["events"], counts["duplicate"]) == (8, 4)
    assert "duplicate" not in topic.folded(batch, Packer()).counts
