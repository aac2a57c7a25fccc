"""Settings: environment variables `FRESHET_<NAME>` over `freshet.toml` in the working folder over the defaults below.

They are read and checked once, when a process starts. A name that is none of these stops the start, so that a
misspelt setting is not silently the default.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from schema.errors import SettingsError
from schema.log_lines import FORMS
from schema.redaction import KINDS
from schema.retention import ENTRIES, INVOCATIONS, NO_GRAIN, ORIGIN_HITS, URLS, Kind
from schema.tables import DAY_GRAIN, HOUR_GRAIN, MINUTE_GRAIN, SECOND_GRAIN
from schema.timestamps import DAY, HOUR, MINUTE, SECOND

_UNITS = {"s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}
_DURATION = re.compile(r"([0-9]{1,6})(s|min|h|d)")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*]+")
PREFIX = "FRESHET_"
EMBEDDED = "embedded"
_SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _path(text: str) -> Path:
    if not text:
        raise ValueError("it must name a folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # no such user
        raise ValueError(str(error)) from error


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("it must be a whole number of 1 or more")
    return int(text)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _shape(text: str) -> str:
    if text not in ("as-sent", "arrays"):
        raise ValueError("it must be as-sent or arrays")
    return text


def _origins(text: str) -> str:
    origins = text.split()
    if origins != ["*"] and not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("it must be *, or origins such as https://studio.example.org with spaces between, or empty")
    return " ".join(origins)


def _broker(text: str) -> str:
    if text == EMBEDDED:
        return text
    hosts = text.removeprefix("kafka://").split(";")
    names_and_ports = [host.rpartition(":")[::2] for host in hosts]
    if not text.startswith("kafka://") or not all(name and port.isdigit() for name, port in names_and_ports):
        raise ValueError("it must be embedded or kafka://host:port[;host:port…]")
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return text

    return parse


def _kinds(text: str) -> str:
    kinds = [word.strip() for word in text.split(",")] if text.strip() else []
    if not set(kinds) <= set(KINDS):
        raise ValueError(f"it must be some of {', '.join(KINDS)}, with commas between, or empty")
    return ",".join(kind for kind in KINDS if kind in kinds)


def _store(text: str) -> str:
    if text != "sqlite":
        raise ValueError("the only store is sqlite")
    return text


def _listen(text: str) -> str:
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in host and bare == host) or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError("it must be host:port, an IPv6 address in brackets, a port from 1 to 65535")
    return text


def _duration(least: int) -> Callable[[str], int]:
    """Reads 90s, 15min, 3h or 8d as µs; `least` is what the queries' windows need."""

    def parse(text: str) -> int:
        duration = parse_duration(text)
        if duration < least:
            raise ValueError(f"it must be {duration_text(least)} or more, or queries would miss rows")
        return duration

    return parse


def parse_duration(text: str) -> int:
    """90s, 15min, 3h or 8d in µs. Raises ValueError that says what is allowed."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("it must be a number with s, min, h or d, such as 8d")
    return int(match[1]) * _UNITS[match[2]]


def duration_text(micros: int) -> str:
    """A duration in µs as it is written in a setting."""
    unit = next(unit for unit in reversed(_UNITS) if micros % _UNITS[unit] == 0)
    return f"{micros // _UNITS[unit]}{unit}"


def _setting(default: Any, parse: Callable[[str], Any], text: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"parse": parse, "help": text}, repr=not secret)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of all processes, typed and checked."""

    broker: str = _setting(
        EMBEDDED, _broker, "`embedded` (in memory, for trying out) or `kafka://host:port[;host:port]`"
    )
    broker_security: str = _setting("PLAINTEXT", _one_of(*_SECURITY), "how to speak to the broker")
    broker_mechanism: str = _setting("SCRAM-SHA-512", _one_of(*_MECHANISMS), "how to log in, with SASL")
    broker_user: str = _setting("", str, "who logs in, with SASL")
    broker_password: str = _setting("", str, "the user's password", secret=True)
    broker_password_file: str = _setting("", str, "a file that holds the password")
    broker_ca_file: str = _setting("", str, "the certificates to trust, with SSL; empty: the system's")
    data: Path = _setting(Path("data"), _path, "the folder of the databases")  # noqa: RUF009
    store: str = _setting("sqlite", _store, "the kind of store")
    listen: str = _setting("127.0.0.1:4000", _listen, "where the API listens")
    topic_edge: str = _setting("cloudflare.logs.prod", _name, "the topic of edge request logs")
    topic_functions: str = _setting("deno-relay-logs", _name, "the topic of function invocation logs")
    topic_partitions: int = _setting(4, _count, "the partitions of a topic that Freshet has to create")
    group: str = _setting("freshet", _name, "the workers' consumer group")
    deduplicate: str = _setting("off", _one_of("off", "10min", "1h"), "how long an id is remembered; off: not at all")
    redact: str = _setting("", _kinds, "what never reaches the tables, of authorization, tokens, addresses")
    log_id: str = _setting("", str, "the identity of the log; empty: the Kafka cluster's own id")
    session_seconds: int = _setting(10, _count, "after how long a silent worker's partitions go to another")
    stuck_seconds: int = _setting(120, _count, "after how long without progress a worker ends itself")
    log: str = _setting("auto", _one_of(*FORMS), "the form of log lines; `auto`: text for a terminal, else JSON")
    ready_seconds: int = _setting(60, _count, "after how long without a commit, or a worker, `/ready` is a 503")
    endpoints: str = _setting("", str, "the folder of one's own endpoints; empty: `endpoints` in the data folder")
    api_processes: int = _setting(1, _count, "the API's processes")
    query_seconds: int = _setting(10, _count, "the time limit of a query")
    queries_waiting: int = _setting(32, _count, "how many queries may wait in one API process")
    rate_limit: int = _setting(0, _count_or_none, "how many requests a second a key may make; 0: as many as it likes")
    cache_megabytes: int = _setting(16, _count, "the memory for kept answers, of each of the API's processes")
    cors_origins: str = _setting(
        "*", _origins, "the origins whose pages may read answers, with spaces between; `*`: all, empty: none"
    )
    metadata_shape: str = _setting(
        "as-sent", _shape, "`arrays` puts each object in `metadata` into an array of one, as Studio reads it"
    )
    keep_seconds: int = _setting(15 * MINUTE, _duration(6 * MINUTE), "how long statistics by second are kept")
    keep_minutes: int = _setting(3 * HOUR, _duration(2 * HOUR), "how long statistics by minute are kept")
    keep_hours: int = _setting(8 * DAY, _duration(2 * DAY), "how long statistics by hour are kept")
    keep_days: int = _setting(10 * DAY, _duration(9 * DAY), "how long statistics by day are kept")
    keep_origin_minutes: int = _setting(8 * DAY, _duration(8 * DAY), "how long requests by origin and minute are kept")
    keep_origin_hours: int = _setting(8 * DAY, _duration(8 * DAY), "how long requests by origin and hour are kept")
    keep_origin_days: int = _setting(10 * DAY, _duration(9 * DAY), "how long requests by origin and day are kept")
    keep_urls: int = _setting(8 * DAY, _duration(8 * DAY), "how long URLs are kept")
    keep_entries: int = _setting(90 * DAY + HOUR, _duration(90 * DAY + HOUR), "how long log entries are kept")

    @property
    def kept(self) -> dict[Kind, int]:
        """How long rows are kept, in µs, by table and grain."""
        return {
            (INVOCATIONS, SECOND_GRAIN): self.keep_seconds,
            (INVOCATIONS, MINUTE_GRAIN): self.keep_minutes,
            (INVOCATIONS, HOUR_GRAIN): self.keep_hours,
            (INVOCATIONS, DAY_GRAIN): self.keep_days,
            (ORIGIN_HITS, MINUTE_GRAIN): self.keep_origin_minutes,
            (ORIGIN_HITS, HOUR_GRAIN): self.keep_origin_hours,
            (ORIGIN_HITS, DAY_GRAIN): self.keep_origin_days,
            (URLS, NO_GRAIN): self.keep_urls,
            (ENTRIES, NO_GRAIN): self.keep_entries,
        }

    @property
    def redacted(self) -> list[str]:
        """The kinds that are taken out of events before they are stored (`schema.redaction.KINDS`)."""
        return self.redact.split(",") if self.redact else []

    @property
    def deduplication_window(self) -> int:
        """How long ids are remembered, in ms; 0: not at all."""
        return 0 if self.deduplicate == "off" else parse_duration(self.deduplicate) // 1000

    @property
    def endpoint_folder(self) -> Path:
        """The folder of one's own endpoints, which need not be there."""
        return Path(self.endpoints).expanduser() if self.endpoints else self.data / "endpoints"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port where the API listens; an IPv6 address without its brackets."""
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def bootstrap(self) -> list[str]:
        """The brokers as host:port."""
        return self.broker.removeprefix("kafka://").split(";")


def load_settings(environ: Mapping[str, str] = os.environ, file: Path = Path("freshet.toml")) -> Settings:
    """The settings in force. Raises SettingsError that names the setting, its value, and what is allowed."""
    given: dict[str, tuple[str, str]] = {}
    if file.exists():
        try:
            document = tomllib.loads(file.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file}: {error}") from error
        for name, value in document.items():
            if type(value) not in (str, int):
                raise SettingsError(f"{name} in {file} must be text or a whole number")
            given[name] = (str(value), f"{name} in {file}")
    for variable, text in environ.items():
        if variable.startswith(PREFIX):
            given[variable.removeprefix(PREFIX).lower()] = (text, variable)
    known = {setting.name: setting for setting in fields(Settings)}
    values: dict[str, Any] = {}
    for name, (text, origin) in given.items():
        if name not in known:
            allowed = ", ".join(PREFIX + setting.upper() for setting in known)
            raise SettingsError(f"{origin} is no setting of Freshet. There are: {allowed}")
        try:
            values[name] = known[name].metadata["parse"](text)
        except ValueError as error:
            raise SettingsError(f"{origin} is {text!r}: {error}") from error
    settings = Settings(**values)
    _check_security(settings)
    if settings.topic_edge == settings.topic_functions:
        raise SettingsError(
            f"FRESHET_TOPIC_EDGE and FRESHET_TOPIC_FUNCTIONS are both {settings.topic_edge!r}: name two topics"
        )
    return settings


def _check_security(settings: Settings) -> None:
    """Raise SettingsError for a login that is half given, or that would not be made."""
    login = "FRESHET_BROKER_USER and FRESHET_BROKER_PASSWORD or FRESHET_BROKER_PASSWORD_FILE"
    password, file = settings.broker_password, settings.broker_password_file
    security = f"FRESHET_BROKER_SECURITY is {settings.broker_security}"
    if settings.broker_security.startswith("SASL"):
        if not settings.broker_user or bool(password) == bool(file):
            raise SettingsError(f"{security}, which needs {login}")
    elif settings.broker_user or password or file:
        raise SettingsError(f"{security}, which logs nobody in: leave out {login}, or set a SASL one")
    if settings.broker_ca_file and not settings.broker_security.endswith("SSL"):
        raise SettingsError(f"{security}: leave out FRESHET_BROKER_CA_FILE, or set SSL or SASL_SSL")
    if settings.broker == EMBEDDED and settings.broker_security != "PLAINTEXT":
        raise SettingsError(f"{security}, but the embedded broker is reached by PLAINTEXT alone")


def to_environment(settings: Settings) -> dict[str, str]:
    """The environment variables that give another process the same settings."""
    values = {setting.name: getattr(settings, setting.name) for setting in fields(settings)}
    return {PREFIX + name.upper(): written(name, value) for name, value in values.items()}


def written(name: str, value: Any) -> str:
    """A setting's value as it is written in a variable."""
    return duration_text(value) if name.startswith("keep_") else str(value)
