"""Numbers keep their exact value, however a producer writes them."""

from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.numbers import Number, exact, scaled_floor, whole

DECIMALS = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-(10**20), 10**20), st.integers(-30, 30)
)


@given(DECIMALS, st.booleans())
def test_a_number_has_the_same_exact_value_bare_and_as_a_string(value: Decimal, expanded: bool) -> None:
    text = format(value, "f") if expanded else str(value)
    assert exact(Number(text)) == exact(text) == exact(f" {text}\n") == value


@given(st.integers())
def test_an_integer_is_itself(value: int) -> None:
    assert exact(value) == value
    assert whole(value) == value


@pytest.mark.parametrize("text", ["-0", "0e0", "0.000", "1E5", "1e+5", "1.50", "-12.5e-3", "1e-400", "1e400"])
def test_every_form_of_json_is_a_number(text: str) -> None:
    assert exact(Number(text)) == exact(text) == Decimal(text)


@pytest.mark.parametrize("text", ["1e0005", "1.7e+0009", "1e-0003"])
def test_zeros_before_an_exponent_change_nothing(text: str) -> None:
    assert exact(Number(text)) == Decimal(text)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 1.5, b"1", [], [1], {}, "", " ", "+1", "1.", ".5", "-", "05", "-01", "1e", "1e+", "0x1f"),
        *(
            "NaN",
            "nan",
            "Infinity",
            "1_000",
            "1,5",
            "1 2",
            "٣",
            "１",
            "1e1.5",
            "one",
            "9" * 401,
            Number("1" + "0" * 400),
        ),
    ],
)
def test_what_is_no_number_of_json_is_none(value: Any) -> None:
    assert exact(value) is None
    assert whole(value) is None


@given(DECIMALS, st.sampled_from([1, 1000, 1_000_000]))
def test_scaling_floors_without_rounding_on_the_way(value: Decimal, factor: int) -> None:
    assert scaled_floor(value, factor) == floor(Fraction(value) * factor)


def test_scaling_floors_what_a_float_would_round_up() -> None:
    assert scaled_floor(Decimal("0.999999999999999999999999999999999"), 1) == 0
    assert scaled_floor(Decimal("1700000000.123456999999999999"), 1_000_000) == 1_700_000_000_123_456
    assert scaled_floor(Decimal("-0.0000001"), 1000) == -1


@pytest.mark.parametrize("value", [200, "200", " 200 ", "200.0", "2e2", "2.00E+2", "20000e-2", Number("200.000")])
def test_a_whole_number_may_be_written_with_a_point_or_an_exponent(value: Any) -> None:
    assert whole(value) == 200
    assert type(whole(value)) is int


@pytest.mark.parametrize("value", ["200.5", "0.1", Number("399.9"), "1e-1", "1e999", "1e-999", Number("1e300")])
def test_what_is_not_whole_or_is_out_of_all_bounds_is_none(value: Any) -> None:
    assert whole(value) is None
