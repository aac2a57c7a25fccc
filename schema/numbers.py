"""Numbers as producers write them: JSON numbers and numeric strings, kept exact (contract sections 3 and 4)."""

import re
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?0*[0-9]{1,3})?")
_LONGEST = 400  # characters; more are never meant, and would cost time
_MOST_DIGITS = 101  # of an integer


class Number(str):
    """A JSON number with a fraction or an exponent, as the text in which it was written."""

    __slots__ = ()


def exact(value: Any) -> Decimal | None:
    """The exact value of an int, a `Number` or a numeric string; None for anything else, booleans included."""
    if type(value) is int:
        return Decimal(value)
    if not isinstance(value, str):
        return None
    text = value.strip(" \t\r\n")
    return Decimal(text) if len(text) <= _LONGEST and _NUMBER.fullmatch(text) else None


def scaled_floor(number: Decimal, factor: int) -> int:
    """A number times a whole factor, floored to an integer, without rounding on the way."""
    numerator, denominator = number.as_integer_ratio()
    return numerator * factor // denominator


def whole(value: Any) -> int | None:
    """The value of an integer of at most 101 digits, however it is written (200, 200.0, "200"); None for others."""
    if type(value) is int:
        return value if abs(value) < 10**_MOST_DIGITS else None
    number = exact(value)
    if number is None or number.adjusted() >= _MOST_DIGITS:
        return None
    numerator, denominator = number.as_integer_ratio()
    return numerator if denominator == 1 else None
