"""Cross-origin requests as a browser makes and judges them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_api_http import COUNTS, FORMS, LOGS, Api, Filled, Reply, error_in
from test_api_http import filled as filled  # the fixture

PAGE = "https://studio.example.org"
SENT = "authorization,apikey,cache-control,content-type,if-none-match,lf-endpoint-redact-pii,x-api-key,x-client-info"


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api(tmp_path_factory.mktemp("listed"), FRESHET_CORS_ORIGINS=f"{PAGE} http://localhost:3000") as api:
        yield api


def preflight(api: Api, target: str, origin: str = PAGE, method: str = "GET", sent: str = SENT) -> Reply:
    headers = {"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": sent}
    return api.get(target, headers, "OPTIONS")


def allows(reply: Reply, origin: str, method: str = "GET", sent: str = SENT) -> bool:
    """Whether a browser goes on after a preflight, by the Fetch standard."""
    methods = [name.strip() for name in (reply.headers["Access-Control-Allow-Methods"] or "").split(",")]
    headers = {name.strip().lower() for name in (reply.headers["Access-Control-Allow-Headers"] or "").split(",")}
    return (
        reply.status in range(200, 300)
        and readable(reply, origin)
        and method in methods
        and set(sent.split(",")) <= headers
    )


def readable(reply: Reply, origin: str) -> bool:
    """Whether a browser lets a page of this origin read an answer."""
    return reply.headers["Access-Control-Allow-Origin"] in ("*", origin)


@pytest.mark.parametrize("form", FORMS)
def test_a_page_may_ask_with_its_key_in_a_header_on_every_path(filled: Filled, form: str) -> None:
    target = form % "logs.all" + "?project=p"
    reply = preflight(filled.api, target)  # no key: a browser sends none here
    assert allows(reply, PAGE)
    assert not reply.content
    answer = filled.get(target, Origin=PAGE)
    assert answer.status == 200
    assert readable(answer, PAGE)
    exposed = answer.headers["Access-Control-Expose-Headers"].lower().split(", ")
    assert {"age", "etag", "date", "retry-after", "freshet-complete-until", "cache-status"} <= set(exposed)


def test_credentials_of_the_browser_are_never_allowed(filled: Filled) -> None:
    for reply in (preflight(filled.api, LOGS), filled.get(LOGS, Origin=PAGE)):
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in reply.headers


def test_a_page_may_read_errors_too(filled: Filled) -> None:
    replies = {
        401: filled.api.get(LOGS, {"Origin": PAGE}),
        400: filled.get(COUNTS, Origin=PAGE),
        404: filled.get("/nowhere", Origin=PAGE),
        405: filled.get(LOGS, "DELETE", Origin=PAGE),
    }
    for status, reply in replies.items():
        error_in(reply, status)
        assert readable(reply, PAGE)
    assert not allows(preflight(filled.api, LOGS, method="DELETE"), PAGE, "DELETE")
    assert not allows(preflight(filled.api, "/nowhere"), PAGE)


def test_a_page_may_read_that_it_has_an_answer_already(filled: Filled) -> None:
    tag = filled.get(LOGS).headers["ETag"]
    reply = filled.get(LOGS, Origin=PAGE, **{"If-None-Match": tag})
    assert reply.status == 304
    assert readable(reply, PAGE)


def test_options_says_what_there_is_without_a_key(filled: Filled) -> None:
    for target in (LOGS, "/health", "/api/endpoints/nothing"):
        reply = filled.api.get(target, method="OPTIONS")
        assert reply.status in (200, 204)
        assert {"GET", "HEAD", "OPTIONS"} <= {*reply.headers["Allow"].split(", "), "OPTIONS"}
        assert not reply.content
    assert filled.api.get("/nowhere", method="OPTIONS").status == 404


def test_only_the_origins_of_a_list_may_read_and_caches_tell_them_apart(listed: Api) -> None:
    for origin, may in (
        (PAGE, True),
        ("http://localhost:3000", True),
        ("https://evil.example", False),
        ("null", False),
    ):
        assert allows(preflight(listed, LOGS, origin), origin) == may
        for target in (LOGS, "/health"):
            reply = listed.get(target, {"Origin": origin})
            assert readable(reply, origin) == may
            assert "Origin" in reply.headers["Vary"].split(", ")
    assert "Origin" in listed.get("/health").headers["Vary"].split(", ")


def test_without_origins_nothing_is_said(tmp_path: Path) -> None:
    with Api(tmp_path, FRESHET_CORS_ORIGINS="") as api:
        for reply in (preflight(api, LOGS), api.get(LOGS, {"Origin": PAGE}), api.get("/health", {"Origin": PAGE})):
            assert not [name for name in reply.headers if name.lower().startswith("access-control")]
