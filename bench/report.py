"""Shows results: tables on the terminal, and tables and charts in docs/performance.md between its markers."""

import re
from pathlib import Path

import click

from bench.drawing import draw
from bench.figures import FOLDER, ROOT, Result, Table, load, shown

PAGE = ROOT / "docs" / "performance.md"


def show(result: Result) -> None:
    """Print a result's tables."""
    for table in result.tables:
        cells = [table.columns, *([shown(cell) for cell in row] for row in table.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        click.secho(f"\n{table.title}", bold=True)
        for row in cells:
            first, *others = zip(row, widths, strict=True)
            click.echo("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]))
        if table.note:
            click.echo(click.wrap_text(table.note, 100))


def render(page: Path = PAGE, folder: Path = FOLDER) -> None:
    """Write all kept results into the page, each between `<!-- SUBJECT -->` and `<!-- /SUBJECT -->`, and their charts.

    Raises ValueError where the page has no such markers.
    """
    for file in sorted(folder.glob("*.json")):
        _render(file.stem, page, folder)


def _render(subject: str, page: Path, folder: Path) -> None:
    results = load(subject, folder)
    parts: list[str] = []
    for result in results:
        short = ", the short form" if result.short else ""
        parts.append(f"*{result.machine}; {result.date}, commit {result.commit}{short}.*")
        parts += [_markdown(table) for table in result.tables]
        for chart in result.charts:
            file = folder / f"{chart.name}.svg"
            file.write_text(draw(chart))
            parts.append(f"![{chart.title}]({folder.name}/{file.name})")
    begin, end = f"<!-- {subject} -->", f"<!-- /{subject} -->"
    text = page.read_text()
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no {begin} … {end}")
    body = "\n\n".join([begin, *parts, end])
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: body, text, count=1, flags=re.DOTALL))


def _markdown(table: Table) -> str:
    lines = [
        f"| {' | '.join(table.columns)} |",
        f"|---|{'---:|' * (len(table.columns) - 1)}",
        *(f"| {' | '.join(shown(cell) for cell in row)} |" for row in table.rows),
    ]
    note = f"\n\n{table.note}" if table.note else ""
    return f"**{table.title}**\n\n" + "\n".join(lines) + note
