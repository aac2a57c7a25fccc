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


def lines_found(pattern: Pattern, lines: list[bytes]) -> list[int]:
    """The numbers of the lines in which a search of their joined text finds a pattern."""
    text = b"\n".join(lines)
    whole = memoryview(b"a" + text + b"a")[1:-1]
    return sorted({bytes(whole[:at]).count(b"\n") for at in pattern.lines(whole)})


@settings(max_examples=1000, deadline=None)
@given(pattern_texts, st.lists(texts.map(lambda text: text.replace("\n", "/")), min_size=1, max_size=5))
@example("^b", ["a", "b"])
@example("a$", ["a", "b"])
@example("a.b", ["a", "b", "acb"])
@example(r"a\s*b", ["a", "b", "a b"])
@example("[^x]*b", ["a", "b", "", "xa"])
@example("^$", ["a", "", "b"])
@example("a*", ["a", "", "b"])
@example(r"\B", ["a", "", "a"])
@example(r"(?P<n>a)|\n", ["a", "b"])
@example("a|b(", ["a", "b"])
@example("a{1", ["a", "a{1"])
@example("(?s)a.b", ["a", "b", "a/b"])
@example("(?U)a+", ["", "aa"])
@example("(?sm)^.*$", ["a", "", "b"])
def test_a_search_of_many_lines_finds_those_in_which_the_pattern_is_found_alone(text: str, lines: list[str]) -> None:
    pattern = pattern_of(text)
    urls = [line.encode() for line in lines]
    if pattern.searches_lines:
        assert lines_found(pattern, urls) == [number for number, url in enumerate(urls) if pattern.matches(url)]


@pytest.mark.parametrize(
    "text", ["abc", "^https://abc[.]", "abc|def", r"\Ahttps?://abc", "(?P<ref>abc)", "[^/]+bc", "()"]
)
def test_plain_patterns_do_stand_whatever_follows(text: str) -> None:
    assert compile_pattern(text).matches_whatever_follows(b"https://abc.supabase.co")
    assert not compile_pattern("xyz").matches_whatever_follows(b"https://abc.supabase.co")


@pytest.mark.parametrize(
    "text", ["abc", "^abc", "abc$", r"\babc\b", r"/abc/", "a.c", "ab{1,2}c", "[^/]*", "(a)|b", "(?is)a.c"]
)
def test_plain_patterns_are_searched_in_many_lines_at_once(text: str) -> None:
    assert compile_pattern(text).searches_lines


@pytest.mark.parametrize("text", [r"\Aabc", r"abc\z", "(?-m)^a", "(?i-s:a)", r"a\Cc", r"\Qa.c", r"\Qa.c\E"])
def test_patterns_that_could_look_beyond_a_line_are_not(text: str) -> None:
    assert not compile_pattern(text).searches_lines


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
