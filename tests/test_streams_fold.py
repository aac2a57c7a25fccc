"""The fold counts each event once in each bucket where it belongs, and cuts blocks by UTC hour."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.blocks import ENTRIES_PER_BLOCK, Entry
from schema.events import EdgeEvent, Invocation
from schema.histogram import cell_of
from schema.timestamps import HOUR, SECOND
from schema.url_blocks import Hit
from streams.fold import Deltas, InvocationDelta, fold_edge, fold_invocations

NOON = 1_750_003_200_000_000 // HOUR * HOUR
FIRST, LAST = 946_684_800_000_000, 4_133_980_799_999_999  # the years 2000 to 2100
GRAINS = {"invocations": (1, 60, 3600, 86_400), "origin_hits": (60, 3600, 86_400)}
MOMENTS = st.one_of(
    st.integers(NOON - 2 * HOUR, NOON + 2 * HOUR), st.integers(NOON - 2, NOON + 2), st.integers(FIRST, LAST)
)
INVOCATIONS = st.builds(
    Invocation,
    timestamp=MOMENTS,
    project=st.sampled_from(["p", "q"]),
    function=st.sampled_from(["", "f", "g"]),
    status=st.one_of(st.none(), st.integers(-1, 700)),
    execution_time=st.one_of(st.none(), st.integers(0, 10**7)),
)
REQUESTS = st.builds(
    EdgeEvent,
    timestamp=MOMENTS,
    project=st.sampled_from(["", "p", "q"]),
    url=st.sampled_from(["", "https://a/rest", "https://b/\n", "https://b/é"]),
    origin=st.sampled_from(["", "https://a", "https://b"]),
    families=st.integers(0, 15),
    missing_id=st.sampled_from([b"", b"0123456789abcdef"]),
    data=st.binary(max_size=3),
)


def request(timestamp: int, project: str = "p") -> EdgeEvent:
    return EdgeEvent(timestamp, project, "https://a/rest", "https://a", 1, b"", b"{}")


@given(st.lists(INVOCATIONS, max_size=40))
def test_an_invocation_counts_in_its_functions_and_in_its_projects_row_of_each_grain(events: list[Invocation]) -> None:
    deltas = fold_invocations(events).invocations
    expected: Counter[tuple[str, str, int, int]] = Counter()
    for event in events:
        for grain in GRAINS["invocations"]:
            bucket = event.timestamp - event.timestamp % (grain * SECOND)
            expected.update({(event.project, function, grain, bucket): 1 for function in {event.function, ""}})
    assert {key: delta.count for key, delta in deltas.items()} == expected


@given(st.lists(INVOCATIONS, min_size=1, max_size=40))
def test_a_bucket_holds_the_sums_of_its_events(events: list[Invocation]) -> None:
    for (project, function, grain, bucket), delta in fold_invocations(events).invocations.items():
        inside = [
            event
            for event in events
            if event.project == project
            and function in ("", event.function)
            and event.timestamp // (grain * SECOND) * grain * SECOND == bucket
        ]
        times = [event.execution_time for event in inside if event.execution_time is not None]
        statuses = [event.status for event in inside if event.status is not None]
        assert delta == InvocationDelta(
            count=len(inside),
            error_count=sum(status >= 400 for status in statuses),
            classes=[sum(status // 100 == hundred for status in statuses) for hundred in (1, 2, 3, 4, 5)],
            timed_count=len(times),
            sum_time=sum(times),
            min_time=min(times, default=None),
            max_time=max(times, default=None),
            cells=dict(Counter(cell_of((time + 500) // 1000) for time in times)),
        )


def test_an_invocation_without_a_function_counts_once_for_its_project() -> None:
    deltas = fold_invocations([Invocation(NOON, "p", "", 200, 1000)]).invocations
    assert {key[:3] for key in deltas} == {("p", "", grain) for grain in GRAINS["invocations"]}
    assert {delta.count for delta in deltas.values()} == {1}


@pytest.mark.parametrize(
    ("status", "errors", "classes"),
    [
        *((None, 0, [0] * 5), (99, 0, [0] * 5), (100, 0, [1, 0, 0, 0, 0]), (399, 0, [0, 0, 1, 0, 0])),
        *((400, 1, [0, 0, 0, 1, 0]), (599, 1, [0, 0, 0, 0, 1]), (600, 1, [0] * 5), (-1, 0, [0] * 5)),
    ],
)
def test_a_status_from_400_on_is_an_error(status: int | None, errors: int, classes: list[int]) -> None:
    delta = InvocationDelta()
    delta.add(status, None)
    assert (delta.error_count, delta.classes, delta.timed_count, delta.cells) == (errors, classes, 0, {})


@given(st.lists(REQUESTS, max_size=40))
def test_hits_are_counted_by_origin_and_families_in_each_grain(events: list[EdgeEvent]) -> None:
    assert fold_edge(events).origin_hits == Counter(
        (event.project, event.origin, grain, event.timestamp // (grain * SECOND) * grain * SECOND, event.families)
        for event in events
        for grain in GRAINS["origin_hits"]
    )


@given(st.lists(REQUESTS, max_size=60))
def test_an_entry_block_keeps_to_one_project_and_one_utc_hour_oldest_first(events: list[EdgeEvent]) -> None:
    blocks = fold_edge(events).entry_blocks
    for _, entries in blocks:
        assert len({entry.timestamp // HOUR for entry in entries}) == 1
        assert all(one.timestamp <= next_one.timestamp for one, next_one in pairwise(entries))
    assert len({(project, entries[0].timestamp // HOUR) for project, entries in blocks}) == len(blocks)
    assert Counter((project, entry) for project, entries in blocks for entry in entries) == Counter(
        (event.project, Entry(event.timestamp, event.missing_id, event.data)) for event in events
    )


@given(st.lists(REQUESTS, max_size=60))
def test_a_url_block_keeps_to_one_utc_hour_with_a_sorted_run_for_each_origin(events: list[EdgeEvent]) -> None:
    blocks = fold_edge(events).url_blocks
    found: Counter[tuple[str, str, Hit]] = Counter()
    for hour, runs in blocks:
        assert hour % HOUR == 0
        names = [(project, origin) for project, origin, _ in runs]
        assert names == sorted(set(names))
        for project, origin, urls in runs:
            for (families, url), times in urls.items():
                assert all(0 <= time < HOUR for time in times)
                found.update((project, origin, Hit(hour + time, families, url)) for time in times)
    assert len({hour for hour, _ in blocks}) == len(blocks)
    assert found == Counter(
        (event.project, event.origin, Hit(event.timestamp, event.families, event.url.encode())) for event in events
    )


@pytest.mark.parametrize("count", [1, 127, 128, 129, 256, 300])
def test_an_entry_block_holds_at_most_128_entries(count: int) -> None:
    blocks = fold_edge([request(NOON + number) for number in reversed(range(count))]).entry_blocks
    full, rest = divmod(count, ENTRIES_PER_BLOCK)
    assert ENTRIES_PER_BLOCK == 128
    assert [len(entries) for _, entries in blocks] == [128] * full + [rest] * (rest > 0)
    assert [entry.timestamp - NOON for _, entries in blocks for entry in entries] == list(range(count))


def test_a_late_event_makes_no_wide_block() -> None:
    deltas = fold_edge([request(NOON), request(NOON - 1), request(NOON + HOUR), request(NOON + HOUR - 1)])
    spans = [sorted(entry.timestamp - NOON for entry in entries) for _, entries in deltas.entry_blocks]
    assert sorted(spans) == [[-1], [0, HOUR - 1], [HOUR]]
    assert len(deltas.url_blocks) == 3


@given(st.lists(REQUESTS, max_size=20), st.lists(INVOCATIONS, max_size=20))
def test_folding_leaves_the_events_as_they_are(requests: list[EdgeEvent], invocations: list[Invocation]) -> None:
    before = list(requests), list(invocations)
    first, again = (fold_edge(requests), fold_edge(requests)), fold_invocations(invocations)
    assert first[0] == first[1]
    assert again == fold_invocations(invocations)
    assert (requests, invocations) == before


def test_no_events_change_nothing() -> None:
    assert fold_edge([]) == fold_invocations([]) == Deltas()
