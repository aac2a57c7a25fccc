"""`python -m bench [NAME…]`: runs the benchmarks named, or all of them. They stand on the tests' own Kafka."""

import sys
from importlib import import_module
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bench import report  # noqa: E402
from bench.figures import Options, save, stamped  # noqa: E402

BENCHMARKS = {
    name: f"bench.{module}"
    for name, module in {
        "profile": "stages",
        "ingest": "ingest",
        "http-ingest": "ingest_http",
        "freshness": "freshness",
        "query": "query",
        "http": "serving",
        "disk": "disk",
        "patterns": "patterns",
        "memory": "memory",
        "replay": "replay",
    }.items()
}
NOT_IN_SHORT = {"replay"}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--events", type=click.IntRange(min=1), envvar="EVENTS", help="How many events, not the usual number.")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of which the median counts.")
@click.option("--minutes", type=float, help="How long `memory` looks.")
@click.option("--short", is_flag=True, help="The form that takes less than ten minutes for all.")
@click.option("--peers/--no-peers", default=True, help="Whether to run the peers.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=ROOT / "docs",
    help="The folder whose performance.md gets the tables (default: docs).",
)
def main(
    names: tuple[str, ...], events: int | None, rounds: int | None, minutes: float | None, short: bool, peers: bool,
    into: Path,
) -> None:  # fmt: skip
    """Run the benchmarks NAMES, or all of them; show their tables and write them into the page."""
    options = Options(events, rounds, minutes, short, peers)
    page, folder = into / "performance.md", into / "performance"
    if page.resolve() != report.PAGE:
        into.mkdir(parents=True, exist_ok=True)
        page.write_text(report.PAGE.read_text())
    for name in names or [name for name in BENCHMARKS if not (short and name in NOT_IN_SHORT)]:
        click.secho(f"\n== {name} ==", bold=True)
        result = stamped(import_module(BENCHMARKS[name]).run(options), options)
        report.show(result)
        save(result, folder)
        report.render(page, folder)
    click.echo(f"\nTables and charts: {page}")


main()
