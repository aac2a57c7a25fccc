"""Bytes of unknown origin, shown to people: nothing in them reaches a terminal as more than text."""


def shown(data: bytes, most: int | None = None) -> str:
    r"""Bytes as text, what can't be printed as `\n`, `\x1b` or `\u202e`; at most so many characters.

    UTF-8 where it is; other bytes as `\xff`. A `…` at the end stands for what was left out.
    """
    text = data[: None if most is None else 4 * most].decode(errors="backslashreplace")
    safe = plain_text(text)
    return safe if most is None or len(safe) <= most else safe[: most - 1] + "…"


def plain_text(text: str) -> str:
    r"""A text in which what can't be printed (controls, bidi marks, line ends) is written as `\x1b`, `\u202e`, `\n`."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
