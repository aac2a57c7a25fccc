"""Log lines: one of JSON a record for machines, text at a terminal; the same for worker and API."""

import io
import json
import logging
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Topics
from gunicorn.asgi.protocol import ASGIResponseInfo
from gunicorn.config import Config
from kafka_broker import KafkaBroker
from service import Service

from api.access_log import AccessLogger
from schema.log_lines import JsonLines, formatter

WORKER = "import logging, streams.logs as s; s.set_up_logging('auto'); logging.getLogger('freshet.x').info('a \"b\"')"


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("freshet.x", logging.WARNING, __file__, 1, message, arguments, None)


def test_a_record_is_one_line_of_json_with_its_traceback() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        failed = record("%s of\n%d", "one", 3)
        failed.exc_info = sys.exc_info()
    text = JsonLines().format(failed)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("warning", "freshet.x", "one of\n3")
    assert line["time"].endswith("Z")
    assert line["traceback"].endswith("ValueError: first\nsecond")


@pytest.mark.parametrize(("form", "is_json"), [("auto", True), ("json", True), ("text", False)])
def test_what_no_terminal_shows_is_json_unless_text_is_asked_for(form: str, is_json: bool) -> None:
    assert isinstance(formatter(form, io.StringIO()), JsonLines) == is_json


def test_a_real_terminal_gets_text_and_a_pipe_json() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", WORKER], stderr=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 1000).decode().endswith(' INFO freshet.x: a "b"\r\n')
    os.close(ours)
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, check=True)
    assert json.loads(done.stderr)["message"] == 'a "b"'


def test_worker_and_api_write_nothing_but_json_and_text_where_asked_for(
    kafka: KafkaBroker, topics: Topics, tmp_path: Path
) -> None:
    with Service(tmp_path, kafka, *topics) as service:
        worker = service.start("worker")
        service.wait_for_log(worker, "reading on from")
        service.start_api()
        service.get("/api/endpoints/logs.all", project="p")
        service.stop(service.processes[1])
        service.stop(worker)
        for process in service.processes:
            lines = [json.loads(line) for line in service.log(process).splitlines()]
            assert len(lines) > 1
            assert all({"time", "message"} <= line.keys() or "status" in line for line in lines), lines
        service.start_api(log="text")
        service.get("/api/endpoints/logs.all", project="p")
        service.stop(service.processes[-1])
        text = service.log(service.processes[-1])
        assert ' 200 GET "/api/endpoints/logs.all" logs.all fwd=bypass 0 rows ' in text
        assert service.key not in text


def test_a_path_in_a_text_line_can_do_nothing_to_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    logger = type("Text", (AccessLogger,), {"form": "text"})(Config())
    logger.access_log.addHandler(caplog.handler)
    logger.access_log.setLevel(logging.INFO)
    request = SimpleNamespace(method="GET", path="/\x1b[31m\n")
    logger.access(ASGIResponseInfo(200, (), 5), request, {}, timedelta(milliseconds=1.5))
    logger.access_log.removeHandler(caplog.handler)
    assert caplog.messages[-1].isprintable()
    assert '"/\\u001b[31m\\n"' in caplog.messages[-1]
