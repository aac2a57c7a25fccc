"""Following entries: each once, in the order in which they came, whatever is sealed and wherever one resumes."""

import json
import random
from contextlib import closing
from pathlib import Path

import pytest
from oracle import Record
from test_api_reader import NOW, fill

from api.arrivals import MOST_BLOCKS, Follower, Step
from api.matching_entries import Filters
from schema.arrivals import FOLLOWED_BLOCKS, Place
from schema.clock import system_clock
from schema.tables import current_generation, store_path
from schema.timestamps import HOUR, SECOND
from streams.sealing import GRACE, Sealer, commit
from streams.store import Store

ALL = Filters(None, None, None, None, None)
OVER = NOW // HOUR * HOUR - 2 * HOUR


class Log:
    """A store that gets numbered entries, batch by batch; nobody has it open in between."""

    def __init__(self, data: Path) -> None:
        self.data, self.sent = data, 0
        fill(data, [])

    def send(self, *batches: int, project: str = "p", at: int = OVER, **fields: object) -> None:
        """Apply batches of so many entries, with times all over an hour."""
        made = []
        for count in batches:
            records = []
            for number in range(self.sent, self.sent + count):
                time = at + (number * 7919 % 3599) * SECOND
                event = {"id": str(number), "timestamp": time, "project": project, "event_message": f"number {number}"}
                records.append(Record("edge", 0, number, 0, json.dumps({**event, **fields}).encode()))
            self.sent += count
            made.append(records)
        fill(self.data, made)

    def seal(self, closing_too: bool) -> None:
        """Merge what there is to merge, in hours that are over as well or not."""
        now = OVER + HOUR + GRACE if closing_too else OVER
        path = store_path(self.data, current_generation(self.data))
        with closing(Store(path, system_clock)) as store, closing(Sealer(path, lambda: now, close_every=0)) as sealer:
            before = sealer._round
            while sealer._round is before:
                commit(store, sealer.prepare())

    def after(self, place: Place | None, project: str = "p", filters: Filters = ALL) -> Step:
        """What a follower is told; without a place the end."""
        follower = Follower(self.data)
        try:
            return Step([], follower.end(), False) if place is None else follower.step(place, project, filters)
        finally:
            follower.close()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def told(step: Step) -> list[int]:
    assert not step.missed
    return [int(row.id) for _, rows in step.lots for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_every_entry_is_told_once_in_order_from_every_place_while_blocks_are_merged(log: Log, seed: int) -> None:
    chance = random.Random(seed)
    log.send(*[chance.randint(1, 9) for _ in range(chance.randint(0, 40))])
    place = log.after(None).place
    first = log.sent
    followed: list[int] = []
    places = [(place, 0)]
    for _ in range(25):
        log.send(*[chance.randint(1, 9) for _ in range(chance.randint(0, 12))])
        if chance.random() < 0.3:
            log.send(chance.randint(1, 3), project="another")
        for _ in range(chance.randint(0, 2)):
            log.seal(closing_too=chance.random() < 0.4)
        if chance.random() < 0.6:
            step = log.after(place)
            for at, rows in step.lots:
                followed += [int(row.id) for row in rows]
                places.append((at, len(followed)))
            place = step.place
            places.append((place, len(followed)))
    followed += told(log.after(place))
    others = set(told(log.after(places[0][0], "another")))
    assert others
    assert set(followed) | others == set(range(first, log.sent))
    assert len(followed) == len(set(followed))
    log.seal(closing_too=True)
    for at, count in places:
        assert told(log.after(at)) == followed[count:]


def test_entries_that_were_merged_before_they_were_looked_at_are_told_in_the_order_in_which_they_came(log: Log) -> None:
    start = log.after(None).place
    log.send(*[1] * 200)
    log.seal(closing_too=True)
    step = log.after(start)
    assert told(step) == list(range(200))
    assert len(step.lots) == 2
    assert all(told(log.after(at)) == list(range(int(rows[-1].id) + 1, 200)) for at, rows in step.lots)


def test_filters_hold_and_the_place_moves_on_past_what_they_leave_out(log: Log) -> None:
    start = log.after(None).place
    log.send(20, metadata={"response": {"status_code": 200}})
    log.send(3, metadata={"response": {"status_code": 500}})
    step = log.after(start, filters=ALL._replace(min_status=500))
    assert sorted(told(step)) == [20, 21, 22]
    assert sorted(told(log.after(start, filters=ALL._replace(text="NUMBER 1")))) == [1, *range(10, 20)]
    nothing = log.after(start, filters=ALL._replace(min_status=600))
    assert (told(nothing), nothing.place) == ([], step.place)


def test_who_is_too_far_behind_or_followed_other_tables_is_told_so_and_goes_on_from_now(log: Log) -> None:
    log.send(1)
    start = log.after(None).place
    assert log.after(start._replace(generation=2)).missed
    log.send(*[1] * (MOST_BLOCKS + 1))
    step = log.after(start)
    assert (step.missed, step.lots) == (True, [])
    assert told(log.after(step.place)) == []
    assert log.after(Place(1, step.place.block - FOLLOWED_BLOCKS - 1)).missed
    assert told(log.after(Place(1, step.place.block + 5))) == []
