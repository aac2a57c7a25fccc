"""`freshet rejects retry` that kills or stops itself in its Nth transaction: `python retry_struck.py WHERE N SIGNAL …`.

WHERE is `delete` (the rejects are deleted, nothing is added yet), `commit` (all is added, not committed), `after`, or
`before` (the message is decoded, its transaction has not begun).
"""

import os
import signal
import sys
from typing import Any

import streams.retry
from ops.cli import main


class Blow:
    """Strikes this process once it has been met so many times."""

    def __init__(self, number: int, blow: signal.Signals) -> None:
        self._left = number
        self._blow = blow

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._blow)


def arm(where: str, blow: Blow) -> None:
    """Have a place in the retry met."""
    retry: Any = streams.retry
    add, fold, decode = retry.add, retry.Retry._fold, retry._decode

    def struck_add(*words: Any) -> None:
        if where == "delete":
            blow()
        add(*words)
        if where == "commit":
            blow()

    def struck_fold(*words: Any) -> Any:
        done = fold(*words)
        if where == "after":
            blow()
        return done

    def struck_decode(*words: Any) -> Any:
        decoded = decode(*words)
        if where == "before":
            blow()
        return decoded

    retry.add, retry.Retry._fold, retry._decode = struck_add, struck_fold, struck_decode


if __name__ == "__main__":
    _, place, count, name, *command = sys.argv
    arm(place, Blow(int(count), signal.Signals[name]))
    main(command)
