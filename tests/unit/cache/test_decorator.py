from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.cache import FetchFailedError, FetchInProgressError, single_flight
from tests.support.cache import CacheFunction
from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def shared(engine: DynamoDBClient, clock: FakeClock) -> dict[str, Any]:
    function = CacheFunction(engine, create_cache_table(engine), clock, "")
    return {"flights": function.api.single_flight, "clock": clock}


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, b"", b"\x00\xff", "text", {"rate": 1.5}, [1, None]])
def test_a_result_comes_back_as_it_was_returned(shared: dict[str, Any], result: Any) -> None:
    """Falsy results are results: the function runs once and every caller gets what it returned."""
    calls: list[None] = []

    @single_flight("rates", **shared)
    def rates() -> Any:
        calls.append(None)
        return result

    assert [rates(), rates(), rates()] == [result] * 3
    assert len(calls) == 1


def test_arguments_are_the_key_and_keep_their_types(shared: dict[str, Any]) -> None:
    """1, "1", True and None are different questions; position or name and defaults make no difference."""

    @single_flight("echo", **shared)
    def echo(value: Any, other: str = "x") -> Any:
        return [value, other]

    values = [1, "1", True, None, "", "true", 1.5]
    assert [echo(value)[0] for value in values] == values
    assert [type(echo(value=value, other="x")[0]) for value in values] == [type(value) for value in values]


def test_what_the_function_raises_is_its_callers_and_the_failure_is_shared(
    shared: dict[str, Any], clock: FakeClock
) -> None:
    """The error reaches who ran the function; others are told of it until the cooldown ends, then it runs again."""
    calls: list[None] = []

    @single_flight("rates", cooldown_seconds=2, **shared)
    def rates() -> str:
        calls.append(None)
        if len(calls) == 1:
            raise ZeroDivisionError
        return "fine"

    with pytest.raises(ZeroDivisionError):
        rates()
    with pytest.raises(FetchFailedError) as caught:
        rates()
    assert caught.value.retry_after_ms == 2_000
    clock.advance(2_000)
    assert rates() == "fine"


def test_one_decorated_function_may_call_another(shared: dict[str, Any]) -> None:
    """Nested flights keep their own keys and values."""

    @single_flight("inner", **shared)
    def inner(value: int) -> int:
        return value + 1

    @single_flight("outer", **shared)
    def outer(value: int) -> int:
        return inner(value) * 10

    assert (outer(1), inner(1), outer(1)) == (20, 2, 20)


def test_whoever_waits_too_long_is_told_so(shared: dict[str, Any]) -> None:
    """The wait is bounded; the caller can come back."""

    @single_flight("rates", wait_seconds=0.5, **shared)
    def rates() -> str:
        with pytest.raises(FetchInProgressError):
            rates()
        return "fine"

    assert rates() == "fine"


def test_a_lease_shorter_than_the_call_is_refused() -> None:
    """Settings that could not work stop at import, not in a race."""
    with pytest.raises(ValueError, match="lease_seconds"):
        single_flight("rates", lease_seconds=5, timeout_seconds=5)
