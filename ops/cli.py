"""The command line. Each command imports what it needs, so that none waits for the others' libraries."""

import json
import sys
from pathlib import Path

import click

from ops.failures import command as _command
from ops.rejects_cli import rejects
from schema.errors import FreshetError
from schema.settings import Settings, load_settings, parse_duration


def _child(settings: Settings, with_parent: int | None) -> Settings:
    if with_parent is not None:
        from ops.processes import die_with_parent

        die_with_parent(with_parent)
    return settings


_with_parent = click.option(
    "--with-parent", type=int, metavar="PID", hidden=True, help="End when the process that started this one does."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="freshet")
def main() -> None:
    """Freshet keeps the answers of saved log queries fresh while the logs stream in.

    Settings are environment variables FRESHET_… or lines in freshet.toml.
    """


@main.command()
@click.option("--demo", is_flag=True, help="Make traffic, and a key to look at it with.")
@click.option("--broker", type=click.Choice(["kafka"]), help="Run an Apache Kafka too: durable, on this machine.")
@_command
def up(demo: bool, broker: str | None) -> None:
    """Run all in one: broker (the embedded one, or with --broker), worker and API, started anew when they die."""
    from api.endpoints import load_endpoints
    from ops.up import run_up

    settings = load_settings()
    load_endpoints(settings)  # what is wrong with one shows here, not in the log of an API that never comes up
    sys.exit(run_up(settings, demo, broker is not None))


@main.command()
@_with_parent
@_command
def worker(with_parent: int | None) -> None:
    """Run a worker: from the topics into the tables."""
    from streams.worker import run_worker

    run_worker(_child(load_settings(), with_parent))


@main.command()
@_with_parent
@_command
def api(with_parent: int | None) -> None:
    """Run the API: from the tables to answers over HTTP."""
    from api.app import create_app
    from api.endpoints import load_endpoints
    from api.server import run_server

    settings = _child(load_settings(), with_parent)
    load_endpoints(settings)  # what is wrong with one ends it here, not in the server's processes
    run_server(settings, lambda: create_app(settings))


@main.command()
@_with_parent
@_command
def demo(with_parent: int | None) -> None:
    """Produce made-up traffic to the broker: a day's history, then some 60 events a second."""
    from ops.demo import run_demo

    run_demo(_child(load_settings(), with_parent))


@main.command(hidden=True)
@_with_parent
@_command
def kafka(with_parent: int | None) -> None:
    """Run the Apache Kafka of `freshet up --broker kafka`."""
    from ops.kafka import run_kafka

    run_kafka(_child(load_settings(), with_parent))


@main.group()
def keys() -> None:
    """API keys."""


@keys.command("add")
@click.argument("name")
@click.option(
    "--project", "projects", multiple=True, metavar="REF", help="Sees this project alone; more than once: them."
)
@click.option("--endpoint", "endpoints", multiple=True, metavar="NAME", help="Asks this endpoint alone, or several.")
@click.option("--allow", multiple=True, type=click.Choice(["query", "ingest"]), help="What it is for (default: query).")
@click.option("--expires", metavar="90d", help="After how long it is no longer taken (min, h, d).")
@click.option("--json", "as_json", is_flag=True, help='Print {"key": "…"} alone.')
@_command
def keys_add(
    name: str,
    projects: tuple[str, ...],
    endpoints: tuple[str, ...],
    allow: tuple[str, ...],
    expires: str | None,
    as_json: bool,
) -> None:
    """Make an API key called NAME. It is shown once; only its hash is kept."""
    from ops.keys import add_key
    from schema.clock import system_clock

    settings = load_settings()
    try:
        expires_at = None if expires is None else system_clock() + parse_duration(expires)
    except ValueError as error:
        raise FreshetError(f"--expires is {expires!r}: {error}") from error
    key = add_key(settings.data, name, False, projects, endpoints, allow or ("query",), expires_at)
    click.echo(json.dumps({"key": key}) if as_json else key)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object, times in µs.")
@_command
def keys_list(as_json: bool) -> None:
    """List the API keys: scope, expiry, last use (a minute behind at most). Nobody can show a key again."""
    from ops.keys import list_keys, show_keys

    show_keys(list_keys(load_settings().data), as_json)


@keys.command("revoke")
@click.argument("name")
@_command
def keys_revoke(name: str) -> None:
    """Revoke the API key called NAME; the next request with it is refused."""
    from ops.keys import revoke_key

    revoke_key(load_settings().data, name)
    click.echo(f"{name} is revoked")


main.add_command(rejects)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
@_command
def status(as_json: bool) -> None:
    """Show how far each partition is, what was not taken, what has expired, and the sizes of the files."""
    from ops.status import read_status, show_status

    show_status(read_status(load_settings()), as_json)


@main.command()
@_command
def alive() -> None:
    """Say whether workers live, for health checks: the exit code is 1 where none asks the broker."""
    from ops.alive import show_alive
    from schema.clock import system_clock

    show_alive(load_settings(), system_clock, click.echo)


@main.command()
@click.option("--project", required=True, metavar="REF", help="Whose entries.")
@click.option("--text", help="Those alone with this text in their message, in any case.")
@click.option("--min-status", type=click.IntRange(0, 999), help="Those alone with this status or a higher.")
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON, in ASCII.")
@click.option("--url", metavar="http://HOST:PORT", help="From the API there (default: from this machine's store).")
@click.option("--key-file", type=click.Path(path_type=Path), help="A file with the API key for it.")
@_command
def tail(
    project: str, text: str | None, min_status: int | None, as_json: bool, url: str | None, key_file: Path | None
) -> None:
    """Print a project's log entries as they come, until Ctrl-C."""
    from ops.tail import Wish, run_tail

    run_tail(load_settings(), Wish(project, text, min_status), url, key_file, as_json)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
@_command
def doctor(as_json: bool) -> None:
    """Look at settings, broker, topics, clock, data folder, disk, store, keys and API, and say what to do.

    The exit code is 1 where something is wrong.
    """
    from ops.doctor import run_doctor

    sys.exit(run_doctor(as_json))


@main.command()
@click.option("--topic", "topics", multiple=True, help="Replay this topic alone (default: both).")
@click.option("--from-offset", type=click.IntRange(min=0), help="From this offset of each partition on.")
@click.option("--from-time", help="From records of this time on (ISO 8601).")
@click.option("--resume", is_flag=True, help="Go on with an unfinished replay.")
@click.option("--discard", is_flag=True, help="Throw an unfinished replay away.")
@click.option("--accept-differences", is_flag=True, help="Use the rebuilt tables even where they differ.")
@_command
def replay(
    topics: tuple[str, ...],
    from_offset: int | None,
    from_time: str | None,
    resume: bool,
    discard: bool,
    accept_differences: bool,
) -> None:
    """Rebuild the tables from the log beside the live ones, verify, and swap. The live ones serve and ingest meanwhile.

    What the tables hold of the time before the log begins is kept.
    """
    from ops.replay import read_wish, run_replay

    settings = load_settings()
    wish = read_wish(settings, topics, from_offset, from_time)
    sys.exit(run_replay(settings, wish, resume, discard, accept_differences))


@main.command()
@click.argument("databases", nargs=-1, type=click.Path(path_type=Path))
@_command
def verify(databases: tuple[Path, ...]) -> None:
    """Hold the live tables against a rebuild from the log, or two DATABASES against each other.

    The exit code is 3 where they differ.
    """
    from ops.verify import verify_databases, verify_live

    if databases and len(databases) != 2:
        raise FreshetError("name two databases to compare, or none to compare the live one with the log")
    sys.exit(verify_databases(*databases) if databases else verify_live(load_settings()))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_command
def backup(folder: Path) -> None:
    """Copy the databases, while they are in use, into FOLDER. A worker started on it goes on from there."""
    from ops.backup import back_up

    for copy in back_up(load_settings().data, folder):
        click.echo(copy)


@main.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--functions", is_flag=True, help="The files hold function invocations (default: edge requests).")
@click.option("--again", is_flag=True, help="Import from the start, even what has been imported already.")
@_command
def import_(files: tuple[Path, ...], functions: bool, again: bool) -> None:
    """Import FILES, lines of JSON, plain or packed by gzip or zstd, into a topic.

    Stopped, it goes on where it stopped when run again. The exit code is 3 where lines had to be left out.
    """
    from ops.import_files import run_import

    sys.exit(run_import(load_settings(), files, functions, again))


@main.command("accept-recreated")
@click.argument("topic")
@_command
def accept_recreated(topic: str) -> None:
    """Say that TOPIC was deleted and created anew: what was applied stays, its new log is read from the start.

    Run it while the workers are stopped.
    """
    from ops.recreated import accept

    count = accept(load_settings(), topic)
    click.echo(f"{topic}: its log number {count + 1} will be read from its start when a worker starts")
