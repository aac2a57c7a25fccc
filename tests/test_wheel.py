"""Freshet as a user gets it: built from what is committed, installed into empty environments, run from elsewhere.

Those are of the Python that runs the tests, of 3.13, which `.ci/pythons` fetches on Debian 12, and of 3.12 where the
machine has one: Debian has none.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import date
from pathlib import Path
from urllib.request import urlopen

import pytest
from service import wait_for
from test_ops_up import Up, run

from api.static_files import FOLDER, PAGE, read_files

ROOT = Path(__file__).parents[1]
PACKAGES = ("schema/", "streams/", "api/", "ops/")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
UNPACKED = ROOT / ".cache" / "python3.13" / "usr" / "bin" / "python3.13"


def interpreter(version: str) -> str | None:
    """Where a Python of this version is, if the machine has one; pyenv has it chosen by the variable."""
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        asked = subprocess.run(command, env=os.environ | {"PYENV_VERSION": version}, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return asked.stdout.strip() or None


PYTHONS = {
    "the image": sys.executable,
    "the wheel on 3.13": str(UNPACKED) if UNPACKED.exists() else interpreter("3.13"),
}
if python_3_12 := interpreter("3.12"):
    PYTHONS["the wheel on 3.12"] = python_3_12


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is committed, or will be."""
    copy = tmp_path_factory.mktemp("tree")
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, tree)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module", params=PYTHONS)
def freshet(request: pytest.FixtureRequest, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has the locked dependencies and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    python = PYTHONS[request.param]
    assert python, "there is no Python 3.13: .ci/pythons fetches it on Debian 12"
    if request.param == "the image":
        build_as_the_image(tree, environment, tmp_path_factory.mktemp("src"))
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
        install: list[str | Path] = ["--python", environment / "bin" / "python", "install", "--no-compile"]
        pip(*install, "--require-hashes", "-r", tree / "requirements" / "run.txt")
        pip(*install, "--no-deps", request.getfixturevalue("wheel"))
    return environment / "bin" / "freshet"


def build_as_the_image(tree: Path, environment: Path, src: Path) -> None:
    """Do in `src` what the first stage of the Dockerfile does, with what .dockerignore lets through."""
    let_through = re.findall(r"^!(.+)$", (tree / ".dockerignore").read_text(), re.MULTILINE)
    stage = (tree / "Dockerfile").read_text().split("\nFROM ")[1]
    for instruction, words in re.findall(r"^(COPY|RUN) (.+)$", stage, re.MULTILINE):
        if instruction == "COPY":
            *sources, to = words.split()
            for source in sources:
                assert source in let_through, f"{source} is in .dockerignore"
                if (tree / source).is_dir():
                    shutil.copytree(tree / source, src / to)
                else:
                    target = src / to / source if to.endswith("/") else src / to
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(tree / source, target)
        else:
            command = words.replace("/freshet", str(environment)).replace("--no-cache-dir ", "")
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                ["sh", "-c", command], cwd=src, env=os.environ | {"PATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with modules that must not be taken for Freshet's."""
    (tmp_path / "api").mkdir()
    for name in ("api/__init__.py", "schema.py", "streams.py", "ops.py", "click.py"):
        (tmp_path / name).write_text("raise SystemExit('a module of the working folder was imported')\n")
    return tmp_path


def test_the_wheel_holds_the_product_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == {
        name for name in tracked() if name.startswith(PACKAGES)
    }
    assert "api/dashboard/vendor/uPlot.LICENSE" in names


def test_the_changelog_begins_with_the_version_that_it_tells_of() -> None:
    releases = re.findall(r"^## (\S+) – (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0][0] == VERSION
    dates = [date.fromisoformat(day) for _, day in releases]
    assert dates == sorted(dates, reverse=True)
    assert dates[0] <= date.today()


def test_an_installed_freshet_answers_with_all_that_belongs_to_it(freshet: Path, elsewhere: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FRESHET_", "PYTHON"))}

    def output(*arguments: str) -> str:
        done = subprocess.run(
            [freshet, *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert output("--version") == f"freshet, version {VERSION}\n"
    assert "Usage: freshet [OPTIONS] COMMAND" in output("--help")
    key = json.loads(output("keys", "add", "mine", "--json"))["key"]
    with Up(elsewhere, [str(freshet)]) as up:
        wait_for("rows of each", lambda: all(run(curl) for curl in up.curls))

        def get(path: str) -> bytes:
            with urlopen(f"http://{up.listen}{path}", timeout=30) as answer:
                content: bytes = answer.read()
                return content

        assert get("/") == (FOLDER / PAGE).read_bytes()
        for name, file in read_files().items():
            assert get(f"/dashboard/{name}") == file.content, name
        assert json.loads(get("/openapi.json"))["info"]["version"] == VERSION
        listed = {query["name"] for query in json.loads(get(f"/api/endpoints?api_key={key}"))["result"]}
        assert listed == {Path(name).stem for name in tracked() if name.endswith(".sql")}
