"""Progress of long work: a bar a step, with percent, rate and time left."""

import time
from contextlib import ExitStack
from typing import Any, Self

import click

from streams.replay import Watcher


class Bars:
    """Shows one step's bar after the other's. Without a terminal each step's name is printed alone."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bar: Any = None
        self._began = 0.0
        self.watcher = Watcher(self._step, self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _step(self, name: str, amount: int) -> None:
        self._stack.close()
        self._began = time.monotonic()
        self._bar = None
        if amount:
            bar: Any = click.progressbar(length=amount, label=name, show_pos=True, item_show_func=self._rate)
            self._bar = self._stack.enter_context(bar)
        else:
            click.echo(name)

    def _done(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(count, count)

    def _rate(self, _: Any) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        return f"{(self._bar.pos if self._bar is not None else 0) / seconds:,.0f}/s"
