"""Made-up traffic for the tests: Kafka messages in every shape that producers send, drawn from one seed.

The same seed, `now_us` and calls give the same messages. Most are good events, dense towards now; record timestamps
stay within the last six days and never pass now, so that a broker's retention by time takes nothing away.
"""

import json
import re
import string
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

Event = dict[str, Any]

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BOM = b"\xef\xbb\xbf"
MAX_BYTES = 16 * 1024 * 1024

PATHS = (
    *("/rest/v1/todos", "/rest/v1/rpc/sum", "/storage/v1/object/public/a.png", "/auth/v1/token", "/auth/v1/authorize"),
    *("/realtime/v1/websocket", "/functions/v1/hello", "/", "", "/rest/v1/storage/auth/realtime", "/graphql/v1"),
    *("/Rest/v1/upper", "/pg/rest", "/restful", "/rest/v1/caf%C3%A9", "/rest/v1/café", "/storage/v1/日本語/写真.jpg"),
    *("/rest/v1/a\nb", "/rest/v1/last\n", "/auth/v1/nul\0byte", "/realtime/v1/\U0001f600", "/rest/v1/Ωμέγα"),
)
HOSTILE = (
    *("nul\0byte", "line\nbreak\r\n", "lone \ud800 surrogate", "\udfff\ud83d", 'quote " and back\\slash', "\u202e<-"),
    *("' OR 1=1 --", "emoji 😀", "日本語", "straße", "%s {} ${x} @now", "e\u0301", "\ufeff", "a\u2028b", " "),
)
BAD_TIMES: tuple[Any, ...] = (
    *(True, False, {}, [], ["2024-01-01T00:00:00Z"], {"seconds": 1}, "yesterday", "", "NaN", "Infinity", "0x5F5E100"),
    *("2024-02-30T00:00:00Z", "2023-02-29", "2024-01-01T25:00:00Z", "2024-01-01T10:61:00Z", "2024-01-01T00:00:60Z"),
    *("2024-13-01", "2024-01-01T00:00:00+25:00", "2024-01-01T00:00:00.1234567890Z", "1999-12-31T23:59:59.999999Z"),
    *("2101-01-01T00:00:00Z", "2000-01-01T00:00:00+00:01", "1700000000x", 0, -5, 946_684_799, 4_133_980_800, 10**20),
)
BAD_ELEMENTS: tuple[Any, ...] = (17, "text", None, True, [], [{"timestamp": 1_700_000_000}])
BAD_LINES = (b"no json at all", b'{"a":', b"{'a': 1}", b'{"timestamp":NaN}', b'{"a":1,}', b'{"a":01}', b'{"a":"\x01"}')
BAD_MESSAGES = (
    *BAD_LINES,
    *(b"17", b'"text"', b"true", b"null", b"-0.5e3", b"[1,2", b"{} {}", b"[1]\n[2]", b"]", b"{", b'"', b"\\", b"nul"),
    *(b"\xff\xfe{\x00}\x00", b"\xed\xa0\x80", b'{"event_message":"\xe9"}', b'{"a":"\xc3"}', b"\x82\xa2id\xa1a\x01"),
    *(b"<13>1 2024-01-01T00:00:00Z host app - - - hello", b"plain\ntext\non lines", b'{"a":"\\x"}', b'{"a":tru}'),
    *(b"[" * 100 + b"]" * 100, b"[" * 5000 + b"]" * 5000, b"[" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65, b"{}]"),
)
PROTOCOLS = ("https:", "HTTP/1.1", "", None, "http", 17, "wss:")
METHODS = ("GET", "POST", "PATCH", "DELETE")
PATTERNS = r"""
    GHOST QUIET default ^GHOST //GHOST redirect_to=.*GHOST FIRST.supabase.co.*GHOST FIRST|SECOND (?:FIRST|SECOND)/rest
    ^https://FIRST\. FIRST\.supabase\.co/auth ^FIRST FIRST$ \bFIRST\b \BFIRST FIRST\B FIRST|\z (?i)https://SECOND[.]SUPA
    \A(?:https?|wss)://SECOND \QFIRST.supabase.co\E .* . a| | () (?:) ^ $ \A \z \b \B ^$ \A\z a* x{0} \C \z. a\Ab
    https?://[^/]+/rest ^https?://[^/]*/(rest|storage)/v1/ co/rest co/?$ supabase\.co(:\d+)?/auth :8443/ ^wss: @ ^/
    /rest /storage /auth /realtime /(?:rest|auth) /rest/v1/[a-z]+$ (?U)/r.+/ (?i)/REST [[:upper:]] (?P<ref>[a-z]{20})\.s
    a\nb a.b (?s)a.b (?m)^b (?m)a$ (?-m)^b (?sm)a$.^b last$ last\s\z (?m:last$) a[^x]b (?s:.)\z \s \x00 nul\x00byte
    café caf\x{e9} caf.$ caf\C\C$ 日本語 \p{Han}+ \p{Greek} [^\x00-\x7F] \x{1F600} (?i)ΩΜΈΓΑ \PL\z %C3%A9 (?i)k �
    GET select=\* limit=1{1}0 \?.*next=/auth #frag ^default api\.example\.com ^https://api\.example\.com/rest
    zzzz-matches-nothing [^\x00-\x{10FFFF}] supabase[.]co$ ^.{0,60}$ [a-z]{20} (a|b|c)+(d|e|f)* //[^/]*//
"""
REFUSED_PATTERNS = r"""
    (?=a) (?!a) (?<=a)b (a)\1 [a a** (a a) a{1001} *a \8 [z-a] \pX a\ (?>a) ((a{100}){100}){100} [[:nope:]] a\Z (?x)a
    a{2,1} (?P<n>a
"""
_LITERAL = re.compile('"`([^`"]*)`"')


@dataclass(frozen=True)
class Message:
    """What a producer sends: the broker adds partition and offset."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def literal(text: str) -> str:
    """A mark that `dumps` turns into the bare JSON text: exact decimals, deep nests, numbers no float can hold."""
    return f"`{text}`"


def dumps(value: Any, *, ascii_only: bool = True, indent: int | None = None) -> bytes:
    """JSON with its literals put in. What UTF-8 can't hold (a lone surrogate) is escaped in any case."""
    text = _LITERAL.sub(r"\1", json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return dumps(value, indent=indent)


def any_value(value: Any) -> Event:
    """A JSON value as an OTLP AnyValue; what is null inside is left out."""
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value if item is not None]}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue" if value.startswith("`") else "stringValue": value}


def pairs(fields: Event) -> list[Event]:
    """Fields as OTLP attributes."""
    return [{"key": key, "value": any_value(value)} for key, value in fields.items() if value is not None]


NESTED = literal("[" * 62 + "]" * 62)
ODD_FIELDS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("metadata", (None, [], [{}, {}], "text", 5, {"request": None}, [{"request": [{}, {}]}])),
    ("project", (None, 17, "", ["a"], "naïve project")),
    ("id", (None, "", 12345, literal("1.50"), literal("1E5"), literal("-0"), {"a": 1}, True)),
    ("event_message", (None, {"a": [1, literal("2.50"), None], "é": "日"}, 17, True, ["x"], "", literal("12.50"))),
    ("extra", (literal("1e400"), literal("-0.0"), NESTED, {"deep": {"er": [{}]}}, 2**64, "\ud800")),
)
ODD_TIMES: tuple[Any, ...] = (
    *(None, True, "NaN", "fast", -5, 2**31, 2**31 + 1, {}, [], "", "57", "12.5", "1e3", "2147483648", "-1", 0),
    *map(literal, ("-0.5", "1e400", "1e-400", "2147483648.0000001", "0.0004999", "1.0005", "5E2", "-0.0", "1023.5")),
)
ODD_STATUSES: tuple[Any, ...] = (
    *(None, "404", "abc", True, {}, "399", "200.0", 0, -1, 99, 100, 302, 600, ""),
    *map(literal, ("500.0", "5e2", "400.5", "4.04e2", "399.9")),
)


class Traffic:
    """A source of messages around one moment, `now_us`, on the two topics.

    `projects` are ten 20-letter refs with five functions each (`functions`). `default` is the project of self-hosted
    events, `ghost` a ref that stands only in the query strings of others, `quiet` one that only `window_edges` uses.
    """

    default = "default"

    def __init__(self, seed: int, now_us: int, edge_topic: str, functions_topic: str) -> None:
        self._random = Random(seed)
        self.now_us = now_us
        self.edge_topic, self.functions_topic = edge_topic, functions_topic
        refs = ["".join(self._random.choices(string.ascii_lowercase, k=20)) for _ in range(12)]
        self.projects, self.ghost, self.quiet = refs[:10], refs[10], refs[11]
        self.functions = {project: [self._uuid() for _ in range(5)] for project in [*self.projects, self.quiet]}

    def messages(self, count: int) -> list[Message]:
        """The next messages: most hold good events, some are poison or hold some."""
        makers = (self._single, self._several, self._otlp, self._poison, self._nothing)
        return [make() for make in self._random.choices(makers, (66, 24, 4, 4, 2), k=count)]

    def edge_at(
        self,
        timestamp_us: int,
        *,
        project: str | None = None,
        url: str | None = None,
        path: str | None = None,
        entry_id: str | None = None,
        event_message: str = "",
        record_ms: int | None = None,
    ) -> Message:
        """One edge request exactly then. Without `path` the event has none, without `entry_id` no id."""
        project = project or self.projects[0]
        request = {"method": "GET", "url": url or f"https://{project}.supabase.co/rest/v1/todos"}
        event: Event = {"timestamp": timestamp_us, "project": project, "event_message": event_message}
        event |= {} if entry_id is None else {"id": entry_id}
        event["metadata"] = {"request": request | ({} if path is None else {"path": path})}
        return self._message(self.edge_topic, dumps(event), timestamp_us, record_ms)

    def invocation_at(
        self,
        timestamp_us: int,
        *,
        project: str | None = None,
        function: str | None = None,
        status: int | None = 200,
        execution_time_ms: float | str | None = 10,
        record_ms: int | None = None,
    ) -> Message:
        """One function invocation exactly then; `function` '' or a `None` elsewhere leaves the field out."""
        project = project or self.projects[0]
        function = self.functions.get(project, ["f"])[0] if function is None else function
        metadata: Event = {"project_ref": project, "response": {} if status is None else {"status_code": status}}
        metadata |= {"function_id": function} if function else {}
        metadata |= {} if execution_time_ms is None else {"execution_time_ms": execution_time_ms}
        event = {"timestamp": timestamp_us, "event_message": "", "metadata": metadata}
        return self._message(self.functions_topic, dumps(event), timestamp_us, record_ms)

    def window_edges(self) -> list[Message]:
        """Events of the project `quiet` on each window's start, each first full bucket and each tier's end, ±1 µs."""
        spans = [(60 * MINUTE, MINUTE), (HOUR, HOUR), (7 * DAY, DAY), (15 * MINUTE, MINUTE), (30 * MINUTE, MINUTE)]
        spans += [(3 * HOUR, MINUTE), (DAY, HOUR), (3 * DAY, HOUR)]
        starts = {self.now_us - span for span, _ in spans} | {self.now_us - days * DAY for days in (1, 7, 90)}
        starts |= {-(-(self.now_us - span) // size) * size for span, size in spans}
        edges = [edge + step for edge in sorted(starts) for step in (-1, 0, 1)]
        families = ("rest", "storage", "auth", "realtime", "functions")
        found = [
            self.edge_at(edge, project=self.quiet, url=f"https://{self.quiet}.supabase.co/{families[number % 5]}/v1/x")
            for number, edge in enumerate(edges)
        ]
        series = [(5 * MINUTE, SECOND), (15 * MINUTE, MINUTE), (HOUR, MINUTE), (DAY, HOUR), (7 * DAY, DAY)]
        firsts = {self.now_us // size * size - span for span, size in series}
        firsts |= {self.now_us // size * size - back for span, size in series for back in (span - size, 0)}
        return found + [
            self.invocation_at(
                first + step, project=self.quiet, status=200 + 100 * (step + 1), execution_time_ms=step + 2
            )
            for first in sorted(firsts)
            for step in (-1, 0, 1)
        ]

    def too_large(self) -> Message:
        """One byte more than a message may have; it is good JSON otherwise."""
        event = {"timestamp": self.now_us, "project": self.projects[0], "event_message": ""}
        value = dumps(event)
        return self._message(
            self.edge_topic, value[:-2] + b"x" * (MAX_BYTES + 1 - len(value)) + value[-2:], self.now_us
        )

    def patterns(self) -> list[str]:
        """Patterns for usage.api-counts that RE2 takes, as a caller may send them."""
        names = {"FIRST": self.projects[0], "SECOND": self.projects[1], "GHOST": self.ghost, "QUIET": self.quiet}
        patterns = [*PATTERNS.split(), "/rest/v1/a\nb", "(?m)^b|\n$", "last\n$", "(?i:SECOND)\\.supa", "api example"]
        for name, project in names.items():
            patterns = [pattern.replace(name, project) for pattern in patterns]
        return [*self.projects, self.projects[0].upper(), f"(?i){self.projects[0].upper()}", *patterns]

    def refused_patterns(self) -> list[str]:
        """Patterns that RE2 refuses."""
        return REFUSED_PATTERNS.split()

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _moment(self) -> int:
        """When an event happens: dense towards now, at times on a whole ms, second, minute or day, rarely ahead."""
        spans = (5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, DAY, 8 * DAY, 91 * DAY)
        moment = self.now_us - self._random.randrange(self._random.choices(spans, (20, 15, 20, 10, 15, 17, 3))[0])
        grain = self._random.choices((1, 1000, SECOND, MINUTE, DAY), (100, 60, 30, 6, 1))[0]
        return moment // grain * grain + (HOUR if self._chance(0.01) else 0)

    def _record_ms(self, event_us: int) -> int:
        """A record timestamp for an event: soon after it, sometimes late, within the last six days."""
        now, delay = self.now_us // 1000, self._random.randrange(10_800_000 if self._chance(0.1) else 60_000)
        earliest = now - 6 * 86_400_000 + 3_600_000
        record = event_us // 1000 + delay
        return min(now, record if record > earliest else self._random.randrange(earliest, now))

    def _message(self, topic: str, value: bytes | None, event_us: int, record_ms: int | None = None) -> Message:
        key = self._random.choice(self.projects).encode() if self._chance(0.7) else None
        return Message(topic, key, value, self._record_ms(event_us) if record_ms is None else record_ms)

    def _stamp(self, moment: int) -> Event:
        """The fields that say exactly this time, in one of the forms that producers use."""
        seconds, micro = divmod(moment, SECOND)
        rest = f"{self._random.randrange(1000):03d}"
        fraction, offset = f"{micro:06d}", self._random.choice((-690, -330, -60, 60, 120, 345))
        sign, (hours, minutes) = "+-"[offset < 0], divmod(abs(offset), 60)
        utc, local = (EPOCH + timedelta(seconds=seconds + 60 * shift) for shift in (0, offset))
        text, there = f"{utc:%Y-%m-%dT%H:%M:%S}", f"{local:%Y-%m-%dT%H:%M:%S}.{fraction}{sign}"
        forms = [f"{text}.{fraction}Z", f"{text}.{fraction}{rest}Z", f"{text},{fraction}", f"{text}.{fraction} +00:00"]
        forms += [f" {text.replace('T', ' ')}.{fraction} ", f"{text.lower()}.{fraction}z", f"{text}.{fraction}-00"]
        forms += [f"{there}{hours:02d}:{minutes:02d}", f"{there}{hours:02d}{minutes:02d}", f"{moment}{rest}"]
        exact = [f"{moment}", f"{moment}{rest}", f"{seconds}.{fraction}{rest}", f"{moment // 1000}.{micro % 1000:03d}9"]
        exact += [f"{moment}e-6", f"{moment // 10**15}.{moment % 10**15:015d}e+9", f"{moment}.5", f"{moment}{rest}.25"]
        if micro % 1000 == 0:
            exact += [f"{moment // 1000}"] * 3
            forms += [f"{text}.{fraction[:3]}Z", f"{moment // 1000}"]
        if micro == 0:
            exact += [f"{seconds}", f"{seconds}.0", f"{seconds}E0"]
            forms += [f"{text}Z", text, f"{seconds}", f"{text}+00"]
        if moment % MINUTE == 0:
            forms += [text[:16], f"{text[:16]}Z"] * 3
        if moment % DAY == 0:
            forms += [text[:10]] * 9
        value = self._random.choice(forms) if self._chance(0.6) else literal(self._random.choice(exact))
        names: tuple[Event, ...] = ({"timestamp": value}, {"@timestamp": value}, {"date": value})
        names += ({"timestamp": None, "date": value}, {"timestamp": value, "date": "no time"})
        return self._random.choices(names, (75, 10, 6, 4, 5))[0]

    def _nest(self, value: Event) -> Any:
        return [value] if self._chance(0.3) else value

    def _url(self, project: str) -> tuple[str, str, str]:
        """Origin, path and query of a request; other projects' refs stand in some queries."""
        schemes = ("https://%s", "https://api.example.com", "http://%s:8443", "wss://%s", "https://u@%s")
        origin = self._random.choices(schemes, (80, 10, 4, 4, 2))[0].replace("%s", f"{project}.supabase.co")
        other = self._random.choice([*self.projects, self.ghost, self.ghost])
        queries = ("", "?select=*", "?select=id&limit=10", "?next=/auth/v1/callback", "#frag/rest", "?q=GET/storage")
        query = f"?redirect_to=https://{other}.supabase.co/" if self._chance(0.1) else self._random.choice(queries)
        return origin, self._random.choice(PATHS), query

    def _edge_event(self) -> Event:
        """An edge request log without its time."""
        pick = self._random.choice
        hosted = self._chance(0.85)
        project = self._random.choices(self.projects, range(10, 0, -1))[0] if hosted else self.default
        origin, path, query = self._url(project)
        request: Event = {"method": pick(METHODS), "path": path if hosted else path + query}
        response: Event = {"status_code": pick((200, 201, 304, 404, 500))}
        event: Event = {"project": project, "event_message": f"GET | 200 | 10.0.0.1 | {origin}{path}{query} | curl/8"}
        event["metadata"] = self._nest({"request": self._nest(request), "response": self._nest(response)})
        if hosted:
            request |= {"url": origin + path + query, "search": query, "headers": {"user_agent": "curl/8"}, "cf": {}}
            response |= {"origin_time": self._random.randrange(900), "headers": [{"cf_cache_status": None}]}
            event |= {"id": self._uuid()} if self._chance(0.8) else {}
            if self._chance(0.3):
                request["path"] = pick((path + query, None, 17, "", "/elsewhere/storage", "/auth" + path))
        if not hosted or self._chance(0.05):
            request |= {"host": pick((f"{project}.supabase.co", "kong", "", None, 5)), "protocol": pick(PROTOCOLS)}
            request["url"] = pick((None, "", 17))
        if self._chance(0.05):
            del request["path"]
        return self._odd(event)

    def _function_event(self) -> Event:
        """A function log without its time; self-hosted ones have no response."""
        pick, hosted = self._random.choice, self._chance(0.9)
        project = self._random.choices(self.projects, range(10, 0, -1))[0]
        event: Event = {"event_message": "POST | 200 | hello", "metadata": {"project_ref": project}}
        if not hosted:
            return self._odd(event)
        took = int(self._random.lognormvariate(4, 2)) if self._chance(0.85) else pick(ODD_TIMES)
        status = pick((200, 200, 200, 201, 400, 500)) if self._chance(0.9) else pick(ODD_STATUSES)
        metadata: Event = event["metadata"]
        metadata |= {"function_id": pick(self.functions[project]), "execution_time_ms": took, "version": "7"}
        metadata |= {"deployment_id": self._uuid(), "request": self._nest({"method": "POST", "pathname": "/hello"})}
        metadata["response"] = self._nest({"status_code": status, "headers": {}})
        if self._chance(0.06):
            metadata |= pick(({"function_id": None}, {"function_id": ""}, {"function_id": 5}, {"response": None}))
            metadata |= pick(({"response": []}, {"response": [{}, {}]}, {"response": {}}, {"project_ref": "é"}, {}))
        return self._odd({"id": self._uuid(), **event, "metadata": self._nest(metadata)})

    def _odd(self, event: Event) -> Event:
        """Some events get a field that is hard to read, hostile text or `message` for `event_message`."""
        if self._chance(0.1):
            name, values = self._random.choice(ODD_FIELDS)
            event[name] = self._random.choice(values)
        if self._chance(0.06):
            name = self._random.choice(("id", "event_message", "event_message", "project"))
            event[name] = self._random.choice(HOSTILE)
        if self._chance(0.1):
            event["message"] = event.pop("event_message", None)
        return event

    def _draw(self, topic: str) -> Event:
        return self._edge_event() if topic == self.edge_topic else self._function_event()

    def _topic(self) -> str:
        return self.edge_topic if self._chance(0.65) else self.functions_topic

    def _write(self, event: Event, *, pretty: bool = False) -> bytes:
        """An event as JSON, at times with members in another order, keys or slashes escaped, or keys sent twice."""
        members = list(event.items())
        if self._chance(0.3):
            self._random.shuffle(members)
        value = dumps(dict(members), ascii_only=self._chance(0.5), indent=2 if pretty else None)
        if self._chance(0.03):
            value = value.replace(b"/", b"\\/")
        if self._chance(0.03):
            value = value.replace(b'"project', b'"\\u0070roject').replace(b'"timestamp', b'"\\u0074imestamp')
        if self._chance(0.03):
            value = value.replace(b"{", b'{"timestamp":false,"project":"wrong","metadata":{"project_ref":"wrong"},', 1)
        return value

    def _single(self) -> Message:
        topic, moment = self._topic(), self._moment()
        time = {} if self._chance(0.02) else self._stamp(moment)
        value = self._write({**time, **self._draw(topic)}, pretty=self._chance(0.05))
        frame = self._random.choices((b"%b", BOM + b"%b", b"\r\n %b\t\n", BOM + b"\n%b ", b"[%b]"), (85, 4, 4, 3, 4))[0]
        return self._message(topic, frame % value, moment)

    def _several(self) -> Message:
        """An array, a batch or NDJSON of one to six events close together, a third of them with poison among them."""
        topic, moment = self._topic(), self._moment()
        moments = [moment - self._random.choice((0, 0, 1, 999, 5 * SECOND)) for _ in range(self._random.randint(1, 6))]
        items = [self._write({**self._stamp(at), **self._draw(topic)}) for at in moments]
        record = self._record_ms(moment)
        form = self._random.choice(("array", "batch", "ndjson"))
        if self._chance(0.35):
            for _ in range(self._random.randint(1, 2)):
                bad = self._bad_element(topic, record, lines=form == "ndjson")
                items.insert(self._random.randint(0, len(items)), bad)
        if form == "ndjson":
            for blank in (b"", b"  ", b"\t")[: self._random.randint(0, 3)]:
                items.insert(self._random.randint(0, len(items)), blank)
            end = self._random.choice((b"\n", b"\r\n"))
            return self._message(topic, end.join(items) + self._random.choice((b"", end)), moment, record)
        array = b"[" + self._random.choice((b",", b" ,\n  ")).join(items) + b"]"
        frames = (b'{"batch":%b}', b'{"source":"x","batch" : %b ,"n":1}', b'{"batch":5,"batch":%b}')
        return self._message(topic, array if form == "array" else self._random.choice(frames) % array, moment, record)

    def _bad_element(self, topic: str, record_ms: int, *, lines: bool) -> bytes:
        """An element that is refused for one of the reasons (one in six: a good one that looks like it)."""
        event, pick = self._draw(topic), self._random.choice
        ahead = record_ms * 1000 + DAY + pick((0, 1, 1, 2))
        made: list[Event] = [{**event, "timestamp": pick(BAD_TIMES)}, {**event, **self._stamp(ahead)}]
        nested = pick((63, 64, 3000))
        made += [{**event, "timestamp": pick(BAD_TIMES)}, {**event, "a": literal("[" * nested + "]" * nested)}]
        made += [{**event, "metadata": pick(({}, {"project_ref": ""}, {"project_ref": 5}))}]
        if self._chance(0.3):
            return pick(BAD_LINES) if lines else dumps(pick(BAD_ELEMENTS))
        return self._write(pick(made))

    def _poison(self) -> Message:
        topic = self._topic()
        record = self._record_ms(self._moment())
        value = self._bad_element(topic, record, lines=False)
        if self._chance(0.6):
            value = self._random.choice(BAD_MESSAGES)
        return self._message(topic, value, 0, record)

    def _nothing(self) -> Message:
        value = self._random.choice((None, None, b"", b" \r\n\t", BOM, BOM + b"\n", b"[]", b" [ ] "))
        return self._message(self._topic(), value, self._moment())

    def _otlp(self) -> Message:
        """OTLP JSON: fields in the attributes or in the body, some of the records of no shape."""
        topic, moment = self._topic(), self._moment()
        records: list[Any] = []
        for _ in range(self._random.randint(1, 3)):
            event = {key: value for key, value in self._draw(topic).items() if value is not None and key != "extra"}
            event |= {} if isinstance(event.get("id"), str) else {"id": self._uuid()}
            nanos = f"{moment}{self._random.randrange(1000):03d}"
            time = self._random.choice(({"timeUnixNano": nanos}, {"timeUnixNano": "0", "observedTimeUnixNano": nanos}))
            if self._chance(0.5):
                records.append({**time, "severityText": "INFO", "body": any_value({"timestamp": nanos, **event})})
            else:
                said = event.pop("event_message", None)
                body = {"body": any_value(said)} if isinstance(said, str) else {}
                records.append({**time, **body, "attributes": pairs(event)})
        if self._chance(0.2):
            records.insert(self._random.randint(0, len(records)), self._random.choice((5, "text", None, [])))
        resource: Event = {"attributes": pairs({"service.name": "relay", "project": self.projects[9]})}
        groups: list[Any] = [{"resource": resource, "scopeLogs": [{"scope": {}, "logRecords": records}]}]
        return self._message(topic, dumps({"resourceLogs": groups}), moment)
