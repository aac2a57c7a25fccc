"""How every command fails: in one line."""

import sqlite3
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import click

from schema.errors import FreshetError

P = ParamSpec("P")


def command(run: Callable[P, None]) -> Callable[P, None]:
    """Turns Freshet's own errors, and the system's, into one line on standard error and exit code 1."""

    @wraps(run)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            run(*args, **kwargs)
        except (FreshetError, OSError, sqlite3.OperationalError) as error:
            click.echo(f"freshet: {error}", err=True)
            sys.exit(1)

    return wrapped
