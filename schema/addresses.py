"""What an IP address looks like in a text: regular expressions for whoever takes addresses out of it."""

HEX = r"[0-9A-Fa-f]{1,4}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})"


def address_patterns(dot: str, colon: str) -> tuple[str, str]:
    """Patterns of an IPv4 and of an IPv6 address, given how a dot and a colon may be written."""
    v4 = rf"{_OCTET}(?:{dot}{_OCTET}){{3}}"
    tail = rf"(?:{v4}|{HEX})"
    v6 = (
        rf"(?:{HEX}{colon}){{6}}(?:{v4}|{HEX}{colon}{HEX})",
        *(rf"(?:{HEX}{colon}){{{n}}}(?:{colon}{HEX}){{0,{6 - n}}}{colon}{tail}" for n in range(6, 0, -1)),
        rf"{colon}(?:{colon}{HEX}){{0,6}}{colon}{tail}",
        rf"(?:{HEX}{colon}){{1,7}}{colon}",
    )
    return v4, "|".join(v6)
