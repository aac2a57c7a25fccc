"""The house rules of the design (section 2) and of its style, held by reading the product's source."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "schema": {"schema"},
    "streams": {"schema", "streams"},
    "api": {"schema", "api"},
    "ops": {"schema", "streams", "api", "ops"},
}
OURS = {*MAY_IMPORT, "bench", "tests"}
PRODUCT = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))
LONGEST = 300  # lines
PURE = {
    "schema": {
        *(
            "blocks",
            "decoding",
            "errors",
            "events",
            "fields",
            "histogram",
            "intervals",
            "messages",
            "numbers",
            "otlp",
            "parts",
        ),
        *("redaction", "timestamps", "url_blocks", "urls"),
    },
    "streams": {"fold", "merging", "packing", "seeks"},
}
IMPURE = {
    *("apsw", "asyncio", "faust", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "sqlite3"),
    *("subprocess", "tempfile", "threading", "time"),
}
NAMES_OF_NOTHING = {"base", "common", "core", "helper", "helpers", "lib", "manager", "misc", "util", "utils"}
by_module = pytest.mark.parametrize("path", PRODUCT, ids=lambda path: f"{path.parent.name}.{path.stem}")


def imported(path: Path) -> set[str]:
    """The full names of the modules that a file imports, at its top or inside of a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """All of a module that runs when it is imported: everything but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = child.args
            decorators = [] if isinstance(child, ast.Lambda) else child.decorator_list
            for part in [*arguments.defaults, *filter(None, arguments.kw_defaults), *decorators]:
                yield part
                yield from run_at_import(part)
        else:
            yield child
            yield from run_at_import(child)


def test_the_product_is_four_packages_and_every_folder_of_code_is_in_the_design() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {name.partition(".")[0] for name in project["tool"]["setuptools"]["packages"]} == set(MAY_IMPORT)
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {Path(line).parts[0] for line in tracked.splitlines()}
    assert set(MAY_IMPORT) <= folders <= OURS


@by_module
def test_a_module_imports_only_what_its_folder_may(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    assert packages(path) & OURS <= MAY_IMPORT[folder]


@by_module
def test_a_module_is_one_subject_of_at_most_300_lines_named_after_it(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
    assert not set(path.stem.split("_")) & NAMES_OF_NOTHING


@by_module
def test_no_module_reads_the_environment_or_opens_a_file_when_it_is_imported(path: Path) -> None:
    for node in run_at_import(ast.parse(path.read_text())):
        if isinstance(node, ast.Call | ast.Subscript):
            read = ast.unparse(node.func if isinstance(node, ast.Call) else node.value)
            assert not read.startswith("os.environ"), f"{path}:{node.lineno}"
            assert read.rpartition(".")[2] not in ("getenv", "open", "connect", "read_text", "read_bytes", "write_text")


@pytest.mark.parametrize(
    "name", [f"{folder}.{module}" for folder, modules in PURE.items() for module in sorted(modules)]
)
def test_the_middle_is_pure(name: str) -> None:
    assert not packages(ROOT / f"{name.replace('.', '/')}.py") & IMPURE


def test_each_side_opens_the_database_with_one_library_alone() -> None:
    """One file opened through both libraries in one process lost its locks (design section 5)."""
    for folder, other in (("schema", "apsw"), ("streams", "apsw"), ("api", "sqlite3")):
        for path in (ROOT / folder).rglob("*.py"):
            assert other not in packages(path), path


def test_only_the_product_and_the_standard_library_or_a_declared_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {line.partition("==")[0].partition("[")[0].lower() for line in project["dependencies"]}
    distributions = packages_distributions()
    for path in PRODUCT:
        for package in packages(path) - OURS - sys.stdlib_module_names:
            names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
            assert names & (declared | {"mode-streaming"}), f"{path} imports {package}"
