from __future__ import annotations

import os

import pytest

from bench.aims import Aim
from bench.measure import WARM_UP, Spread, interleaved, percentile, quiet, ratio
from bench.paid import Paid
from bench.plots import bars


def test_contenders_take_turns_and_each_is_timed_once_a_round() -> None:
    """The order changes, the number of calls does not, and warming up is not timed."""
    calls: list[str] = []
    contenders = {name: lambda _, name=name: lambda: calls.append(name) for name in ("a", "b")}

    times = interleaved(contenders, rounds=6)

    assert {name: len(taken) for name, taken in times.items()} == {"a": 6, "b": 6}
    rounds = [calls[start : start + 2] for start in range(0, len(calls), 2)]
    assert len(rounds) == 6 + WARM_UP
    assert all(sorted(pair) == ["a", "b"] for pair in rounds)
    assert ["a", "b"] in rounds
    assert ["b", "a"] in rounds


def test_a_ratio_is_the_median_over_pairs() -> None:
    """One slow moment of the machine moves neither."""
    assert ratio([2.0, 4.0, 90.0], [1.0, 2.0, 1.0]) == Spread(2.0, 2.0, 90.0)


def test_percentiles_are_values_that_occurred() -> None:
    """Nothing is interpolated."""
    assert [percentile([3, 1, 2], share) for share in (0, 0.5, 0.99)] == [1, 2, 3]


def test_what_functions_write_costs_them_and_does_not_show(capfd: pytest.CaptureFixture[str]) -> None:
    """The terminal keeps to the report."""
    with quiet():
        os.write(1, b"log line\n")
    os.write(1, b"report\n")
    assert capfd.readouterr().out == "report\n"


@pytest.mark.parametrize(
    ("aim", "met", "distance"),
    [
        (Aim("a", 1.5, 1.4), True, ""),
        (Aim("a", 1.5, 1.75, unit=" x"), False, "0.25 x left"),
        (Aim("a", 3, 2, at_least=True), False, "1 left"),
        (Aim("a", 3, 3, at_least=True), True, ""),
    ],
)
def test_an_aim_says_whether_it_is_met_or_how_far_it_is(aim: Aim, met: bool, distance: str) -> None:  # noqa: FBT001 - a parameter of the test
    """From above or from below."""
    assert (aim.met, aim.distance) == (met, distance)


@pytest.mark.parametrize("compressible", [False, True])
def test_paid_answers_have_the_size_asked_for_and_differ(compressible: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Two equal answers prove one call."""
    paid = Paid(size=2_000, compressible=compressible)
    first, second = paid.call(), paid.call()
    assert (len(first), len(second), paid.calls) == (2_000, 2_000, 2)
    assert first != second


def test_bars_grow_with_values() -> None:
    """Linear by the difference, logarithmic by the factor, names escaped."""
    linear, logarithmic = (bars("a < b", [("x", 1, "1"), ("y", 10, "10")], logarithmic=log) for log in (False, True))
    assert "a &lt; b" in linear
    assert 'width="42.0"' in linear
    assert 'width="20.0"' in logarithmic
