"""What a line of the access log takes from an answer; test_api_connections.py reads whole lines of a real process."""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from gunicorn.asgi.protocol import ASGIResponseInfo
from gunicorn.config import Config

from api.access_log import CONTEXT, AccessLogger


@pytest.fixture
def logger() -> AccessLogger:
    return AccessLogger(Config())


def line(
    logger: AccessLogger,
    caplog: pytest.LogCaptureFixture,
    headers: Sequence[tuple[bytes, bytes]] = (),
    status: int = 200,
    sent: int = 5,
    path: str = "/",
    environ: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, Any]:
    logger.access_log.addHandler(caplog.handler)
    logger.access_log.setLevel(logging.INFO)
    caplog.clear()
    request = SimpleNamespace(method="GET", path=path)
    logger.access(ASGIResponseInfo(status, headers, sent), request, dict(environ), timedelta(milliseconds=1.5))
    logger.access_log.removeHandler(caplog.handler)
    written: dict[str, Any] = json.loads(caplog.messages[-1])
    return written


def test_rows_endpoint_and_cache_are_those_of_the_request_s_context(
    logger: AccessLogger, caplog: pytest.LogCaptureFixture
) -> None:
    context = SimpleNamespace(rows=7, endpoint="logs.all", cache="hit", caller=SimpleNamespace(name="a key"))
    told = line(logger, caplog, environ={CONTEXT: context})
    assert (told["rows"], told["endpoint"], told["key"], told["ms"]) == (7, "logs.all", "a key", 1.5)
    assert (told["cache"], line(logger, caplog)["cache"]) == ("hit", "-")


def test_a_client_that_left_is_no_500(logger: AccessLogger, caplog: pytest.LogCaptureFixture) -> None:
    assert line(logger, caplog, status=500, sent=0, environ={"gone": True})["status"] == 499
    assert line(logger, caplog, status=500, sent=100, environ={"gone": True})["status"] == 500
    assert line(logger, caplog, status=500, sent=0, environ={"gone": False})["status"] == 500


@pytest.mark.parametrize("path", ["/\n{}", "/\x1b[31m", "/\udc80", "/\u2028", '/"}', "/日本"])
def test_any_path_is_one_line_that_says_it(logger: AccessLogger, caplog: pytest.LogCaptureFixture, path: str) -> None:
    assert line(logger, caplog, path=path)["path"] == path
    assert caplog.messages[-1].isascii()
    assert caplog.messages[-1].isprintable()


def test_what_looks_like_a_key_or_a_secret_is_left_out_of_a_path(
    logger: AccessLogger, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "Zk3_" * 10 + "abc"
    for text in (f"fr_0123456789ab_{secret}", f"fr_0123456789ab_{secret[:9]}", secret, f"f_{secret}"):
        assert line(logger, caplog, path=f"/a/{text}/b")["path"] == "/a/…/b"
    assert line(logger, caplog, path="/api/endpoints/functions.invocation-stats")["path"].endswith("stats")
