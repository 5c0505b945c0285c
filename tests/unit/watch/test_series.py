"""The metric math that is evaluated here."""

import pytest

from watch.series import ExpressionError, Metric, Plot, Series

A, B = (Metric("Firstwrite", name, (), "Sum", 60) for name in "ab")
TIMES = (0, 60, 120)
DATA = {A: {0: 4.0, 60: 6.0}, B: {60: 2.0, 120: 0.0}}


def value(expression: str) -> Series:
    return Plot({"a": A, "b": B, "result": expression}).series("result", DATA, TIMES)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", {0: 4, 60: 6}),
        ("a + b", {60: 8}),
        ("FILL(a, 0) - FILL(b, 1)", {0: 3, 60: 4, 120: 0}),
        ("SUM([a, b])", {60: 8}),
        ("SUM([FILL(a, 0), FILL(b, 0)]) * 0.5", {0: 2, 60: 4, 120: 0}),
        ("a / b", {60: 3}),
        ("FILL(a, 0) / FILL(b, 0)", {60: 3}),
        ("IF(FILL(a, 0) >= 5, FILL(b, 0), 0)", {0: 0, 60: 2, 120: 0}),
        ("IF(FILL(a, 0) < 5, a / b, 7)", {60: 7}),
        ("2 * 3", {0: 6, 60: 6, 120: 6}),
    ],
)
def test_math_is_cloudwatchs(expression: str, expected: Series) -> None:
    """Missing stays missing unless it is filled, a division by zero has no data, and a number holds at all times."""
    assert value(expression) == expected


def test_a_metric_that_never_came_is_filled() -> None:
    """FILL has a value at every time, also where nothing was ever counted."""
    nothing = Plot({"a": A, "result": "FILL(a, 0)"}).series("result", {}, TIMES)
    assert nothing == {0: 0, 60: 0, 120: 0}


@pytest.mark.parametrize("expression", ["MAX([a, b])", "a %% b", "a and b", "FILL(a, REPEAT)", "a.b", "a ** b"])
def test_what_is_not_known_is_refused(expression: str) -> None:
    """Nothing is guessed at."""
    with pytest.raises(ExpressionError):
        value(expression)
