"""What is named is taken out, however it is written; what is left is the same JSON, and the same event otherwise."""

import base64
import ipaddress
import json
from collections import Counter
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from events import Traffic
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schema.decoding import decode_edge, decode_functions
from schema.events import EdgeEvent, Source
from schema.parts import Redacted, parts_of_message
from schema.redaction import KINDS, REDACTED, redactor

NOW = 1_750_000_000_123_456
ALL = redactor(KINDS)
assert ALL is not None
redact = ALL
SOURCE = Source("log", "edge", 0)
CREDENTIALS = ("authorization", "Proxy-Authorization", "x_supabase_authorization", "COOKIE", "set-cookie")
TOKENS = (
    "token",
    "apikey",
    "access_token",
    "X-Api-Key",
    "refreshToken",
    "client_secret",
    "PASSWORD",
    "x-amz-signature",
)
ADDRESSES = ("ip", "cf-connecting-ip", "CF_CONNECTING_IPV6", "x_real_ip", "X-Forwarded-For", "clientIP", "remote_addr")
NAMES = st.sampled_from(CREDENTIALS + TOKENS + ADDRESSES)
SECRET = "s3cr3tS3CR3T"  # noqa: S105
CHANCE = st.integers(0, 1 << 32).map(Random)
PLAIN = st.text(st.sampled_from('ab "\\/{}[]:,=&?#é日\n\t\x00\U0001f600-'), max_size=8)


class Received(NamedTuple):
    """A record as the decoder gets it."""

    offset: int
    timestamp: int
    value: bytes


def spelled(text: str, chance: Random) -> str:
    """A JSON string in which any character may be escaped."""
    parts = []
    for character in text:
        escapes = [json.dumps(character)[1:-1]]
        escapes += [f"\\u{ord(character):04x}", f"\\u{ord(character):04X}"] if ord(character) < 0x10000 else []
        escapes += ["\\/"] if character == "/" else []
        escapes += [character] if character not in '"\\' and ord(character) >= 0x20 else []
        parts.append(chance.choice(escapes))
    return '"' + "".join(parts) + '"'


def values(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3), max_leaves=6
    )


SECRETS = values(st.sampled_from([SECRET, f"Bearer {SECRET}", f'"{SECRET}\\', f"{SECRET}\n{SECRET}", 7351973519]))
OTHERS = values(PLAIN | st.integers() | st.booleans() | st.none())


def written(value: Any, chance: Random) -> str:
    """A value as JSON with any spelling of its strings and any white space."""
    space = chance.choice(["", " ", "\n\t "])
    if isinstance(value, str):
        return spelled(value, chance)
    if isinstance(value, list):
        return "[" + f"{space},".join(written(item, chance) for item in value) + f"{space}]"
    if isinstance(value, dict):
        members = [f"{spelled(key, chance)}{space}:{space}{written(item, chance)}" for key, item in value.items()]
        return f"{{{space}" + f",{space}".join(members) + "}"
    return json.dumps(value)


@settings(max_examples=300, deadline=None)
@given(NAMES, SECRETS, OTHERS, OTHERS, CHANCE)
def test_a_named_members_value_goes_whatever_its_type_nesting_and_spelling(
    name: str, secret: Any, before: Any, behind: Any, chance: Random
) -> None:
    assume("::" not in f"{before}{behind}")
    name = "".join(chance.choice([letter.upper(), letter.lower()]) for letter in name)
    member = f"{spelled(name, chance)} : {written(secret, chance)}"
    again = f"{spelled(name, chance)}:{written(secret, chance)}"
    inner = f"{{{member},{again},{spelled('x', chance)}:{written(behind, chance)}}}"
    document = f'{{"a":{written(before, chance)},"deep":[{inner}],"z":{written(behind, chance)}}}'.encode()
    clean = redact(document)
    assert SECRET.encode() not in clean
    assert SECRET not in str(json.loads(clean))
    assert b"7351973519" not in clean
    assert json.loads(clean) == json.loads(document) | {
        "deep": [{name: json.loads(clean)["deep"][0][name], "x": behind}]
    }
    assert redact(clean) == clean


@settings(max_examples=300, deadline=None)
@given(OTHERS, CHANCE)
def test_what_holds_nothing_keeps_its_bytes(value: Any, chance: Random) -> None:
    document = f'{{"a":{written(value, chance)}}}'.encode()
    assume("::" not in str(value))
    assert redact(document) == document


PAIRS = [
    '{"a":[{"name":"NAME","value":VALUE}]}',
    '{"a":[{"Key" : "NAME" , "Value" : VALUE}]}',
    '{"a":[["NAME",VALUE]]}',
    '{"a":[{"value":{"stringValue":"VALUE]"},"key":"NAME"}]}',
    '{"a":[{"value":["VALUE}"],"key":"NAME"}]}',
]


@given(st.sampled_from(PAIRS), NAMES, SECRETS)
def test_a_header_as_a_pair_goes_too(pair: str, name: str, secret: Any) -> None:
    written = json.dumps(secret) if "VALUE" in pair.replace('"VALUE', "") else SECRET
    document = pair.replace("VALUE", written).replace("NAME", name).encode()
    json.loads(document)
    clean = json.loads(redact(document))
    assert SECRET not in str(clean)
    assert "7351973519" not in str(clean)
    assert REDACTED in str(clean)


JWT = ".".join(
    base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    for part in (b'{"alg":"HS256"}', b'{"role":"anon"}', b"sign" * 8)
)
TEXTS = [
    f"https://r.supabase.co/rest/v1/t?select=*&apikey={SECRET}&limit=1",
    f"https://r.supabase.co/auth/v1/callback#access_token={SECRET}&refresh_token={SECRET}",
    f"wss://r.supabase.co/realtime?API%4bEY={SECRET}",
    f"/auth/v1/verify?%74oken={SECRET}&type=signup",
    f"/x?next={quote(f'https://o/?access_token={SECRET}', safe='')}&a=b",
    f"/x?next={quote(quote(f'https://o/?api_key={SECRET}', safe=''), safe='')}",
    f"/callback?code={SECRET}&state=1",
    f"https://user:{SECRET}@host/rest",
    f"https://{SECRET}@p@host/rest",
    f"GET /x Authorization: Bearer {SECRET}\r\nHost: y",
    f"cookie: sb-access-token=x; sid={SECRET}",
    f"curl -H 'apikey: {SECRET}'",
    f"used bearer {SECRET}",
    f"used Basic%20{SECRET}",
    f'level=info token="{SECRET} {SECRET}" status=200',
    json.dumps({"headers": {"authorization": f"Digest {SECRET}"}, "status": 200}),
    json.dumps({"apikey": [SECRET, {"a": SECRET}]}),
    json.dumps(json.dumps({"password": SECRET})),
    json.dumps({"password": f'a"{SECRET}\\" {SECRET}', "x": 1}),
    json.dumps(json.dumps({"password": f'a"{SECRET}\\" {SECRET}', "x": 1})),
    json.dumps({"cookie": f'theme="dark"; sid={SECRET}'}),
    f'cookie: theme="dark"; sid={SECRET}',
    f'authorization: Digest username="u", realm="r", response="{SECRET}"',
    f"{{'password': 'a {SECRET}', 'x': 1}}",
    f"sb_secret_{SECRET}",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), PLAIN, st.sampled_from(["", " é", "\n", "\t", "日"]), CHANCE)
def test_a_secret_in_any_text_goes_and_what_is_around_it_stays_json(
    text: str, key: str, before: str, chance: Random
) -> None:
    document = f'{{{spelled("p" + key, chance)}:{spelled(before + text, chance)},"z":[1]}}'.encode()
    clean = redact(document)
    assert SECRET.encode() not in clean, clean
    assert SECRET not in str(json.loads(clean))
    assert REDACTED.encode() in clean
    assert json.loads(clean)["z"] == [1]
    assert redact(clean) == clean


def test_a_query_without_its_question_mark_gives_its_codes_up() -> None:
    event = {"search": f"code={SECRET}&state=1", "log": json.dumps({"args": f"otp={SECRET}"}), "x": "mycode=1"}
    clean = json.loads(redact(json.dumps(event).encode()))
    assert clean == {"search": "code=REDACTED&state=1", "log": '{"args": "otp=REDACTED"}', "x": "mycode=1"}


def test_what_follows_a_quoted_secret_stays() -> None:
    for text in (json.dumps({"password": 'a"b\\', "status": 200}), "{'password': 'a b', 'status': 200}"):
        for depth in (text, json.dumps({"log": text})):
            clean = json.loads(redact(json.dumps({"message": depth}).encode()))["message"]
            assert "status" in clean
            assert "b" not in clean.replace("log", "")
    assert redact(b'{"m":"it\'s a token: abc, and it\'s"}') == b'{"m":"it\'s a token: REDACTED and it\'s"}'


@given(st.sampled_from(["", "a ", "x=", "\n", "é"]), st.sampled_from(["", " b", "&c=d", '"']), CHANCE)
def test_a_jwt_goes_wherever_it_stands_and_all_of_it(before: str, behind: str, chance: Random) -> None:
    document = f'{{"a":{spelled(before + JWT + behind, chance)},"{JWT}":1}}'.encode()
    clean = json.loads(redact(document))
    assert clean == {"a": f"{before}{REDACTED}{behind}", REDACTED: 1}


@settings(max_examples=300, deadline=None)
@given(
    st.ip_addresses(v=4) | st.ip_addresses(v=6),
    st.sampled_from(["", "GET | 200 | ", "[", "\n", "\t", "é", "日", "ip=", "%20", "%3D", "a/"]),
    st.sampled_from(["", " | x", "]:8080", "\n", ":443 ", "/24", "?x", "&", "%26a"]),
    st.booleans(),
    st.booleans(),
    CHANCE,
)
def test_an_address_goes_wherever_it_stands(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    before: str,
    behind: str,
    long: bool,
    encoded: bool,
    chance: Random,
) -> None:
    assume(address != ipaddress.IPv6Address(0) and (address.version == 4 or behind != ":443 "))
    text = address.exploded.upper() if long else address.compressed
    text = quote(text, safe="").replace(".", "%2E") if encoded else text
    document = f'{{"message":{spelled(before + text + behind, chance)}}}'.encode()
    clean = json.loads(redact(document))["message"]
    assert text not in clean
    assert clean.endswith(REDACTED + behind)


@pytest.mark.parametrize(
    "text", ["Foo::Bar", "std::vector<int>", "12:34:56", "1.2.3", "aa:bb:cc:dd:ee:ff", "1:2", "::"]
)
def test_what_is_no_address_stays(text: str) -> None:
    document = json.dumps({"message": text}).encode()
    assert redact(document) == document


def test_each_kind_takes_its_own_alone() -> None:
    event = {"authorization": "Digest abc", "apikey": "abc", "x-real-ip": "10.0.0.1"}
    for kind, name in zip(KINDS, event, strict=True):
        one = redactor([kind])
        assert one is not None
        assert json.loads(one(json.dumps(event).encode())) == event | {name: REDACTED}
    assert redactor([]) is None


@pytest.mark.parametrize("topic", ["edge", "functions"])
def test_redacted_traffic_is_the_same_traffic_in_every_form(topic: str) -> None:
    """Counts, rejects and events of real traffic agree; only bytes differ, and rejects keep their length alone."""
    decode = decode_edge if topic == "edge" else decode_functions
    messages = [m for m in Traffic(5, NOW, "edge", "functions").messages(4000) if m.topic == topic]
    redacted = 0
    for message in messages:
        record = Received(1, message.timestamp_ms, message.value)  # type: ignore[arg-type]
        plain, clean = decode(SOURCE, [record]), decode(SOURCE, [record], Redacted(parts_of_message, redact))
        assert plain.counts == clean.counts
        assert [(o, r.index, r.reason) for o, r, _ in plain.rejects] == [
            (o, r.index, r.reason) for o, r, _ in clean.rejects
        ]
        for (_, before, _), (_, after, _) in zip(plain.rejects, clean.rejects, strict=True):
            if before.reason not in ("bad_timestamp", "future", "no_project"):
                assert after.data == f"REDACTED: {len(before.data)} bytes".encode()
        for one, other in zip(plain.events, clean.events, strict=True):
            if isinstance(one, EdgeEvent) and isinstance(other, EdgeEvent):
                parts = attrgetter("timestamp", "project", "families", "missing_id")
                assert parts(one) == parts(other)
                redacted += one.data != other.data
            else:
                assert one == other
    assert redacted or topic == "functions"


PIECES = rb'"token" "ip" : { } [ ] , " \ \u0031 \u0022 \u005c 1 \x a= ://u:p@'.split()
ANY = (
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | st.lists(st.sampled_from([*PIECES, b" ", b"\xff"]), max_size=16).map(b"".join)
)


@settings(max_examples=500, deadline=None)
@given(ANY)
def test_any_bytes_are_taken_or_refused_as_they_are_without_redaction(value: bytes) -> None:
    for document in (value, b'{"project":"p","timestamp":1750000000,"x":' + value + b"}"):
        record = Received(1, NOW // 1000, document)
        plain, clean = decode_edge(SOURCE, [record]), decode_edge(SOURCE, [record], Redacted(parts_of_message, redact))
        assert [(o, r.index, r.reason) for o, r, _ in plain.rejects] == [
            (o, r.index, r.reason) for o, r, _ in clean.rejects
        ]
        assert (len(plain.events), Counter(plain.counts)) == (len(clean.events), Counter(clean.counts))
