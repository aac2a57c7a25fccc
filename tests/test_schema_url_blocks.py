"""What goes into a URL block comes out of it: every request, by its run, with each distinct URL once."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from schema.timestamps import HOUR
from schema.url_blocks import Hit, Requested, UrlBlock, pack_urls, unpack_urls

HOUR_START = 1_750_000_000_000_000 // HOUR * HOUR
TIMESTAMPS = st.one_of(
    st.integers(HOUR_START, HOUR_START + HOUR - 1), st.sampled_from((HOUR_START, HOUR_START + HOUR - 1))
)
URLS = st.one_of(
    st.sampled_from([b"", b"\n", b"\n\n", b"https://h/rest/v1?a\nb", b"https://h/\x00"]),
    st.text(max_size=30).map(str.encode),
)
HITS = st.lists(st.builds(Hit, TIMESTAMPS, st.integers(0, 15), URLS), min_size=1, max_size=20)
RUNS = st.dictionaries(st.tuples(st.text(max_size=8), st.text(max_size=12)), HITS, min_size=1, max_size=8)


def packed(runs: Sequence[tuple[str, str, Sequence[Hit]]]) -> bytes:
    """The payload of some requests."""
    grouped: list[tuple[str, str, dict[Requested, list[int]]]] = []
    for project, origin, hits in runs:
        urls: dict[Requested, list[int]] = {}
        for hit in hits:
            urls.setdefault((hit.families, hit.url), []).append(hit.timestamp - HOUR_START)
        grouped.append((project, origin, urls))
    return pack_urls(HOUR_START, grouped)


@given(RUNS)
@settings(max_examples=200)
def test_runs_of_urls_come_back_as_they_were(runs: dict[tuple[str, str], list[Hit]]) -> None:
    block = UrlBlock(packed([(*key, hits) for key, hits in sorted(runs.items())]))
    assert block.keys == sorted(runs)
    assert (block.hour, block.count) == (HOUR_START, sum(map(len, runs.values())))
    starts, requests, offsets = block.url_starts(), block.url_requests(), block.offsets
    families = block.families(block.all_urls)
    texts = [block.payload[start : end - 1] for start, end in pairwise(starts)]
    assert requests[-1] == block.count
    for run in block.runs():
        hits = runs[run.project, run.origin]
        assert Counter(run.hits()) == Counter(hits)
        assert len(offsets[run.requests]) == len(hits)
        urls = list(zip(families[run.urls], texts[run.urls], strict=True))
        assert sorted(urls) == sorted({hit[1:] for hit in hits})
        assert block.starts[run.number] == starts[run.urls.start]
        text = block.payload[block.starts[run.number] : block.text_end(run.number)]
        assert text == b"\n".join(texts[run.urls])
        assert block.lines[run.number] == (text.count(b"\n") == len(urls) - 1)


def test_a_hostile_url_does_not_shift_its_neighbours() -> None:
    urls = [b"https://h/a", b"", b"\n", b"https://h/b\nhttps://h/c", b"", b"https://h/d\n"]
    hits = [Hit(HOUR_START + number, number, url) for number, url in enumerate(urls)]
    other = [Hit(HOUR_START + 9, 0, b""), Hit(HOUR_START + 8, 0, b"")]
    first, second = unpack_urls(packed([("p", "https://h", hits), ("p", "https://i", other)]))
    assert list(first.hits()) == hits
    assert list(first.hits()) == hits  # once more: a run is read any number of times
    assert list(second.hits()) == other
    assert first.block.lines == [False, True]
