"""A worker as clocked.py starts it that takes less than the product does, as one of an older version may.

An element may nest 3 levels, a message have 3 elements.
"""

import sys

import clocked

import schema.messages
import schema.timestamps

DEEPEST, MOST_ELEMENTS = 3, 3


def main() -> None:
    schema.messages.too_deep.__defaults__ = (DEEPEST,)
    schema.messages.MOST_ELEMENTS = MOST_ELEMENTS
    clocked.main(*sys.argv[1:])


if __name__ == "__main__":
    main()
