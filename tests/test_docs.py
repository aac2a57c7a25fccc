"""What the documents say is held against the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ops.cli import main
from schema.intervals import INVOCATION_INTERVALS, USAGE_INTERVALS
from schema.saved_queries import load_saved_queries
from schema.settings import Settings, written

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_setting_is_documented_with_its_default_and_meaning() -> None:
    rows = dict(re.findall(r"^\| `(FRESHET_[A-Z_]+)` \| (.+?) \|", README, re.MULTILINE))
    assert set(rows) == {f"FRESHET_{setting.name.upper()}" for setting in fields(Settings)}
    for setting in fields(Settings):
        if setting.default != "":
            assert rows[f"FRESHET_{setting.name.upper()}"] == f"`{written(setting.name, setting.default)}`"


def test_every_command_is_documented() -> None:
    documented = set(re.findall(r"`freshet ([a-z-]+)", README))
    assert documented >= {name for name, command in main.commands.items() if name != "demo" and not command.hidden}


def test_the_readme_names_every_endpoint_parameter_and_interval() -> None:
    for query in load_saved_queries().values():
        row = next(line for line in README.splitlines() if line.startswith(f"| `{query.name}`"))
        for parameter in query.parameters:
            assert f"`{parameter.name}`" in row
            for word in parameter.words:
                assert f"`{word}`" in row
    for interval in [*INVOCATION_INTERVALS, *USAGE_INTERVALS]:
        assert f"`{interval}`" in README


def anchors(page: Path) -> list[str]:
    """Of a page's headings, as the usual viewers of Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_points_at_is_there(document: Path) -> None:
    text = document.read_text()
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", text):
        place = document.parent / link if link else document
        assert place.exists(), link
        assert not anchor or anchor in anchors(place), f"{link}#{anchor}"
    for path in re.findall(r"`((?:schema|streams|api|ops|tests|docs|bench)/[a-z_0-9./]*)`", text):
        assert (ROOT / path).exists(), path
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, name
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert (ROOT / "tests" / name).exists(), name


def test_pages_that_the_code_points_at_are_there() -> None:
    for folder in ("schema", "streams", "api", "ops"):
        for file in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"docs/[a-z0-9/-]+\.md", file.read_text()):
                assert (ROOT / page).exists(), f"{file.name}: {page}"


def test_every_dependency_says_why_it_is_there() -> None:
    declared = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert declared
    table = (ROOT / "docs" / "dependencies.md").read_text()
    for package in re.findall(r'"([a-z0-9-]+)', declared[1]):
        assert re.search(rf"^\| {package}[ |]", table, re.MULTILINE), package


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(
            r"\bmake ([a-z]+(?:-[a-z]+)*)", "\n".join(re.findall(r"`[^`]*`|^make .*$", document.read_text(), re.M))
        ):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_vectors_file_has_nothing_that_vector_would_take_for_a_variable() -> None:
    """Before release 0.57 it fills them in in comments too, and does not start where one is missing."""
    assert "$" not in (ROOT / "docs" / "producers" / "vector.yaml").read_text()
