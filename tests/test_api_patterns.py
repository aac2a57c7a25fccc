"""What a pattern lets one conclude without looking at every URL, held against looking at every URL."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from api.patterns import Pattern, compile_pattern
from schema.errors import ParameterError

ANCHORS = r"^ $ \A \z \b \B"
CLASSES = r". \C \s \S \w \W \d \pL \PL \p{Han} [ab] [^a] [^\n] [[:alpha:]] [\s\S] [^\x00-\x{10FFFF}] [$] [$^]"
LITERALS = r"a b A / : é 日 😀 \n \. \$ \\ \x61 \Qa.$\E \Q\E"
GROUPS = "(%s) (?:%s) (?P<n>%s) (?<n>%s) (?i:%s) (?s:%s) (?m:%s) (?-m:%s) (?U:%s) (?ims:%s)"
REPEATS = "* + ? *? +? ?? {0} {2} {0,2} {1,}?"
FLAGS = ("", "", "", "", "(?i)", "(?m)", "(?s)", "(?-m)", "(?im-s)", "(?U)")

atoms = (
    st.sampled_from(f"{ANCHORS} {CLASSES} {LITERALS}".split())
    | st.sampled_from(ANCHORS.split())
    | st.sampled_from("\n ")
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds(lambda group, text: group % text, st.sampled_from(GROUPS.split()), inner),
        st.builds(lambda text, repeat: f"(?:{text}){repeat}", inner, st.sampled_from(REPEATS.split())),
    )


pattern_texts = st.builds("".join, st.tuples(st.sampled_from(FLAGS), st.recursive(atoms, larger, max_leaves=8)))
texts = st.text("\0aabbA/:.$ \n\n_0éé日😀", max_size=6)


def pattern_of(text: str) -> Pattern:
    """The pattern, unless RE2 refuses it: a group named twice, say."""
    try:
        return compile_pattern(text)
    except ParameterError:
        assume(False)
        raise


@settings(max_examples=500, deadline=None)
@given(pattern_texts, texts, texts)
@example("a$", "a", "b")
@example(r"a\b", "a", "b")
@example(r"a\z", "a", "b")
@example(r"/\B", "a/", "b")
@example("(?m)a$", "a", "b")
def test_a_match_that_stands_whatever_follows_is_found_in_every_longer_url(text: str, origin: str, rest: str) -> None:
    pattern = pattern_of(text)
    if pattern.matches_whatever_follows(origin.encode()):
        assert pattern.matches(origin.encode())
        assert pattern.matches((origin + rest).encode())


@settings(max_examples=500, deadline=None)
@given(pattern_texts, st.lists(texts, min_size=1, max_size=4))
@example("^b", ["a", "b"])
@example("a$", ["a", "b"])
@example(r"\Ab", ["a", "b"])
@example(r"a\z", ["a", "b"])
@example(r"a.b\z", ["a\nb", "c"])
@example("(?-m)^b$", ["a", "b", "c"])
@example("^$", ["a", "", "b"])
@example(r"\B", ["a", "", "a"])
def test_a_run_that_can_not_match_holds_no_url_that_does(text: str, urls: list[str]) -> None:
    pattern = pattern_of(text)
    joined = "\n".join(urls).encode()
    found = any(pattern.matches(url.encode()) for url in urls)
    for run in (joined, memoryview(b"a" + joined + b"a")[1:-1]):
        assert pattern.may_match_a_line(run) or not found


@pytest.mark.parametrize(
    "text", ["abc", "^https://abc[.]", "abc|def", r"\Ahttps?://abc", "(?P<ref>abc)", "[^/]+bc", "()"]
)
def test_plain_patterns_do_stand_whatever_follows(text: str) -> None:
    assert compile_pattern(text).matches_whatever_follows(b"https://abc.supabase.co")
    assert not compile_pattern("xyz").matches_whatever_follows(b"https://abc.supabase.co")


@pytest.mark.parametrize("text", ["abc", "^abc", "abc$", r"\babc\b", r"/abc/", "a.c", "ab{1,2}c"])
def test_plain_patterns_do_rule_out_a_run_without_them(text: str) -> None:
    run = b"https://x.supabase.co/rest\nhttps://x.supabase.co/ab\nc"
    assert not compile_pattern(text).may_match_a_line(run)
    assert not compile_pattern(text).may_match_a_line(memoryview(run))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(("(a", "missing ): (a"), ("a)", "unexpected ): a)"), ("[a", "missing ]: [a"), ("[z-a]", "z-a")),
        *(("*", "no argument for repetition operator: *"), ("a**", "bad repetition operator: **"), ("a\\", "\\")),
        *(("(?=a)", "(?="), ("(?<=a)b", "(?<"), (r"(a)\1", r"\1"), (r"a\Z", r"\Z"), (r"\p{Nope}", r"\p{Nope}")),
        *(("a{1001}", "{1001}"), ("((a{100}){100}){100}", "{100}"), ("日(", "日(")),
    ],
)
def test_a_pattern_that_re2_refuses_is_refused_in_its_words(
    text: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ParameterError) as refused:
        compile_pattern(text)
    error = refused.value
    assert (error.parameter, error.value, error.allowed) == ("project", text, ())
    assert error.reason.startswith("not a regular expression that RE2 takes: ")
    words = error.reason.removeprefix("not a regular expression that RE2 takes: ")
    assert words
    assert why in words
    assert str(error) == f"project: {error.reason}"
    assert capfd.readouterr() == ("", "")


def test_urls_are_searched_as_utf8_characters() -> None:
    assert compile_pattern("^/caf.$").matches("/café".encode())
    assert compile_pattern("(?i)^/CAFÉ$").matches("/café".encode())
    assert compile_pattern("nul\x00byte").matches(b"a nul\x00byte")
    assert not compile_pattern("nul\x00byte").matches(b"a nul")
