"""The OpenAPI description: valid, complete, and kept to by a real server, whatever schemathesis asks of it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from test_api_endpoints import Own, own
from test_api_http import Filled

from api.endpoints import by_name, load_endpoints
from api.openapi import describe
from schema.saved_queries import load_saved_queries
from schema.settings import Settings

__all__ = ["own"]
PLAIN = {"content-type", "content-length", "date", "server", "connection", "vary", "transfer-encoding"}
CONFIGURATION = """
[parameters]
"query.project" = "p"
"query.project_tier" = "PAYG"
"query.iso_timestamp_start" = ""
"query.iso_timestamp_end" = ""
"query.function_id" = ""
"query.text" = ""
"query.method" = ""
"query.path" = ""
"query.min_status" = ""
"query.max_status" = ""
"query.cursor" = ""
"""


def described(own: Filled, **headers: str) -> dict[str, Any]:
    reply = own.api.get("/openapi.json", headers)
    assert reply.status == 200
    document: dict[str, Any] = reply.body
    return document


def test_the_description_is_valid_and_has_every_endpoint_parameter_and_column() -> None:
    queries = by_name(load_endpoints(Settings()))
    document = describe(queries.values())
    validate(document)
    assert document["openapi"].startswith("3.1")
    for name, query in queries.items():
        operation = document["paths"][f"/api/endpoints/{name}"]["get"]
        assert [one["name"] for one in operation["parameters"]] == [one.name for one in query.parameters]
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
        assert list(answer["result"]["items"]["properties"]) == [column.name for column in query.columns]
        assert ("next" in answer) == (query.next_column is not None)
        assert {"304", "400", "401", "403", "405", "414", "429", "431", "503"} < operation["responses"].keys()


def test_without_a_key_only_the_endpoints_of_freshet_are_described_and_with_one_those_it_may_ask(own: Own) -> None:
    prefix = "/api/endpoints/"
    shipped = {prefix + name for name in by_name(load_saved_queries())}
    for headers, expected in (
        ({}, shipped),
        ({"X-API-KEY": own.key}, shipped | {f"{prefix}invocations.by-day"}),
        ({"Authorization": f"Bearer {own.scoped}"}, {f"{prefix}invocations.by-day", f"{prefix}logs.search"}),
    ):
        document = described(own, **headers)
        validate(document)
        assert {path for path in document["paths"] if path.startswith(prefix)} == expected
    assert own.api.get("/openapi.json", {"X-API-KEY": "fr_nobody_x"}).status == 401


def test_every_header_of_an_answer_is_described(own: Own) -> None:
    document = described(own, **{"X-API-KEY": own.key})
    named = {name.lower() for name in document["components"]["headers"]}
    for path in document["paths"]:
        for key in (own.key, "", own.scoped):
            for parameters in ("", "?project=p&interval=hourly"):
                headers = own.api.get(path + parameters, {"X-API-KEY": key}).headers
                assert {name.lower() for name in headers} <= named | PLAIN, path


@pytest.mark.parametrize(
    ("modes", "configuration"), [("all", ""), ("positive", CONFIGURATION)], ids=["any project", "a project with rows"]
)
def test_schemathesis_finds_nothing(own: Own, tmp_path: Path, modes: str, configuration: str) -> None:
    """Positive and negative data against a real server, all checks."""
    (tmp_path / "schemathesis.toml").write_text(configuration)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(tmp_path / "schemathesis.toml")),
        *("run", f"http://127.0.0.1:{own.api.port}/openapi.json", "--header", f"X-API-KEY: {own.key}"),
        *("--checks", "all", "--mode", modes, "--phases", "examples,coverage,fuzzing", "--max-examples", "40"),
        *("--exclude-path", "/api/logs"),  # test_api_ingest.py has a Kafka for it
        *("--continue-on-failure", "--request-timeout", "20", "--no-color", "--seed", "20261121"),
    ]
    tests = str(Path(__file__).parent)
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "re2_strategy", "PYTHONPATH": tests}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout
    assert "12 selected / 13 total" in done.stdout
