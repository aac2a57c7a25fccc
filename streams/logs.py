"""Log lines of the worker: one form, and no floods."""

import logging
import sys
import time

from schema.errors import FreshetError
from schema.log_lines import formatter


class RateLimit(logging.Filter):
    """Lets a message's text through once in so many seconds; a broker that is away otherwise fills the disk."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        text, now = str(record.msg), time.monotonic()
        if now - self._last.get(text, -self._seconds) < self._seconds:
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[text] = now
        return True


class OwnErrors(logging.Filter):
    """Leaves out the tracebacks of Freshet's own errors, whose messages say all that helps."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True; the record loses its traceback where that is of a FreshetError."""
        if record.exc_info and isinstance(record.exc_info[1], FreshetError):
            record.exc_info = record.exc_text = None
        return True


def set_up_logging(form: str) -> None:
    """Log to standard error: ours from INFO, the libraries' from WARNING, repeated ones once in 10 s.

    `form` is FRESHET_LOG's.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, sys.stderr))
    handler.addFilter(OwnErrors())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("freshet").setLevel(logging.INFO)
    for library in ("aiokafka", "faust", "mode"):
        for name in [library, *(n for n in logging.root.manager.loggerDict if n.startswith(f"{library}."))]:
            logging.getLogger(name).addFilter(RateLimit(10.0))
