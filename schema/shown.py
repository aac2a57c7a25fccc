"""Bytes of unknown origin, shown to people: nothing in them reaches a terminal as more than text."""


def shown(data: bytes, most: int | None = None) -> str:
    r"""Bytes as text, what can't be printed as `\n`, `\x1b` or `\u202e`; at most so many characters.

    UTF-8 where it is; other bytes as `\xff`. A `…` at the end stands for what was left out.
    """
    text = data[: None if most is None else 4 * most].decode(errors="backslashreplace")
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if most is None or len(safe) <= most else safe[: most - 1] + "…"
