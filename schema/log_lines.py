"""The form of log lines: JSON for machines, text for people at a terminal."""

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

FORMS = ("auto", "json", "text")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def wants_json(form: str, stream: TextIO) -> bool:
    """Whether a stream gets JSON: as FRESHET_LOG says, with `auto` wherever no terminal shows it."""
    return form == "json" or (form == "auto" and not stream.isatty())


def formatter(form: str, stream: TextIO) -> logging.Formatter:
    """The formatter for what is logged to a stream."""
    return JsonLines() if wants_json(form, stream) else logging.Formatter(_TEXT)


class JsonLines(logging.Formatter):
    """A line of JSON a record: time (UTC), level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": f"{when[:-6]}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
