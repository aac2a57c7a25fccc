"""docs/api.md and docs/endpoints.md show what a fresh run shows: every command and program in them is run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from render_docs import DOCUMENTS, Renderer

from api.functions import SCALARS
from schema.saved_queries import load_saved_queries
from schema.tables import store_statements


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renderer]:
    renderer = Renderer(tmp_path_factory.mktemp("docs"))
    with renderer.api:
        yield renderer


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_shows_what_its_commands_answer(renderer: Renderer, document: Path) -> None:
    text = document.read_text()
    assert renderer.rendered(text) == text
    assert not re.search(r"^```(json|text)\n```$", text, re.MULTILINE)


def test_every_endpoint_has_a_section_with_its_table_a_curl_line_and_a_program() -> None:
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", DOCUMENTS[0].read_text(), re.MULTILINE | re.DOTALL))
    for name in {query.name for query in load_saved_queries().values()}:
        assert f"<!-- {name} -->" in sections[name]
        assert re.search(rf"```sh\ncurl .*/api/endpoints/{name}\b", sections[name])
        assert re.search(rf'```python\n[^`]*ask\("{name}"', sections[name])


def test_what_endpoints_of_ones_own_may_use_is_told() -> None:
    text = DOCUMENTS[1].read_text()
    for name, _, _ in SCALARS:
        assert f"`{name}(" in text
    made = "\n".join(store_statements())
    for table in re.findall(r"^\| (`[a-z_`, ]+`) \| (?:`project`|how far)", text, re.MULTILINE):
        for name in re.findall(r"`([a-z_]+)`", table):
            assert f"CREATE TABLE {name} (" in made
    for column in re.findall(r"`(\w+)`", text.split("| `invocations` |")[1].split("\n")[0]):
        assert column in made
