"""Settings come from the environment, then the file, then the defaults; what can't be read stops the start."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.errors import SettingsError
from schema.settings import Settings, load_settings, to_environment
from schema.timestamps import HOUR, SECOND

NOWHERE = Path("no/such/freshet.toml")
COUNTS = st.integers(1, 10**9)
WORDS = st.text("abcdefghijklmnopqrstuvwxyz.-_0123456789", min_size=1, max_size=20)
HOSTS = st.lists(st.builds("{}:{}".format, WORDS, st.integers(1, 65535)), min_size=1, max_size=3)
SETTINGS = st.builds(
    Settings,
    broker=st.one_of(st.just("embedded"), HOSTS.map(lambda hosts: "kafka://" + ";".join(hosts))),
    data=st.builds(Path, WORDS, WORDS),
    listen=st.builds("{}:{}".format, st.one_of(WORDS, st.just("[::1]")), st.integers(1, 65535)),
    topic_edge=WORDS,
    topic_functions=WORDS,
    topic_partitions=COUNTS,
    group=WORDS,
    log_id=st.one_of(st.just(""), WORDS),
    deduplicate=st.sampled_from(["off", "10min", "1h"]),
    redact=st.sampled_from(["", "tokens", "authorization,addresses"]),
    session_seconds=COUNTS,
    stuck_seconds=COUNTS,
    api_processes=COUNTS,
    query_seconds=COUNTS,
    queries_waiting=COUNTS,
    rate_limit=st.one_of(st.just(0), COUNTS),
    keep_seconds=st.integers(360, 999_999).map(lambda seconds: seconds * SECOND),
    keep_entries=st.integers(90 * 24 + 1, 999_999).map(lambda hours: hours * HOUR),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "freshet.toml"


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings({"PATH": "/bin", "freshet_data": "x", "MY_FRESHET_DATA": "y"}, NOWHERE)
    assert settings == Settings()
    assert (settings.broker, settings.store, settings.data) == ("embedded", "sqlite", Path("data"))
    assert (settings.listen, settings.topic_partitions) == ("127.0.0.1:4000", 4)
    assert (settings.topic_edge, settings.topic_functions) == ("cloudflare.logs.prod", "deno-relay-logs")


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(file: Path) -> None:
    file.write_text('group = "file"\ntopic_edge = "file"\napi_processes = 3\n')
    settings = load_settings({"FRESHET_GROUP": "environment", "FRESHET_QUERY_SECONDS": "7"}, file)
    assert (settings.group, settings.topic_edge, settings.topic_functions) == ("environment", "file", "deno-relay-logs")
    assert (settings.api_processes, settings.query_seconds) == (3, 7)


def named(settings: Settings) -> bool:
    names = (settings.topic_edge.strip(), settings.topic_functions.strip(), settings.group.strip())
    return all(names) and settings.topic_edge != settings.topic_functions


@given(SETTINGS.filter(named))
def test_another_process_gets_the_same_settings_by_its_environment(settings: Settings) -> None:
    environment = to_environment(settings)
    assert load_settings(environment, NOWHERE) == settings
    assert environment.keys() == {f"FRESHET_{setting.name.upper()}" for setting in fields(Settings)}


def test_every_setting_has_a_help_text_and_a_default_that_it_would_take() -> None:
    written = to_environment(Settings())
    for setting in fields(Settings):
        assert setting.metadata["help"]
        assert setting.metadata["parse"](written[f"FRESHET_{setting.name.upper()}"]) == setting.default


def test_the_brokers_are_those_between_the_semicolons() -> None:
    settings = load_settings({"FRESHET_BROKER": "kafka://one:9092;[::1]:9093"}, NOWHERE)
    assert settings.bootstrap == ["one:9092", "[::1]:9093"]


def test_what_is_redacted_is_named_in_any_order_and_the_window_is_in_ms() -> None:
    settings = load_settings({"FRESHET_REDACT": " addresses, tokens", "FRESHET_DEDUPLICATE": "10min"}, NOWHERE)
    assert (settings.redact, settings.redacted) == ("tokens,addresses", ["tokens", "addresses"])
    assert settings.deduplication_window == 600_000
    assert (Settings().redacted, Settings().deduplication_window) == ([], 0)


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_settings({"FRESHET_DATA": "~/logs"}, NOWHERE).data == Path("/home/someone/logs")


@pytest.mark.parametrize("variable", ["FRESHET_BROKERS", "FRESHET_", "FRESHET_DATA_", "FRESHET_TOPIC"])
def test_an_unknown_variable_is_named_with_those_that_there_are(variable: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{variable} is no setting") as error:
        load_settings({variable: "x"}, NOWHERE)
    assert all(name in str(error.value) for name in to_environment(Settings()))


def test_an_unknown_name_in_the_file_is_named_with_the_file(file: Path) -> None:
    file.write_text("brokers = 'x'\n")
    with pytest.raises(SettingsError, match=r"brokers in .*freshet\.toml is no setting"):
        load_settings({}, file)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(
            ("BROKER", value, "kafka://host:port")
            for value in ("", "localhost:9092", "kafka://", "kafka://h", "http://h:1")
        ),
        *(("BROKER", value, "kafka://host:port") for value in ("kafka://h:9092;", "kafka://:9092", "kafka://h:port")),
        *(("LISTEN", value, "host:port") for value in ("", "4000", ":4000", "h:", "h:http", "h:65536", "h:-1")),
        *(("LISTEN", value, "a port from 1 to 65535") for value in ("h:0", "h:²", "::1:4000", "[]:1", "h]:x")),
        *(("RATE_LIMIT", value, "whole number") for value in ("", "-1", "1.5", "many", "00")),
        *(("STORE", value, "sqlite") for value in ("", "postgresql://h/db", "SQLite")),
        *(("CORS_ORIGINS", value, "spaces") for value in ("x.org", "https://x.org/", "https://a https://b/c", "null")),
        *(("METADATA_SHAPE", value, "arrays") for value in ("", "array", "as_sent", "Arrays")),
        *(("DEDUPLICATE", value, "off, 10min, 1h") for value in ("", "10", "5min", "OFF", "60min")),
        *(
            ("REDACT", value, "authorization, tokens, addresses")
            for value in ("all", "tokens,", "tokens;addresses", "*")
        ),
        ("CACHE_MEGABYTES", "0", "1 or more"),
        *(("TOPIC_PARTITIONS", value, "") for value in ("", "0", "-1", "1.5", "four", "NaN")),
        *(("KEEP_URLS", value, "") for value in ("", "8", "7d", "8w", "-8d", "8.5d", "8 d", "8D", "99999999d")),
        *((name, "0", "1 or more") for name in ("SESSION_SECONDS", "STUCK_SECONDS", "API_PROCESSES", "QUERY_SECONDS")),
    ],
)
def test_a_value_that_can_not_be_is_named_with_its_setting_and_what_is_allowed(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^FRESHET_{name} is {re.escape(repr(value))}: .*{said}"):
        load_settings({f"FRESHET_{name}": value}, NOWHERE)


def test_a_wrong_value_in_the_file_is_named_with_the_file(file: Path) -> None:
    for text in (
        "api_processes = 0",
        "api_processes = true",
        "api_processes = 2.5",
        "api_processes = []",
        "broker = 9092",
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=r"(api_processes|broker) in .*freshet\.toml (is '|must be text)"):
            load_settings({}, file)


@pytest.mark.parametrize("content", [b"group =", b"= 1", b"group = \xff", b"\x00", b'group = "a"\ngroup = "b"'])
def test_a_file_that_is_no_toml_is_named(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"freshet\.toml: "):
        load_settings({}, file)


def test_what_a_variable_overrides_in_the_file_is_not_read(file: Path) -> None:
    file.write_text("api_processes = 0\n")
    assert load_settings({"FRESHET_API_PROCESSES": "2"}, file).api_processes == 2


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().group = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("listen", "host"), [("127.0.0.1:4000", "127.0.0.1"), ("[::1]:4000", "::1"), ("example.org:4000", "example.org")]
)
def test_an_address_is_host_and_port_without_brackets(listen: str, host: str) -> None:
    assert load_settings({"FRESHET_LISTEN": listen}, NOWHERE).address == (host, 4000)
