"""Coverage-guided fuzzing of the decoder: `make fuzz`, or `python tests/fuzz.py --runs 1000000`.

What it finds is written to the folder of finds, where a test keeps it; the corpus that it grows stays in `.cache`.
"""

import argparse
import json
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["schema"]):
    import schema.decoding
    import schema.fields
    import schema.messages
    import schema.numbers
    import schema.otlp
    import schema.parts
    import schema.redaction
    import schema.timestamps
    import schema.urls  # noqa: F401

from decoding_check import check, read_input
from events import dumps
from mutations import TOKENS, WORDS, change, seeds

ROOT = Path(__file__).resolve().parents[1]
FINDS = ROOT / "tests" / "finds"
LONGEST, MEMORY_MB, SECONDS = 4096, 1024, 20  # of an input, of the process, for an input


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
