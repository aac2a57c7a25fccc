"""Taking secrets and addresses out of events before anything of them is stored (docs/decisions/0012-redaction.md).

Works on JSON text as it was received: a member whose name tells that its value is a secret gets another value,
whatever that was; in all other text, names of members included, secrets are found by what stands before them or by
their form. Everything else keeps its bytes. Searching is RE2's, so that no text takes long.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
import re2

from schema.addresses import HEX, address_patterns

REDACTED: Final = "REDACTED"
"""What stands where something was taken out."""

Redact = Callable[[bytes], bytes]
"""Takes JSON text and gives the same without secrets. Raises msgspec.DecodeError or RecursionError for what is none."""

_skip = msgspec.json.Decoder(msgspec.Raw).decode
_STRING_OR_BRACKET = re.compile(rb'"[^"]*"|[\[\]{}]')
_NUMBER = re.compile(rb"[-0-9.eE+]+")
_LENGTH_ALONE = re.compile(rb"REDACTED: [0-9]+ bytes")

# Escapes are written as bytes that UTF-8 has none of while a text is searched, so that a string ends at the next quote
# and nothing hides behind an escape. A control character without one of its own is CONTROL and itself + 0x80, half a
# surrogate pair is HALF and its four hexadecimal digits, each + 0x80.
_QUOTE, _BACKSLASH, _BLANKS = "\xfe", "\xff", "\xfd\xfc\xfb"  # the last are \n, \r and \t
_LETTERS = {b"n": b"\xfd", b"r": b"\xfc", b"t": b"\xfb", b"b": b"\xfa", b"f": b"\xf9"}
_SINGLE = {b'"': b"\xfe", b"\\": b"\xff", b"\n": b"\xfd", b"\r": b"\xfc", b"\t": b"\xfb"}
_ESCAPES = {b"\xfe": b'\\"', b"\xff": rb"\\"} | {code: b"\\" + letter for letter, code in _LETTERS.items()}
_CONTROL, _HALF = b"\xf8", b"\xf7"
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|([/nrtbf]))")
_RARE = re.compile(rb"\xf8(.)|\xf7(....)", re.DOTALL)


def _spelled(words: str) -> str:
    """A pattern in which each letter of the words may also be percent-encoded, again and again."""

    def letter(match: re.Match[str]) -> str:
        code = ord(match[0])
        high, low = code >> 4, f"{code & 15:x}"
        return f"(?:{match[0]}|%(?:25)*[{high - 2}{high}]{low})"

    return re.sub(r"[a-z]", letter, words)


_BETWEEN = r"(?:[-_. ]|%(?:25)*(?:2d|5f|2e|20))?"
_CREDENTIALS = _spelled("authorization") + "|" + _spelled("cookie")
_TOKENS = "|".join(
    [
        *map(_spelled, ("token", "secret", "password", "passwd", "jwt", "signature", "credential")),
        _spelled("api") + _BETWEEN + _spelled("key"),
    ]
)
_PARAMETERS = "|".join(map(_spelled, ("code", "sig", "auth", "pwd", "otp")))
_ADDRESSES = (
    r"(?:.*[-_. ])?ip(?:v?[46])?(?:[-_. ]?addr(?:ess)?)?|.*(?:client|remote|real|server|origin|source|src|peer|user)"
    r"[-_. ]?ip(?:v?[46])?|(?:.*[-_. ])?forwarded(?:[-_. ]?for)?|.*(?:client|remote|peer)[-_. ]?addr(?:ess)?"
)
_PLAIN = rf'[^"{_QUOTE}{_BACKSLASH}]'
_QUOTED = "|".join(  # of JSON within a string, of JSON in a string of that, and of what is deeper: up to its own end
    [
        rf'{_QUOTE}(?:{_PLAIN}|{_BACKSLASH}[^"])*',
        rf'{_BACKSLASH}{_QUOTE}(?:{_PLAIN}|{_BACKSLASH}{{3}}[^"]|{_BACKSLASH}{{1,2}}{_PLAIN})*',
        rf'{_BACKSLASH}{{2,}}{_QUOTE}[^"{_QUOTE}]*',
    ]
)
_SINGLE_QUOTED = rf"'(?:[^'\"{_QUOTE}{_BACKSLASH}]|{_BACKSLASH}[^\"])*'"
_NESTED = r'[\[{][^"]*'  # arrays and objects within a string: all of the rest
_BEHIND = rf"(?:{_BACKSLASH}*{_QUOTE}|')? *(?:[=:]|%(?:25)*3[da]) *"
_NAME_ENDS = r"[a-z0-9_.%\[\]-]*"
_IN_VALUE = rf'(?:[^"\s&#<>{_QUOTE}{_BACKSLASH}{_BLANKS}]|{_BACKSLASH}[^"\s{_QUOTE}{_BLANKS}])'
_VALUE = rf"(?:{_QUOTED}|{_NESTED}|{_SINGLE_QUOTED}{_IN_VALUE}*|{_IN_VALUE}+)"
_IN_LINE = rf'[^"{_QUOTE}{_BACKSLASH}{_BLANKS[:2]}]|{_BACKSLASH}[^"{_QUOTE}{_BLANKS[:2]}]'
_LINE = rf"(?:{_QUOTED}|{_NESTED}|(?:=(?:{_QUOTED}){_BACKSLASH}*{_QUOTE}|{_IN_LINE})+)"  # such as a="b"; c=d
_SPACE = r"(?:[ +]|%(?:25)*20)+"
_IN_TEXT = {
    "authorization": (
        rf"((?:{_CREDENTIALS}){_NAME_ENDS}{_BEHIND}){_LINE}",
        rf"((?:bearer|basic){_SPACE})[a-z0-9._~+/=%-]{{6,}}",
    ),
    "tokens": (
        rf"((?:{_TOKENS}){_NAME_ENDS}{_BEHIND}){_VALUE}",
        rf"((?:[\"{_QUOTE}?&;#]|%(?:25)*(?:3f|26|23|3b))(?:{_PARAMETERS})(?:=|%(?:25)*3d)){_VALUE}",
        rf'(://|[a-z0-9._~%-]+:)[^/?#"\s@{_QUOTE}{_BLANKS}][^/?#"\s{_QUOTE}{_BLANKS}]*@',
        r"()(?-i:eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*)",
        r"()(?-i:sb_(?:secret|publishable)_[A-Za-z0-9_-]+|sbp_[A-Za-z0-9_]{16,})",
    ),
}
_NAMES = {
    "authorization": f".*(?:{_CREDENTIALS}).*",
    "tokens": f".*(?:{_TOKENS}).*",
    "addresses": _ADDRESSES,
}
KINDS: Final = tuple(_NAMES)
"""What can be taken out, as `FRESHET_REDACT` names it."""

_DOT, _COLON = r"(?:\.|%(?:25)*2[Ee])", r"(?::|%(?:25)*3[Aa])"
_V4, _V6 = address_patterns(_DOT, _COLON)
_ENCODED = r"(?<=%[0-9A-Fa-f]{2})"  # its last letters belong to no address
_ADDRESS = re.compile(
    rf"(?:(?<![0-9])|{_ENCODED}){_V4}(?![0-9])|(?:(?<![0-9A-Za-z])|{_ENCODED})(?:{_V6})(?![0-9A-Za-z])".encode()
)
_LIKE_ADDRESS = (
    rf"[0-9A-Fa-f:.%]*(?:[0-9](?:{_DOT}[0-9]{{1,3}}){{2}}{_DOT}[0-9]|{_COLON}{_COLON}|(?:{_COLON}{HEX}){{5}})"
    r"[0-9A-Fa-f:.%]*"
)


def redactor(kinds: Collection[str]) -> Redact | None:
    """What takes these kinds (of `KINDS`) out; None where there are none."""
    return _Redactor(kinds).redact if kinds else None


def length_alone(data: bytes) -> bytes:
    """What is left of bytes that can't be searched as JSON."""
    return f"{REDACTED}: {len(data)} bytes".encode()


def is_length_alone(data: bytes) -> bool:
    """Whether that is all that is left."""
    return _LENGTH_ALONE.fullmatch(data) is not None


class _Redactor:
    """Patterns for the kinds wanted."""

    def __init__(self, kinds: Collection[str]) -> None:
        names = "|".join(_NAMES[kind] for kind in KINDS if kind in kinds).replace(".*", '[^"]*')
        name, s = f'"(?:{names})"', r"[ \t\r\n]*"
        key, value = '"(?:name|key|header|field|k)"', '"(?:values?|val|v)"'
        simple = r'(?:"[^"]*"|[-+0-9.e]+|\{(?:[^"{}]|"[^"]*")*\}|\[(?:[^"\[\]]|"[^"]*")*\])'
        self._names = _compiled(rf"(?i)(?:{name}{s}:|{key}{s}:{s}{name}{s},{s}{value}{s}:|\[{s}{name}{s},){s}")
        self._behind = _compiled(rf"(?i)({value}{s}:{s}){simple}({s},{s}{key}{s}:{s}{name})")
        texts = [text for kind in KINDS if kind in kinds for text in _IN_TEXT.get(kind, ())]
        self._texts = _compiled("(?i)" + "|".join(texts)) if texts else None
        self._addresses = _compiled(_LIKE_ADDRESS) if "addresses" in kinds else None

    def redact(self, data: bytes) -> bytes:
        """See `Redact`."""
        plain = _unescaped(data) if b"\\" in data else data
        clean = _replaced(plain, self._members(plain), f'"{REDACTED}"')
        before = ((match.end(1), match.start(2)) for match in self._behind.finditer(clean))
        clean = _replaced(clean, before, f'"{REDACTED}"')
        if self._texts is not None:
            clean = _replaced(clean, map(_secret, self._texts.finditer(clean)), REDACTED)
        if self._addresses is not None:
            spans = (match.span() for match in self._addresses.finditer(clean))
            found = (match.span() for start, end in spans for match in _ADDRESS.finditer(clean, start, end))
            clean = _replaced(clean, found, REDACTED)
        if clean is plain:
            return data
        _skip(data)  # where it is no JSON, it is to be refused as it is
        return _escaped(clean) if plain is not data else clean

    def _members(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where the values stand whose names tell: of members, and in pairs: {"key": NAME, "value": …}, [NAME, …]."""
        at = 0
        while (match := self._names.search(data, at)) is not None:
            start = match.end()
            at = _end_of_value(data, start)
            if at > start and data[start:at] != b'""':
                yield start, at


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern.encode("latin-1"), options)


def _unescaped(data: bytes) -> bytes:
    """JSON text without a backslash: see above."""
    data = data.replace(rb"\\", _BACKSLASH.encode("latin-1")).replace(b'\\"', _QUOTE.encode("latin-1"))
    return _ESCAPE.sub(_unescape, data) if b"\\" in data else data


def _unescape(match: re.Match[bytes]) -> bytes:
    first, second, letter = match.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    code, partner = int(first, 16), b""
    if second is not None:
        if code >> 10 == 0xD800 >> 10:
            return chr(0x10000 + (code - 0xD800 << 10) + int(second, 16) - 0xDC00).encode()
        partner = _half(second)
    if code >> 11 == 0xD800 >> 11:
        return _half(first) + partner
    plain = chr(code).encode()
    return _SINGLE.get(plain, plain if code >= 0x20 else _CONTROL + bytes([0x80 + code])) + partner


def _half(digits: bytes) -> bytes:
    return _HALF + bytes(0x80 + digit for digit in digits)


def _escaped(data: bytes) -> bytes:
    """JSON text again."""
    for code, escape in _ESCAPES.items():
        data = data.replace(code, escape)
    return _RARE.sub(_escape, data) if _CONTROL in data or _HALF in data else data


def _escape(match: re.Match[bytes]) -> bytes:
    control, half = match.groups()
    return b"\\u%04x" % (control[0] - 0x80) if half is None else b"\\u" + bytes(digit - 0x80 for digit in half)


def _end_of_value(data: bytes, start: int) -> int:
    """Where the JSON value ends that begins there; its start for true, false and null, which say nothing."""
    first = data[start : start + 1]
    if first == b'"':
        return data.find(b'"', start + 1) + 1 or len(data)
    if first not in b"{[" or not first:
        number = _NUMBER.match(data, start)
        return number.end() if number is not None else start
    depth = 0
    for mark in _STRING_OR_BRACKET.finditer(data, start):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(mark[0], 0)
        if not depth:
            return mark.end()
    return len(data)


def _secret(match: Any) -> tuple[int, int]:
    """Where the secret itself stands: behind what tells it, and before the `@` that ends a user's name in a URL."""
    return match.end(match.lastindex), match.end() - match[0].endswith(b"@")


def _replaced(data: bytes, spans: Iterable[tuple[int, int]], mark: str) -> bytes:
    """The text with a mark in the place of each span."""
    kept: list[bytes] = []
    at = 0
    for start, end in spans:
        kept += (data[at:start], mark.encode())
        at = end
    return b"".join((*kept, data[at:])) if kept else data
