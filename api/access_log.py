"""The access log: a line of JSON a request (or of text at a terminal), with neither keys nor query strings.

time      when the answer was complete, UTC
key       the name of the key, null without one that is known here
method    null, like path, where the request was refused before it was understood
path      without the query string; what looks like a key in it is left out
endpoint  the saved query's name, or null
status    of the answer, 499 where the client left before there was one
cache     where the answer came from (the parameters of its Cache-Status field), "-" where nothing is kept
rows      how many were answered, or null
bytes     of the answer's body
ms        from the request's head to the answer's end
"""

import json
import logging
import re
import sys
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from falcon.asgi import Request, Response
from gunicorn.glogging import Logger

from api.meters import IN_FLIGHT, REQUESTS
from schema.log_lines import formatter, wants_json
from schema.timestamps import SECOND, datetime_text

CONTEXT = "freshet.context"
"""Where a request's ASGI scope holds Falcon's context, and gunicorn's environ for the log too."""
_CLIENT_LEFT = 499
_encode = msgspec.json.Encoder().encode
_KEY = re.compile(r"fr_[0-9a-f]{12}_[A-Za-z0-9_-]*|[A-Za-z0-9_-]{40,}")  # whole, or mangled around its secret


class Noted:
    """Middleware that has a request's context at hand when its line is written."""

    async def process_request(self, request: Request, response: Response) -> None:
        """Called by Falcon."""
        request.scope[CONTEXT] = request.context
        IN_FLIGHT.count += 1


class AccessLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's logger, with access lines of this form; `form` is FRESHET_LOG's."""

    form = "auto"

    def setup(self, cfg: Any) -> None:
        """Called by gunicorn. What Freshet logs itself goes where gunicorn's own log goes, in the same form."""
        super().setup(cfg)
        # What no line here tells, and what finding it out costs: 3 of 8 µs a line, as Python's logging documents.
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
        vars(logging)["_srcfile"] = None
        for handler in self.error_log.handlers:
            handler.setFormatter(formatter(self.form, sys.stderr))
        ours = logging.getLogger("freshet")
        ours.handlers = list(self.error_log.handlers)
        ours.setLevel(logging.INFO)
        self._access_json = wants_json(self.form, sys.stdout)

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: Any) -> None:
        """Called by gunicorn after each answer, and by Protocol for those it makes itself (without `req`)."""
        context = environ.get(CONTEXT)
        caller = getattr(context, "caller", None)
        endpoint, cache = getattr(context, "endpoint", None), getattr(context, "cache", "-")
        status = _CLIENT_LEFT if environ.get("gone") and resp.status == 500 and not resp.sent else resp.status
        IN_FLIGHT.count -= context is not None
        REQUESTS.add(endpoint or "-", str(status), cache)
        line = {
            "time": _now(),
            "key": caller.name if caller is not None else None,
            "method": req.method if req is not None else None,
            "path": _shown(req.path) if req is not None else None,
            "endpoint": endpoint,
            "status": status,
            "cache": cache,
            "rows": getattr(context, "rows", None),
            "bytes": resp.sent,
            "ms": request_time.seconds * 1000 + request_time.microseconds / 1000,
        }
        self.access_log.info(_as_json(line) if self._access_json else _as_text(line))


def _now() -> str:
    second, nanos = divmod(time.time_ns(), 10**9)
    return f"{datetime_text(second * SECOND)}.{nanos // 10**6:03}Z"


def _as_json(line: dict[str, Any]) -> str:
    """In ASCII alone: 0.4 µs, and 2.6 where what was sent needs more than that."""
    with suppress(UnicodeEncodeError):
        text = _encode(line).decode()
        if text.isascii():
            return text
    return json.dumps(line, separators=(",", ":"))


def _as_text(line: dict[str, Any]) -> str:
    """The same for people; what a client sent is written as in JSON, so that nothing can act on a terminal."""
    path, key = json.dumps(line["path"]), json.dumps(line["key"])
    where = f"{line['status']} {line['method']} {path} {line['endpoint'] or '-'} {line['cache']}"
    return f"{line['time']} {where} {line['rows'] or 0} rows {line['bytes']} bytes {line['ms']:.1f} ms key {key}"


@lru_cache(maxsize=256)
def _shown(path: str) -> str:
    return _KEY.sub("…", path)
