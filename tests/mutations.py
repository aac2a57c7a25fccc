"""JSON changed by its parts, and the messages to begin with, for the fuzzer and for its short form among the tests."""

from pathlib import Path
from random import Random
from typing import Any

from decoding_check import write_input
from events import BAD_ELEMENTS, BAD_MESSAGES, BAD_TIMES, HOSTILE, Traffic, dumps

SAMPLES = Path(__file__).with_name("samples")
NOW = 1_750_000_000_123_456
WORDS = (
    *("timestamp", "@timestamp", "date", "batch", "resourceLogs", "scopeLogs", "logRecords", "timeUnixNano", "body"),
    *("attributes", "resource", "key", "value", "kvlistValue", "values", "stringValue", "intValue", "arrayValue"),
    *("metadata", "request", "response", "status_code", "execution_time_ms", "project_ref", "function_id", "project"),
    *("url", "path", "host", "protocol", "id", "event_message", "message", "2025-06-15T15:06:40.123456Z"),
)
TOKENS = ("\\ud800", "\\udc00", "\\u0000", "1e999", "-0.0", "1e-400", "null", "true", "NaN", "[{}]", "\xef\xbb\xbf")

LEAVES: tuple[Any, ...] = (
    *(*BAD_TIMES, *HOSTILE, *BAD_ELEMENTS, 200, "200", 1.5, "1.5", 1e22, 2**63, 10**300, -1, 37.5, [{}], {}, [[]]),
    *(NOW, f"{NOW}000", NOW / 1e6, "2025-06-15 15:06:40,5", {"stringValue": "x"}, {"intValue": "7"}, {"batch": [{}]}),
)


def change(value: Any, chance: Random) -> Any:
    """JSON like `value` with one of its parts replaced, doubled, renamed, wrapped or left out."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        parts = list(value.items() if isinstance(value, dict) else enumerate(value))
    if parts and chance.random() < 0.85:
        at = chance.randrange(len(parts))
        name, part = parts[at]
        what = chance.random()
        if what < 0.7:
            parts[at] = (name, change(part, chance))
        elif what < 0.8:
            parts.insert(at, (chance.choice(WORDS), part))
        elif what < 0.9:
            parts[at] = (chance.choice(WORDS), part)
        else:
            del parts[at]
        return {str(name): part for name, part in parts} if isinstance(value, dict) else [part for _, part in parts]
    return [value] if chance.random() < 0.2 else chance.choice(LEAVES)


def seeds() -> list[bytes]:
    """Inputs to begin with: made-up traffic, what is known to be bad, and the producers' samples."""
    traffic = Traffic(1, NOW, "edge", "functions").messages(400)
    bad = [*BAD_MESSAGES, *(dumps([element]) for element in BAD_ELEMENTS)]
    samples = [file.read_bytes() for file in sorted(SAMPLES.iterdir())]
    return [
        *(write_input(message.topic, message.value or b"") for message in traffic),
        *(write_input(topic, value) for topic in ("edge", "functions") for value in [*bad, *samples]),
    ]
