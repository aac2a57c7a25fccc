"""Runs every command in the documents on a real server over a fixed history, and puts its output below it.

`make docs` writes the documents anew; a test holds that nothing would change. What is taken out of a document:

    ```sql              an endpoint's file, put into the folder of one's own endpoints before the server starts
    ```sh … ```json     a command, run with $URL and $KEY, and its answer, shown with a row a line
    ```python … ```text a program, run behind the document's python without output, and what it prints
    <!-- NAME -->       an endpoint's parameters and columns, up to <!-- end -->
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from oracle import Record
from test_api_http import Api
from test_api_reader import NOW, fill

from ops.keys import add_key
from schema.resources import Parameter, SavedQuery
from schema.saved_queries import load_saved_queries
from schema.timestamps import MINUTE, SECOND

DOCS = Path(__file__).resolve().parents[1] / "docs"
DOCUMENTS = (DOCS / "api.md", DOCS / "endpoints.md")
PROJECT = "abcdefghijklmnopqrst"
_SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```(json|text)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^<!-- ([a-z.-]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_REQUESTS = (
    (1, "GET", 200, "/rest/v1/todos?select=*"),
    (2, "POST", 201, "/rest/v1/todos"),
    (2, "GET", 404, "/storage/v1/object/public/missing.png"),
    (7, "POST", 400, "/auth/v1/token?grant_type=password"),
    (31, "GET", 101, "/realtime/v1/websocket"),
    (90, "GET", 500, "/rest/v1/rpc/sum"),
)
_RUNS = (
    (1, "hello", 200, 12),
    (1, "hello", 200, 15),
    (3, "hello", 500, 230),
    (4, "resize", 200, 1840),
    (9, "resize", 404, None),
)


def history(data: Path) -> None:
    """Fill a data folder with a few requests and invocations of the last hours."""
    edge: list[Record] = []
    for number, (minutes, method, status, target) in enumerate(_REQUESTS):
        url = f"https://{PROJECT}.supabase.co{target}"
        request = {"method": method, "path": target.partition("?")[0], "url": url}
        event = {
            "id": f"00000000-0000-4000-8000-{number:012}",
            "timestamp": NOW - minutes * MINUTE - number * SECOND,
            "project": PROJECT,
            "event_message": f"{method} | {status} | 203.0.113.7 | {url}",
            "metadata": {"request": request, "response": {"status_code": status}},
        }
        edge.append(Record("edge", 0, number, 0, json.dumps(event).encode()))
    functions: list[Record] = []
    for number, (minutes, function, status, time) in enumerate(_RUNS):
        metadata: dict[str, Any] = {
            "project_ref": PROJECT,
            "function_id": function,
            "response": {"status_code": status},
        }
        metadata |= {} if time is None else {"execution_time_ms": time}
        event = {"timestamp": NOW - minutes * MINUTE, "metadata": metadata}
        functions.append(Record("functions", 0, number, 0, json.dumps(event).encode()))
    edge.append(Record("edge", 0, len(edge), 0, b'{"project": "\x1b[31mabc"}'))
    fill(data, [edge, functions])


class Renderer:
    """A server over that history with the endpoints of all documents, and what commands answer there."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data"
        history(data)
        (data / "endpoints").mkdir()
        for number, sql in enumerate(sql for path in DOCUMENTS for sql in _SQL.findall(path.read_text())):
            (data / "endpoints" / f"{number}.sql").write_text(sql)
        self._queries = load_saved_queries()
        self._key = add_key(data, "docs", allow=["query", "ingest"])
        self.api = Api(folder)

    def rendered(self, document: str) -> str:
        """A document's text with fresh output and tables."""
        before = "".join(code for kind, code, output, _ in _RUN.findall(document) if kind == "python" and not output)

        def run(match: re.Match[str]) -> str:
            kind, code, output, _ = match.groups()
            if not output:
                return match[0]
            command = ["sh", "-ec", code] if kind == "sh" else [sys.executable, "-c", before + code]
            environment = {**os.environ, "URL": f"http://127.0.0.1:{self.api.port}", "KEY": self._key}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
            shown = a_row_a_line(json.loads(done.stdout)) if output == "json" else done.stdout
            return f"```{kind}\n{code}```\n\n```{output}\n{shown}```"

        return _TABLE.sub(self._table, _RUN.sub(run, document))

    def _table(self, match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{table(self._queries[match[1]])}<!-- end -->"


def a_row_a_line(answer: Any) -> str:
    """An answer's JSON with each row of its result on a line."""
    if not answer.get("result"):
        return json.dumps(answer, ensure_ascii=False) + "\n"
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in answer["result"])
    rest = "".join(f", {json.dumps(name)}: {json.dumps(answer[name])}" for name in answer if name != "result")
    return f'{{"result": [\n{rows}\n]{rest}}}\n'


def table(query: SavedQuery) -> str:
    """An endpoint's parameters and columns as tables."""
    lines = ["| parameter | | |", "|---|---|---|"]
    lines += [f"| `{one.name}` | {_kind(one)} | {one.about} |" for one in query.parameters]
    lines += ["", "| column | | |", "|---|---|---|"]
    for column in query.columns:
        lines.append(f"| `{column.name}` | {column.type}{' or null' if column.nullable else ''} | {column.about} |")
    kept = f"kept for {query.cache_seconds} s" if query.cache_seconds else "never kept"
    return "\n".join([*lines, "", f"Id `{query.id}`; at most {query.max_rows} rows; {kept}.", ""])


def _kind(parameter: Parameter) -> str:
    parts = [parameter.type + (", required" if parameter.required else "")]
    if parameter.words:
        parts = [" ".join(f"`{word}`" for word in parameter.words) + (", required" if parameter.required else "")]
    if parameter.type == "integer":
        parts.append(f"{parameter.least} to {parameter.most}")
    if parameter.default is not None:
        parts.append(f"`{parameter.default}` without it")
    return ", ".join(parts)


def main() -> None:
    """Write the documents anew."""
    with tempfile.TemporaryDirectory() as folder:
        renderer = Renderer(Path(folder))
        with renderer.api:
            for path in DOCUMENTS:
                path.write_text(renderer.rendered(path.read_text()))


if __name__ == "__main__":
    main()
