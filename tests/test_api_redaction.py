"""IP addresses are taken out of texts, whatever surrounds them; what is none stays."""

import ipaddress
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_api_reader import query_of

from api.bodies import body
from api.reader import Answer
from api.redaction import redact_json, redact_text

BEHIND = st.sampled_from(("", " ", '"', "'", ",", ";", "|", "(", ")", "[", "]", "=", "/", "\n", "é", "-", "<", ">"))
BEFORE = BEHIND | st.sampled_from(("ip: ", "ip:", "for="))
ADDRESSES = st.ip_addresses()


def v6_forms(address: ipaddress.IPv6Address) -> list[str]:
    return [str(address), str(address).upper(), address.exploded]


@given(BEFORE, ADDRESSES, BEHIND)
def test_an_address_is_taken_out_whatever_stands_around_it(before: str, address: Any, behind: str) -> None:
    forms = v6_forms(address) if address.version == 6 else [str(address)]
    for form in forms:
        if form != "::":
            assert redact_text(before + form + behind) == before + "REDACTED" + behind


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (
            "GET | 200 | 37.5.20.4 | 7ac6 | https://r.supabase.co/",
            "GET | 200 | REDACTED | 7ac6 | https://r.supabase.co/",
        ),
        ("from 1.2.3.4.", "from REDACTED."),
        ("1.2.3.4:8080, 10.0.0.1, [2001:db8::1]:443", "REDACTED:8080, REDACTED, [REDACTED]:443"),
        ("ip:2001:db8::1", "ip:REDACTED"),
        ("::ffff:1.2.3.4 fe80::1%eth0 1.2.3.4/8 2001:db8::/32", "REDACTED REDACTED%eth0 REDACTED/8 REDACTED/32"),
        ("http://1.2.3.4/x?y=5.6.7.8&z=1", "http://REDACTED/x?y=REDACTED&z=1"),
    ],
)
def test_addresses_in_their_usual_places(text: str, redacted: str) -> None:
    assert redact_text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        *("12:34:56", "2025-01-01T12:34:56.123Z", "std::vector<Foo::bar>", "a :: b", "256.1.1.1", "1.2.3", "1.2.3.4.5"),
        *("aa:bb:cc:dd:ee:ff", "key: value: other", "7ac6d2e4", "https://ref.supabase.co/rest/v1/t", "10:20", "99.9.9"),
    ],
)
def test_what_is_no_address_stays(text: str) -> None:
    assert redact_text(text) == text


@given(st.text(alphabet="0123456789abcdefABCDEF:.% xé"))
def test_nothing_hostile_takes_long_and_no_token_that_is_an_address_stays(text: str) -> None:
    for token in redact_text(text).split():
        try:
            address = ipaddress.ip_address(token)
        except ValueError:
            continue
        assert str(address) == "::"


def test_a_long_hostile_text_takes_linear_time() -> None:
    for piece in ("1:", "1::", "1.", "a:1.2.", ":" * 3, "1:2:3:4:5:6:7:", "255.255.255."):
        redact_text(piece * 50_000)


def test_in_json_only_strings_that_are_values_change() -> None:
    same = r'"n":1.50, "s":"\ud800"'
    written = r'{"1.2.3.4" : "1.2.3.4", "a":["\u0031.2.3.4 \n", {"b":"\"::1\""}], ' + same + r', "t":"\ud800 1.2.3.4"}'
    redacted = r'{"1.2.3.4" : "REDACTED", "a":["REDACTED \n", {"b":"\"REDACTED\""}], ' + same
    redacted += r', "t":"\ud800 REDACTED"}'
    assert redact_json(written) == redacted
    json.loads(redacted)


def test_every_text_of_an_answer_is_redacted_and_nothing_else() -> None:
    query = query_of("-- column: metadata json\nSELECT 1")
    answer = Answer(
        ("id", "n", "message", "metadata"), [("::1", 5, "at 1.2.3.4", '{"ip":{"x":"1.2.3.4"}}'), ("", 1.5, None, None)]
    )
    assert body(query, answer, "arrays", redact=True) == (
        b'{"result":[{"id":"REDACTED","n":5,"message":"at REDACTED","metadata":[{"ip":[{"x":"REDACTED"}]}]},'
        b'{"id":"","n":1.5,"message":null,"metadata":null}]}'
    )


def test_a_cursor_stays_as_it_is_whatever_it_looks_like() -> None:
    query = query_of("-- column: text string\nSELECT 1", next="next")
    answer = Answer(("text", "next"), [("1.2.3.4", None), (None, "1.2.3.4")])
    assert body(query, answer, redact=True) == b'{"result":[{"text":"REDACTED"}],"next":"1.2.3.4"}'
