"""Coverage-guided fuzzing of the decoder: `make fuzz`, or `python tests/fuzz.py --runs 1000000`.

What it finds is written to the folder of finds, where a test keeps it; the corpus that it grows stays in `.cache`.
"""

import argparse
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import atheris

with atheris.instrument_imports(include=["schema"]):
    import schema.decoding
    import schema.fields
    import schema.messages
    import schema.numbers
    import schema.otlp
    import schema.timestamps
    import schema.urls  # noqa: F401

from decoding_check import check, read_input, write_input
from events import BAD_ELEMENTS, BAD_MESSAGES, BAD_TIMES, HOSTILE, Traffic, dumps

ROOT = Path(__file__).resolve().parents[1]
FINDS, SAMPLES = ROOT / "tests" / "finds", ROOT / "tests" / "samples"
NOW = 1_750_000_000_123_456
LONGEST, MEMORY_MB, SECONDS = 4096, 1024, 20  # of an input, of the process, for an input
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


def mutate(data: bytes, longest: int, seed: int) -> bytes:
    """A changed input: every second time, where it is JSON, by its parts rather than by its bytes."""
    chance = Random(seed)
    if chance.random() < 0.5:
        try:
            changed = data[:1] + dumps(change(json.loads(data[1:]), chance))
        except (ValueError, RecursionError):
            pass
        else:
            return changed[:longest]
    return bytes(atheris.Mutate(data, longest))


def seeds() -> list[bytes]:
    """Inputs to begin with: made-up traffic, what is known to be bad, and the producers' samples."""
    traffic = Traffic(1, NOW, "edge", "functions").messages(400)
    bad = [*BAD_MESSAGES, *(dumps([element]) for element in BAD_ELEMENTS)]
    samples = [file.read_bytes() for file in sorted(SAMPLES.iterdir())]
    return [
        *(write_input(message.topic, message.value or b"") for message in traffic),
        *(write_input(topic, value) for topic in ("edge", "functions") for value in [*bad, *samples]),
    ]


def main() -> None:
    """Fuzz for a number of runs; the exit code is not 0 where something was found."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--corpus", type=Path, default=ROOT / ".cache" / "fuzz")
    given = arguments.parse_args()
    given.corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (given.corpus / f"seed-{number}").write_bytes(seed[:LONGEST])
    dictionary = given.corpus.with_suffix(".dict")
    words = [*(f'\\"{word}\\"' for word in WORDS), *(token.replace("\\u", "\\\\u") for token in TOKENS[:-1])]
    dictionary.write_text("".join(f'"{word}"\n' for word in words))
    options = [
        *(f"-runs={given.runs}", f"-seed={given.seed}", f"-max_len={LONGEST}", f"-dict={dictionary}"),
        *(f"-rss_limit_mb={MEMORY_MB}", f"-timeout={SECONDS}", f"-artifact_prefix={FINDS}/", "-print_final_stats=1"),
    ]
    atheris.Setup(
        [sys.argv[0], *options, str(given.corpus)], lambda data: check(read_input(data)), custom_mutator=mutate
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
