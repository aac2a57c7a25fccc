"""The dashboard's files: under which headers they are served, what is in them, and whose they are."""

import re
from hashlib import sha256
from pathlib import Path

import pytest
from test_api_http import Filled
from test_api_http import filled as filled  # the fixture

from api.static_files import FOLDER, read_files

ROOT = Path(__file__).parents[1]
OWN = [path for path in sorted(FOLDER.iterdir()) if path.is_file()]
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text()
LONGEST = 200  # lines


def test_the_page_is_served_without_a_key_under_a_policy_that_lets_nothing_else_in(filled: Filled) -> None:
    reply = filled.api.get("/")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert reply.content == (FOLDER / "index.html").read_bytes()
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";"))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert policy.pop("form-action") == "'none'"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy == dict.fromkeys(("script-src", "style-src", "connect-src", "img-src"), "'self'")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", sorted(read_files()))
def test_each_file_has_a_type_and_a_tag_and_is_sent_once(filled: Filled, name: str) -> None:
    reply = filled.api.get(f"/dashboard/{name}")
    types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith(types[name.rpartition(".")[2]])
    assert reply.headers["Cache-Control"] == "no-cache"
    again = filled.api.get(f"/dashboard/{name}", {"If-None-Match": reply.headers["ETag"]})
    assert (again.status, again.content, again.headers["ETag"]) == (304, b"", reply.headers["ETag"])
    assert filled.api.get(f"/dashboard/{name}", method="HEAD").headers["Content-Length"] == str(len(reply.content))


@pytest.mark.parametrize(
    "name", ["", "nothing.js", "../app.py", "%2e%2e/app.py", "vendor", "vendor/uPlot.LICENSE", "a\0b"]
)
def test_nothing_else_is_served(filled: Filled, name: str) -> None:
    assert filled.api.get("/dashboard/" + name.replace("\0", "%00")).status == 404


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_what_is_ours_is_short_and_asks_nobody_else_and_makes_nothing_of_text(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    assert not re.search(r"(?<!xmlns=\")https?://", text)
    for danger in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "localStorage",
    ):
        assert danger not in text
    if path.suffix == ".html":
        assert not re.search(r"<style|style=|<script(?! src=\"dashboard/)|\son[a-z]+=|javascript:", text)


@pytest.mark.parametrize("path", sorted((FOLDER / "vendor").iterdir()), ids=lambda path: path.name)
def test_what_is_not_ours_is_as_it_was_published(path: Path) -> None:
    assert f"`{path.name}` | `{sha256(path.read_bytes()).hexdigest()}`" in DEPENDENCIES
