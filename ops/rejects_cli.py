"""`freshet rejects …` on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ops.failures import command
from schema.settings import load_settings

_json = click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object, times in µs.")


def _filters(run: Callable[..., None]) -> Callable[..., None]:
    """The options that say which rejects are meant; the function gets them as `wanted`."""

    def wrapped(**given: Any) -> None:
        from ops.rejects import read_wanted

        names = ("reasons", "topics", "since", "until", "partition", "offset")
        run(wanted=read_wanted(*(given.pop(name) for name in names)), **given)

    wrapped.__doc__ = run.__doc__
    for option in (
        click.option("--offset", type=click.IntRange(min=0), help="Those of messages with this offset."),
        click.option("--partition", type=click.IntRange(min=0), help="Those of this partition."),
        click.option("--until", metavar="TIME", help="Those rejected before: ISO 8601, or so long ago, such as 3h."),
        click.option("--since", metavar="TIME", help="Those rejected from then on: ISO 8601, or so long ago."),
        click.option("--topic", "topics", multiple=True, help="Those of this topic, or of several."),
        click.option("--reason", "reasons", multiple=True, help="Those with this reason, or with several."),
    ):
        wrapped = option(wrapped)
    return wrapped


@click.group()
def rejects() -> None:
    """What could not be taken: the newest 10,000, with their first 4 KB."""


@rejects.command("list")
@click.option("--limit", type=click.IntRange(min=0), default=20, help="Print at most so many (default: 20).")
@_json
@command
@_filters
def rejects_list(wanted: Any, limit: int, as_json: bool) -> None:
    """List rejects: how many by topic and reason, and the newest of them."""
    from ops.rejects import list_rejects

    list_rejects(load_settings(), wanted, limit, as_json)


@rejects.command("show")
@click.argument("number", metavar="ID", type=int)
@_json
@command
def rejects_show(number: int, as_json: bool) -> None:
    """Show reject ID: where it came from, why it was not taken, and its bytes, none of them raw."""
    from ops.rejects import show_reject

    show_reject(load_settings(), number, as_json)


@rejects.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@command
@_filters
def rejects_export(wanted: Any, file: Path) -> None:
    """Write rejects to FILE, which must not be there yet, a line of JSON each; `-` is standard output."""
    from ops.rejects import export_rejects

    count = export_rejects(load_settings(), wanted, file)
    click.echo(f"{count:,} rejects in {file}", err=True)


@rejects.command("retry")
@_json
@command
@_filters
def rejects_retry(wanted: Any, as_json: bool) -> None:
    """Decode rejects again, after an upgrade, and fold those that are none any more, each exactly once.

    Workers may run meanwhile, no replay. Stopped, it can be run again; those that still fail stay as they are.
    """
    from ops.retry import run_retry

    run_retry(load_settings(), wanted, as_json)
