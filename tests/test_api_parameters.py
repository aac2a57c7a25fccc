"""From a query string to typed parameters: what is taken, what is ignored, and what a refusal says."""

import pytest

from api.parameters import Typed, typed_parameters
from schema.errors import ParameterError
from schema.saved_queries import load_saved_queries
from schema.timestamps import parse_iso

QUERIES = load_saved_queries()
STATS, LOGS, COUNTS = (QUERIES[name] for name in ("functions.invocation-stats", "logs.all", "usage.api-counts"))
WORDS = ("minutely", "hourly", "daily", "15min", "30min", "1hr", "3hr", "1day", "3day", "7day")


def refusal(name: str, **given: list[str]) -> ParameterError:
    """The error with which an endpoint refuses parameters."""
    with pytest.raises(ParameterError) as refused:
        typed_parameters(QUERIES[name], given)
    return refused.value


def logs(**given: str) -> dict[str, Typed]:
    return typed_parameters(LOGS, {"project": ["p"], **{name: [value] for name, value in given.items()}})


def test_what_is_absent_or_empty_is_none() -> None:
    assert typed_parameters(STATS, {"project": ["p"]}) == {"project": "p", "function_id": None, "interval": None}
    assert typed_parameters(STATS, {"project": ["p"], "function_id": [""], "interval": [""]}) == {
        "project": "p",
        "function_id": None,
        "interval": None,
    }
    assert logs(project_tier="", iso_timestamp_start="", iso_timestamp_end="") == logs()


def test_text_is_taken_as_it_is() -> None:
    for text in ("p", " p ", "P", "日本", "a,b", "a\0b", "%", "' OR 1=1 --", "x" * 1_000):
        assert typed_parameters(STATS, {"project": [text], "function_id": [text], "interval": [text]}) == {
            "project": text,
            "function_id": text,
            "interval": text,
        }


def test_unknown_parameters_are_ignored_even_twice() -> None:
    given = {"project": ["p"], "now": ["1"], "limit": ["1", "2"], "PROJECT": ["q", "r"], "api_key": ["k"], "": [""]}
    assert typed_parameters(STATS, given) == typed_parameters(STATS, {"project": ["p"]})


@pytest.mark.parametrize("endpoint", ["functions.invocation-stats", "logs.all", "usage.api-counts"])
@pytest.mark.parametrize("given", [{}, {"project": [""]}, {"project": []}], ids=["missing", "empty", "no values"])
def test_a_missing_project_is_refused_by_every_endpoint(endpoint: str, given: dict[str, list[str]]) -> None:
    error = refusal(endpoint, interval=["daily"], **given)
    assert (error.parameter, error.value) == ("project", None)
    assert str(error) == "project: missing: every query names its project"


@pytest.mark.parametrize("values", [["p", "q"], ["p", "p"], ["", "p"], ["p", ""], ["", ""], ["p", "q", "r"]])
def test_a_declared_parameter_given_more_than_once_is_refused(values: list[str]) -> None:
    for endpoint, query in QUERIES.items():
        for parameter in query.parameters:
            error = refusal(endpoint, **{"project": ["p"], "interval": ["daily"], parameter.name: values})
            assert (error.parameter, error.value) == (parameter.name, ", ".join(values))
            assert str(error) == f"{parameter.name}: given more than once"


def test_each_interval_word_of_api_counts_is_taken() -> None:
    for word in WORDS:
        assert typed_parameters(COUNTS, {"project": ["p"], "interval": [word]})["interval"] == word


@pytest.mark.parametrize(
    "word", ["weekly", "Daily", "daily ", " daily", "5min", "1h", "*", "DAILY", "daily\0", "\ufffd"]
)
def test_another_interval_word_of_api_counts_is_refused_with_those_that_are_allowed(word: str) -> None:
    error = refusal("usage.api-counts", project=["p"], interval=[word])
    assert (error.parameter, error.value, error.allowed) == ("interval", word, WORDS)
    assert str(error) == f"interval: not one of the values allowed; allowed: {', '.join(WORDS)}"


@pytest.mark.parametrize("given", [{}, {"interval": [""]}], ids=["missing", "empty"])
def test_api_counts_without_an_interval_is_refused_with_those_that_are_allowed(given: dict[str, list[str]]) -> None:
    error = refusal("usage.api-counts", project=["p"], **given)
    assert (error.parameter, error.value, error.allowed) == ("interval", None, WORDS)
    assert str(error) == f"interval: missing; allowed: {', '.join(WORDS)}"


def test_any_interval_and_tier_word_of_the_others_is_taken() -> None:
    assert typed_parameters(STATS, {"project": ["p"], "interval": ["fortnightly"]})["interval"] == "fortnightly"
    assert logs(project_tier="Platinum")["project_tier"] == "Platinum"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2025-06-15T15:06:40.123456Z", "2025-06-15T15:06:40.123456Z"),
        ("2025-06-15T15:06:40.123456999Z", "2025-06-15T15:06:40.123456Z"),
        ("2025-06-15T17:06:40+02:00", "2025-06-15T15:06:40Z"),
        ("2025-06-15T17:06:40 02:00", "2025-06-15T15:06:40Z"),
        ("2025-06-15T17:06:40.5 0200", "2025-06-15T15:06:40.5Z"),
        ("2025-06-15T17:06:40 02", "2025-06-15T15:06:40Z"),
        ("2025-06-15T17:06:40  02:00", "2025-06-15T15:06:40Z"),
        ("2025-06-15 17:06:40 02:00", "2025-06-15T15:06:40Z"),
        ("2025-06-15 15:06 00:00", "2025-06-15T15:06:00Z"),
        ("2025-06-15 15:06", "2025-06-15T15:06:00Z"),
        ("2025-06-15 15:06:40", "2025-06-15T15:06:40Z"),
        (" 2025-06-15T15:06:40Z ", "2025-06-15T15:06:40Z"),
        ("2025-06-15", "2025-06-15T00:00:00Z"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_a_time_is_floored_to_the_microsecond_and_its_plus_may_be_a_space(text: str, same: str) -> None:
    expected = parse_iso(same)
    assert expected is not None
    assert logs(iso_timestamp_start=text, iso_timestamp_end=text) == {
        **logs(),
        "iso_timestamp_start": expected,
        "iso_timestamp_end": expected,
    }


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "1750000000", "1750000000123456", "2025-13-01", "2025-02-29", "2025-06-15T", "٢٠٢٥-06-15", " "),
        *("2025-06-15T25:00:00Z", "2025-06-15T15:06:60Z", "2025-06-15T15:06:40+2", "2025-06-15T15:06:40 02:00Z"),
        *("2025-06-15T15:06:40.1234567890Z", "2025-06-15T15:06:40+99:00", "\0", "2025-06-15T15:06:40Z\0"),
    ],
)
@pytest.mark.parametrize("name", ["iso_timestamp_start", "iso_timestamp_end"])
def test_what_is_no_time_is_refused_with_an_example_of_one(name: str, text: str) -> None:
    error = refusal("logs.all", project=["p"], **{name: [text]})
    assert (error.parameter, error.value) == (name, text)
    assert str(error) == f"{name}: not an ISO 8601 time such as 2026-01-31T12:00:00.000000Z"


def test_only_api_counts_reads_its_project_as_a_pattern() -> None:
    error = refusal("usage.api-counts", project=["(unclosed"], interval=["daily"])
    assert (error.parameter, error.value) == ("project", "(unclosed")
    assert "missing )" in str(error)
    assert logs(project="(unclosed")["project"] == "(unclosed"
