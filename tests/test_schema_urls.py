"""Where a URL's origin ends, which families its path holds, and how one is built from its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.urls import FAMILIES, build_url, families_in, origin_of, path_of

URLS = st.one_of(
    st.text(max_size=40),
    st.text("htps:/?#@.-\n é", max_size=40),
    st.builds(lambda host, rest: f"https://{host}{rest}", st.text(max_size=10), st.text("/?#a:\n", max_size=20)),
)
TEXTS = st.text(max_size=20)


@given(st.sets(st.sampled_from(range(4))), st.text("/x", max_size=3))
def test_each_family_in_a_path_sets_its_own_bit(bits: set[int], around: str) -> None:
    path = around.join(FAMILIES[bit] for bit in sorted(bits))
    assert families_in(path) == sum(1 << bit for bit in bits)


@pytest.mark.parametrize(
    ("path", "families"),
    [
        *(("", 0), ("/", 0), ("rest", 0), ("/Rest/v1", 0), ("/functions/v1/x", 0), ("/restful", 1), ("/pg/rest", 1)),
        *(("/storage/v1", 2), ("/auth/v1", 4), ("/realtime/v1", 8), ("/rest/v1/storage/auth/realtime", 15)),
        *(("/rest/rest", 1), ("/re\nst", 0), ("/x?next=/auth", 4)),
    ],
)
def test_a_family_is_any_occurrence_of_its_text(path: str, families: int) -> None:
    assert families_in(path) == families


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://ref.supabase.co/rest/v1/t?select=*#f", "https://ref.supabase.co", "/rest/v1/t"),
        ("https://ref.supabase.co", "https://ref.supabase.co", ""),
        ("https://ref.supabase.co?a=/rest", "https://ref.supabase.co", ""),
        ("https://ref.supabase.co#/rest?x", "https://ref.supabase.co", ""),
        ("wss://user:pw@h:8443/x#a?b", "wss://user:pw@h:8443", "/x"),
        ("HTTPS://H/x", "HTTPS://H", "/x"),
        ("https:///x", "https://", "/x"),
        ("https://h\n/x", "https://h\n", "/x"),
        ("a+b-c.1://h/x", "a+b-c.1://h", "/x"),
        ("9x://auth.h/x", "9x://auth.h", "/x"),
        ("9x://auth/rest", "9x://auth", "/rest"),
        ("9x://auth", "9x://auth", ""),
        (" https://auth/rest", " https://auth", "/rest"),
        ("a b\n://realtime?x", "a b\n://realtime", ""),
        ("é://storage#x", "é://storage", ""),
        ("/rest/v1?x", "", "/rest/v1"),
        ("default/rest/v1#x", "", "default/rest/v1"),
        ("?u=https://h/rest", "", ""),
        ("/go/https://h/rest", "", "/go/https://h/rest"),
        ("://h/rest", "", "://h/rest"),
        ("", "", ""),
    ],
)
def test_a_url_is_cut_into_origin_and_path(url: str, origin: str, path: str) -> None:
    assert (origin_of(url), path_of(url)) == (origin, path)


@given(URLS)
def test_every_url_begins_with_its_origin_and_goes_on_with_its_path(url: str) -> None:
    origin, path = origin_of(url), path_of(url)
    assert url.startswith(origin + path)
    assert not set("?#") & set(path)


def test_an_origin_of_hostile_length_is_none_and_its_path_the_same() -> None:
    for host, kept in (("h" * 504, True), ("h" * 505, False)):
        url = f"https://{host}/rest"
        assert origin_of(url) == (f"https://{host}" if kept else "")
        assert path_of(url) == "/rest"


@pytest.mark.parametrize(
    ("protocol", "host", "path", "url", "origin"),
    [
        ("https", "kong", "/rest/v1?x", "https://kong/rest/v1?x", "https://kong"),
        ("https:", "kong", None, "https://kong", "https://kong"),
        ("HTTP/1.1", "kong:8000", "/x", "http://kong:8000/x", "http://kong:8000"),
        (None, "kong", "/x", "https://kong/x", "https://kong"),
        ("", "kong", "", "https://kong", "https://kong"),
        ("wss://x", "kong", "x", "wss://kongx", "wss://kongx"),
        ("http", "kong/a?b", "/c", "http://kong/a?b/c", "http://kong"),
        (":", "kong", "/x", "://kong/x", ""),
        ("https", None, "/rest/v1", "ref/rest/v1", "ref"),
        (None, None, None, "ref", "ref"),
    ],
)
def test_a_url_is_built_from_what_was_sent(
    protocol: str | None, host: str | None, path: str | None, url: str, origin: str
) -> None:
    assert build_url(protocol, host, path, "ref") == (url, origin)


@given(st.one_of(st.none(), TEXTS), st.one_of(st.none(), TEXTS.filter(bool)), st.one_of(st.none(), TEXTS), TEXTS)
def test_every_built_url_begins_with_its_origin(
    protocol: str | None, host: str | None, path: str | None, project: str
) -> None:
    url, origin = build_url(protocol, host, path, project)
    assert url.startswith(origin)
    assert url.endswith(path or "")


def test_a_project_of_hostile_length_is_no_origin() -> None:
    assert build_url(None, None, "/x", "p" * 513) == ("p" * 513 + "/x", "")
    assert build_url(None, None, "/x", "p" * 512)[1] == "p" * 512
