"""The rejects of a topic whose log is cut, taken over by a replay (docs/decisions/0010-retry.md).

What the replay reads it decodes anew, and a message rejected before may be decoded now: its events from the cut on are
in the new tables then, those before it are not, since the tables that are kept never had them.
"""

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from schema.events import Source
from streams.adding import KEPT_REJECTS

_COLUMNS = 'log, topic, partition, "offset", element, timestamp, reason, rejected_at, size, data, folded_from'


class Replayed(NamedTuple):
    """A partition's part in a replay: read from this offset on, events before the cut (µs) left out."""

    start: int
    cut: int


def take_over_rejects(
    old: sqlite3.Connection, new: sqlite3.Connection, topic: str, replayed: Mapping[Source, Replayed]
) -> None:
    """Have the new store keep the rejects of the old, each with what the replay has folded of it.

    One that the replay has made again still is one, with the bytes that the replay keeps of it: they may be redacted
    now. Where it has made more than are kept, those older than what is kept can't be told, and go.
    """
    places = 'SELECT log, topic, partition, "offset", element, size, data, folded_from FROM rejects WHERE topic = ?'
    made = {(Source(*row[:3]), row[3], row[4]): row[5:] for row in new.execute(places, (topic,))}
    (last,) = new.execute("SELECT coalesce(max(id), 0) FROM rejects").fetchone()
    told_from: dict[Source, int] = {}
    if last >= KEPT_REJECTS:
        told_from = dict.fromkeys(replayed, 1 << 62)
        for source, offset, _ in made:
            told_from[source] = min(told_from.get(source, offset + 1), offset + 1)
    new.execute("DELETE FROM rejects WHERE topic = ?", (topic,))
    for *row, folded_from in old.execute(f"SELECT {_COLUMNS} FROM rejects WHERE topic = ? ORDER BY id", (topic,)):  # noqa: S608
        source, offset, element = Source(*row[:3]), row[3], row[4]
        part, place = replayed.get(source), (source, offset, element)
        if place in made:  # by the replay; or taken over by an earlier attempt, which may have noted something
            size, data, noted = made[place]
            row[-2:] = size, data
            folded_from = folded_from if noted is None else noted
        elif part is not None and offset >= part.start:
            if offset < told_from.get(source, 0):
                continue
            folded_from = part.cut if folded_from is None else min(folded_from, part.cut)
        new.execute(f"INSERT INTO rejects ({_COLUMNS}) VALUES ({', '.join('?' * 11)})", (*row, folded_from))  # noqa: S608
