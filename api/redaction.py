"""Taking IP addresses out of answers, as the original does where a client asks for it (contract section 2)."""

import json
import re

from schema.addresses import address_patterns

HEADER = "LF-Endpoint-Redact-PII"
"""The request header that asks for it, with the value `true`."""
REDACTED = "REDACTED"

_V4, _V6 = address_patterns(r"\.", ":")
_ADDRESS = re.compile(
    rf"(?<![0-9])(?<![0-9]\.){_V4}(?![0-9]|\.[0-9])|(?<![0-9A-Za-z])(?:{_V6})(?![0-9A-Za-z])", re.ASCII
)
_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"(\s*+:)?', re.DOTALL)


def redact_text(text: str) -> str:
    """A text without its IPv4 and IPv6 addresses. What only looks like one goes too."""
    return _ADDRESS.sub(REDACTED, text)


def redact_json(text: str) -> str:
    """JSON text whose strings, but for the names of members, are without addresses; all else is as it was written."""
    return _STRINGS.sub(_redact_string, text)


def _redact_string(match: re.Match[str]) -> str:
    written = match[0]
    if match[1] is not None:
        return written
    if "\\" not in written:
        return redact_text(written)
    plain = json.loads(written)  # an address may hide behind escapes; half a surrogate pair is allowed here
    redacted = redact_text(plain)
    return written if redacted == plain else json.dumps(redacted)
