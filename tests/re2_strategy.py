"""Schemathesis loads this: what strings of the format `re2` in an OpenAPI description are. Patterns that RE2 takes."""

import re2
import schemathesis
from hypothesis import strategies as st

_options = re2.Options()
_options.log_errors = False


def _is_taken(pattern: str) -> bool:
    try:
        re2.compile(pattern.encode(), options=_options)
    except (re2.error, UnicodeEncodeError):
        return False
    return True


schemathesis.openapi.format("re2", st.text(min_size=1, max_size=40).filter(_is_taken))
