"""The regular expressions of usage.api-counts: RE2 over UTF-8 (design section 4)."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from schema.errors import ParameterError

_RIGHT_CONTEXT = re.compile(r"\$|\\[zbB]")
_WHOLE_TEXT = re.compile(r"\\[Az]")
_FLAGS = re.compile(r"\(\?(?!:|P?<)")


class Pattern:
    """A compiled pattern, and what may be concluded from it without looking at every URL.

    All conclusions are told from the pattern's text and err on the side of looking.
    """

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        self.text = text
        self._search: Callable[[bytes], Any] = re2.compile(text.encode(), options=options).search
        plain = _FLAGS.search(text) is None
        self._extends = plain and _RIGHT_CONTEXT.search(text) is None
        self._search_lines: Callable[[bytes | memoryview], Any] | None = None
        if plain and _WHOLE_TEXT.search(text) is None:
            self._search_lines = re2.compile(b"(?m)" + text.encode(), options=options).search

    def matches(self, url: bytes) -> bool:
        """Whether the pattern is found in a URL."""
        return self._search(url) is not None

    def matches_whatever_follows(self, origin: bytes) -> bool:
        """Whether the pattern is found in every URL that begins with `origin`.

        It is, where it is found in the origin itself and nothing in it looks at what comes behind its match.
        """
        return self._extends and self.matches(origin)

    def may_match_a_line(self, text: bytes | memoryview) -> bool:
        """False only if the pattern is found in none of the URLs whose newline-joined text this is."""
        return self._search_lines is None or self._search_lines(text) is not None


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """The pattern in a parameter. Raises ParameterError with RE2's own words where it refuses it."""
    try:
        return Pattern(text)
    except re2.error as error:
        why = error.args[0] if error.args else "unreadable"
        reason = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ParameterError("project", text, f"not a regular expression that RE2 takes: {reason}") from error
