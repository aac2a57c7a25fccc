"""A brute-force oracle: what the three saved queries must answer, computed from every record by plain loops.

It shares no code with the service and takes no short cut: each record is read once with the standard library's JSON,
each query looks at every event that was ever fed, percentiles come from sorted lists and each URL meets RE2 alone.
A row is a plain dict, equal to the row of the parsed HTTP answer; `rows_agree` compares them and says where they part.
"""

import functools
import json
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple, NoReturn

import re2

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND

# interval: (window, bucket), both in µs
STATS_INTERVALS = {"5min": (5 * MINUTE, SECOND), "15min": (15 * MINUTE, MINUTE), "1hr": (HOUR, MINUTE)}
STATS_INTERVALS |= {"1day": (DAY, HOUR), "7day": (7 * DAY, DAY)}
COUNTS_INTERVALS = {"minutely": (60 * MINUTE, MINUTE), "hourly": (HOUR, HOUR), "daily": (7 * DAY, DAY)}
COUNTS_INTERVALS |= {"15min": (15 * MINUTE, MINUTE), "30min": (30 * MINUTE, MINUTE), "1hr": (HOUR, MINUTE)}
COUNTS_INTERVALS |= {"3hr": (3 * HOUR, MINUTE), "1day": (DAY, HOUR), "3day": (3 * DAY, HOUR), "7day": (7 * DAY, DAY)}
TIERS = {"FREE": DAY, "PRO": 7 * DAY, "PAYG": 90 * DAY, "ENTERPRISE": 90 * DAY}
FAMILIES = ("rest", "storage", "auth", "realtime")
MAX_ROWS, MAX_ENTRIES, MAX_BYTES, MAX_DEPTH = 1000, 100, 16 * 1024 * 1024, 64
ENTRY_IDS = uuid.UUID("5f4b7a52-8d0c-5f57-9c0e-3f6f2a1c7e11")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_TIME, END_OF_TIME = 946_684_800 * SECOND, 4_133_980_800 * SECOND

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r" *(?:[Zz]|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?)?"
)
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ORIGIN = re.compile(r"\A[^:/?#]+://[^/?#]*")


@dataclass(frozen=True)
class Record:
    """One Kafka record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was written."""

    text: str


class JsonText(str):
    """An event message that was no string: `rows_agree` compares it as JSON, not by its spelling."""


class Element(NamedTuple):
    """One element of a message: a JSON object, or the reason why it is none."""

    position: int
    raw: str
    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One edge request, with its row in logs.all."""

    timestamp: int
    project: str
    row: dict[str, Any]
    raw: bytes
    url: bytes
    families: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One function invocation; its execution time is in µs."""

    timestamp: int
    project: str
    function: str
    status: int | None
    execution_time: int | None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


def _shallow(text: str, levels: int = 200) -> str:
    """The same JSON with what lies deeper checked and replaced by 0, so that parsing it can't recurse far."""
    if text.count("[") + text.count("{") <= levels:
        return text
    stack: list[list[str]] = [[]]
    depth = done = 0
    for token in _BRACKETS.finditer(text):
        if token[0] in "[{":
            if depth and depth % levels == 0:
                stack[-1].append(text[done : token.start()])
                stack.append([])
                done = token.start()
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth < 0:
                raise ValueError("a bracket closes what was never opened")
            if depth and depth % levels == 0:
                _JSON.decode("".join(stack.pop()) + text[done : token.end()])
                stack[-1].append("0")
                done = token.end()
    if depth:
        raise ValueError("a bracket is never closed")
    return "".join(stack[0]) + text[done:]


def _depth(text: str) -> int:
    """How deep the containers of a JSON text nest."""
    depth = deepest = 0
    for token in _BRACKETS.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        deepest = max(deepest, depth)
    return deepest


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Key (in an array: empty), start and end of each value in the container that opens at `start` of a JSON text."""
    at = _next(text, start + 1)
    while text[at] not in "]}":
        key = ""
        if text[start] == "{":
            key, at = _JSON.raw_decode(text, at)
            at = _next(text, at)
        _, end = _JSON.raw_decode(text, at)
        yield key, at, end
        at = _next(text, end)


def _next(text: str, at: int) -> int:
    while text[at] in " \t\r\n,:":
        at += 1
    return at


def _plain(value: Any) -> Any:
    """A parsed value with its numbers as `json.loads` gives them, and each lone surrogate as U+FFFD."""
    if isinstance(value, Number):
        return float(value.text) if set(value.text) & set(".eE") else int(value.text)
    if isinstance(value, dict):
        return {_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _text(value) if isinstance(value, str) else value


def _element(index: int, raw: str) -> Element:
    try:
        value = _JSON.decode(_shallow(raw))
    except ValueError:
        return Element(index, raw, None, "not_json")
    if _depth(raw) > MAX_DEPTH:
        return Element(index, raw, None, "too_deep")
    return Element(index, raw, value, "" if isinstance(value, dict) else "not_object")


def _elements(text: str) -> list[Element]:
    """What a message holds, in its order."""
    try:
        shallow = _shallow(text)
        whole = _JSON.decode(shallow)
    except ValueError:
        lines = [line.strip(_SPACE) for line in text.split("\n")]
        found = [_element(number, line) for number, line in enumerate(lines) if line]
        if len(found) > 1 and any(line.reason != "not_json" and line.raw[0] == "{" for line in found):
            return found
        return [Element(-1, text, None, "not_json")]
    array = 0
    if isinstance(whole, dict):
        if isinstance(whole.get("batch"), list):
            array = [start for key, start, _ in _members(shallow, 0) if key == "batch"][-1]
        elif isinstance(whole.get("resourceLogs"), list):
            return [_otlp_element(number, event) for number, event in enumerate(_otlp(whole["resourceLogs"]))]
        else:
            return [_element(0, text)]
    elif not isinstance(whole, list):
        return [Element(-1, text, None, "not_object")]
    spans = [(start, end) for _, start, end in _members(shallow, array)]
    return [_element(number, shallow[start:end]) for number, (start, end) in enumerate(spans)]


def _otlp_element(number: int, event: Any) -> Element:
    if event is None:
        return Element(number, "", None, "not_object")
    raw = json.dumps(_plain(event))
    return Element(number, raw, event, "too_deep" if _depth(raw) > MAX_DEPTH else "")


def _otlp(groups: list[Any]) -> Iterator[dict[str, Any] | None]:
    """The events of an OTLP export; None stands for what has not its shape."""
    for group in groups:
        for scope in _children(group, "scopeLogs"):
            for record in _children(scope, "logRecords"):
                try:
                    yield _otlp_event(group, record)
                except ValueError:
                    yield None


def _children(parent: Any, name: str) -> list[Any]:
    found = parent.get(name, []) if isinstance(parent, dict) else None
    return found if isinstance(found, list) else [None]


def _otlp_event(group: Any, record: Any) -> dict[str, Any]:
    resource, body = _as(dict, _as(dict, group).get("resource", {})), _as(dict, record).get("body")
    event = _pairs(resource.get("attributes", [])) | _pairs(record.get("attributes", []))
    if isinstance(body, dict) and "kvlistValue" in body:
        event |= _any_value(body)
    elif body is not None:
        event["event_message"] = _any_value(body)
    for name in ("timeUnixNano", "observedTimeUnixNano"):
        if "timestamp" not in event and record.get(name) not in (None, "0", Number("0"), Number("-0")):
            event["timestamp"] = record[name]
    return event


def _pairs(pairs: Any) -> dict[str, Any]:
    return {_as(str, _as(dict, pair).get("key")): _any_value(pair.get("value")) for pair in _as(list, pairs)}


def _any_value(value: Any) -> Any:
    """An OTLP AnyValue as the JSON value that it stands for."""
    for kind, inner in _as(dict, value).items():
        if kind == "kvlistValue":
            return _pairs(_as(dict, inner).get("values", []))
        if kind == "arrayValue":
            return [_any_value(item) for item in _as(list, _as(dict, inner).get("values", []))]
        if kind == "intValue":
            return inner if isinstance(inner, Number) else Number(str(int(_as(str, inner))))
        if kind in ("stringValue", "bytesValue", "boolValue", "doubleValue"):
            return inner
    if value:
        raise ValueError("no AnyValue")
    return None


def _as(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value


def _decimal(value: Any) -> Decimal | None:
    """The exact value of a number or a numeric string."""
    text = value.text if isinstance(value, Number) else value.strip(_SPACE) if isinstance(value, str) else ""
    try:
        return Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        return None


def _instant(value: Any) -> int | None:
    """A time as µs since the epoch; None where it can't be read."""
    number = _decimal(value)
    if number is not None:
        if not 0 <= number.adjusted() <= 18:
            return None
        size = number.copy_abs()
        units = ((10**11, SECOND), (10**14, 1000), (10**17, 1))
        return floor(Fraction(number) * next((unit for end, unit in units if size < end), Fraction(1, 1000)))
    match = _ISO.fullmatch(value.strip(_SPACE)) if isinstance(value, str) else None
    if match is None:
        return None
    *parts, fraction, sign, hours, minutes = match.groups()
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in parts)
        whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * MINUTE * (-1 if sign == "-" else 1)
    return (whole - EPOCH) // timedelta(seconds=1) * SECOND + int(f"{fraction or ''}000000"[:6]) - offset


def _event_time(event: dict[str, Any], record_ms: int) -> int | None:
    sent = next((event[name] for name in ("timestamp", "@timestamp", "date") if event.get(name) is not None), None)
    time = record_ms * 1000 if sent is None else _instant(sent)
    return time if time is not None and FIRST_TIME <= time < END_OF_TIME else None


def _object(value: Any) -> dict[str, Any] | None:
    """An object, or the one object of an array."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else None


def _text(value: Any) -> str:
    """A string with each lone surrogate read as U+FFFD; empty where it is no string."""
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else ""


def _url(project: str, request: dict[str, Any]) -> str:
    host, path = _text(request.get("host")), _text(request.get("path"))
    if _text(request.get("url")):
        return _text(request["url"])
    if not host:
        return project + path
    protocol = _text(request.get("protocol")) or "https"
    return f"{re.split('[:/]', protocol)[0].lower()}://{host}{path}"


def _entry(element: Element, timestamp: int, address: str) -> Entry:
    event: dict[str, Any] = element.value
    metadata, project, sent_id = event.get("metadata"), _text(event.get("project")), event.get("id")
    request = _object((_object(metadata) or {}).get("request")) or {}
    url = _url(project, request)
    sent_path = request.get("path")
    path = sent_path if isinstance(sent_path, str) else re.split("[?#]", _ORIGIN.sub("", url))[0]
    said = next((event[name] for name in ("event_message", "message") if event.get(name) is not None), "")
    row = {
        "id": sent_id.text if isinstance(sent_id, Number) else _text(sent_id) or str(uuid.uuid5(ENTRY_IDS, address)),
        "timestamp": timestamp,
        "event_message": _text(said) if isinstance(said, str) else JsonText(json.dumps(_plain(said))),
        "metadata": _plain(metadata) if isinstance(metadata, dict | list) else {},
    }
    families = tuple(f"/{family}" in path for family in FAMILIES)
    return Entry(timestamp, project, row, element.raw.encode(), url.encode(), families)


def _invocation(timestamp: int, metadata: dict[str, Any], response: dict[str, Any]) -> Invocation:
    status, time = _decimal(response.get("status_code")), _decimal(metadata.get("execution_time_ms"))
    if status is not None and (status.adjusted() > 100 or status != status.to_integral_value()):
        status = None
    if time is not None and not 0 <= time <= 2**31:
        time = None
    return Invocation(
        timestamp,
        _text(metadata.get("project_ref")),
        _text(metadata.get("function_id")),
        None if status is None else int(status),
        None if time is None else int(time.quantize(Decimal("0.001"), ROUND_FLOOR).scaleb(3)),
    )


class Oracle:
    """Everything that was fed, in lists, and the answers that follow from it."""

    def __init__(self, log: str, edge_topic: str, functions_topic: str) -> None:
        self._log, self._edge_topic, self._functions_topic = log, edge_topic, functions_topic
        self.entries: list[Entry] = []
        self.invocations: list[Invocation] = []
        self.rejects: set[tuple[str, int, int, int, str]] = set()
        self.skipped: Counter[str] = Counter()

    def feed(self, records: Iterable[Record]) -> None:
        """Take records in, in any order and any number of calls."""
        for record in records:
            if record.topic not in (self._edge_topic, self._functions_topic):
                raise ValueError(f"{record.topic} is neither of the two topics")
            self._feed(record)

    def _feed(self, record: Record) -> None:
        value = record.value or b""
        body = value.removeprefix(b"\xef\xbb\xbf").strip(_SPACE.encode())
        if len(value) > MAX_BYTES:
            return self._reject(record, -1, "too_large")
        try:
            elements = _elements(body.decode()) if body else []
        except UnicodeDecodeError:
            return self._reject(record, -1, "not_utf8")
        self.skipped["empty"] += not elements
        for element in elements:
            reason = element.reason or self._keep(record, element)
            if reason:
                self._reject(record, element.position, reason)
        return None

    def _reject(self, record: Record, index: int, reason: str) -> None:
        self.rejects.add((record.topic, record.partition, record.offset, index, reason))

    def _keep(self, record: Record, element: Element) -> str:
        """Store an element's event, or say why it is refused."""
        metadata = _object(element.value.get("metadata")) or {}
        if record.topic == self._functions_topic and not _text(metadata.get("project_ref")):
            return "no_project"
        time = _event_time(element.value, record.timestamp_ms)
        if time is None:
            return "bad_timestamp"
        if record.timestamp_ms > 0 and time > record.timestamp_ms * 1000 + DAY:
            return "future"
        if record.topic == self._edge_topic:
            place = f"{self._log}/{record.topic}/{record.partition}/{record.offset}/{element.position}"
            self.entries.append(_entry(element, time, place))
            return ""
        response = _object(metadata.get("response"))
        if response is None:
            self.skipped["no_response"] += 1
        else:
            self.invocations.append(_invocation(time, metadata, response))
        return ""

    def invocation_stats(
        self, now_us: int, project: str, function_id: str | None = None, interval: str | None = None
    ) -> list[dict[str, Any]]:
        """The rows of functions.invocation-stats."""
        span, size = STATS_INTERVALS.get(interval or "", STATS_INTERVALS["1day"])
        first = now_us // size * size - span
        buckets: dict[int, list[Invocation]] = defaultdict(list)
        for one in self.invocations:
            if one.timestamp >= first and one.project == project and function_id in (None, "", one.function):
                buckets[one.timestamp // size * size].append(one)
        return [_statistics(bucket, buckets[bucket]) for bucket in sorted(buckets)][:MAX_ROWS]

    def logs_all(
        self,
        now_us: int,
        project: str,
        project_tier: str | None = None,
        start_us: int | None = None,
        end_us: int | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of logs.all."""
        after = now_us - TIERS.get(project_tier or "", TIERS["FREE"])
        found = [
            entry
            for entry in self.entries
            if entry.project == project
            and entry.timestamp > after
            and (start_us is None or entry.timestamp > start_us)
            and (end_us is None or entry.timestamp <= end_us)
        ]
        found.sort(key=lambda entry: (entry.timestamp, entry.row["id"], entry.raw), reverse=True)
        return [entry.row for entry in found[:MAX_ENTRIES]]

    def api_counts(self, now_us: int, pattern: str, interval: str) -> list[dict[str, Any]]:
        """The rows of usage.api-counts; `re2.error` where RE2 refuses the pattern, KeyError for another interval."""
        span, size = COUNTS_INTERVALS[interval]
        _compiled(pattern)
        buckets: dict[int, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.timestamp >= now_us - span and _found(pattern, entry.url):
                buckets[entry.timestamp // size * size].append(entry)
        rows, columns = [], [f"total_{family}_requests" for family in FAMILIES]
        for bucket in sorted(buckets)[:MAX_ROWS]:
            totals = map(sum, zip(*(entry.families for entry in buckets[bucket]), strict=True))
            start = EPOCH + timedelta(microseconds=bucket)
            rows.append({"timestamp": f"{start:%Y-%m-%dT%H:%M:%S}", **dict(zip(columns, totals, strict=True))})
        return rows


@functools.cache
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


@functools.lru_cache(2**17)
def _found(pattern: str, url: bytes) -> bool:
    return _compiled(pattern).search(url) is not None


def _statistics(bucket: int, invocations: list[Invocation]) -> dict[str, Any]:
    times = sorted(one.execution_time for one in invocations if one.execution_time is not None)
    return {
        "timestamp": bucket,
        "min_execution_time": _milliseconds(times[0]) if times else None,
        "max_execution_time": _milliseconds(times[-1]) if times else None,
        "avg_execution_time": sum(times) / (len(times) * 1000) if times else None,
        "p95_execution_time": _percentile(times, 95),
        "p99_execution_time": _percentile(times, 99),
        "count": len(invocations),
        "error_count": sum(one.status is not None and one.status >= 400 for one in invocations),
    }


def _milliseconds(time: int) -> int | float:
    return time / 1000 if time % 1000 else time // 1000


def _whole(time: int) -> int:
    return (time + 500) // 1000


def _percentile(times: list[int], percent: int) -> int | None:
    """The exact element of the sorted times, as whole ms."""
    return _whole(times[max(0, -(-percent * len(times) // 100) - 1)]) if times else None


def percentile_agrees(answer: int | None, exact: int | None, smallest: int | None, largest: int | None) -> bool:
    """Whether a percentile is what the histogram must make of the exact element, all in whole ms.

    Below 1,024 ms that is the element, above it the lower edge of its cell (1,024 cells an octave), within the
    smallest and the largest time.
    """
    if answer is None or exact is None or smallest is None or largest is None:
        return answer is exact
    edge = exact - exact % (1 << max(0, exact.bit_length() - 11))
    return type(answer) is int and answer == min(max(edge, smallest), largest)


def rows_agree(answer_rows: list[dict[str, Any]], oracle_rows: list[dict[str, Any]]) -> None:
    """Raise AssertionError with the first row and column in which an answer is not what the oracle says.

    Values must have the same JSON type as well: 5, 5.0, "5" and true all differ.
    """
    for number, (answer, expected) in enumerate(zip(answer_rows, oracle_rows, strict=False)):
        where = f"row {number} (timestamp {expected['timestamp']})"
        if answer.keys() != expected.keys():
            raise AssertionError(f"{where}: answered the columns {sorted(answer)}, expected {sorted(expected)}")
        for column in expected:
            if not _column_agrees(column, answer, expected):
                raise AssertionError(f"{where}, {column}: answered {answer[column]!r}, expected {expected[column]!r}")
    if len(answer_rows) != len(oracle_rows):
        longer = max(answer_rows, oracle_rows, key=len)
        odd = longer[min(len(answer_rows), len(oracle_rows))]
        raise AssertionError(f"answered {len(answer_rows)} rows, expected {len(oracle_rows)}; the odd one: {odd!r}")


def _column_agrees(column: str, answer: dict[str, Any], expected: dict[str, Any]) -> bool:
    got, want = answer[column], expected[column]
    if column in ("p95_execution_time", "p99_execution_time"):
        times = (expected["min_execution_time"], expected["max_execution_time"])
        smallest, largest = (None if time is None else _whole(round(time * 1000)) for time in times)
        return percentile_agrees(got, want, smallest, largest)
    if isinstance(want, JsonText):
        try:
            got, want = json.loads(got), json.loads(want)
        except (TypeError, ValueError):
            return False
    return json.dumps(got, sort_keys=True) == json.dumps(want, sort_keys=True)
