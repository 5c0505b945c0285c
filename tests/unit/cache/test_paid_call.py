from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.cache.circuit import KEPT_S as CIRCUIT_KEPT_S
from firstwrite.cache.circuit import OPENS_AFTER_FAILURES
from firstwrite.cache.spend import KEPT_S as SPEND_KEPT_S
from firstwrite.cache.spend import SpendGuard
from firstwrite.clock import Deadline, SystemClock
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from tests.support.cache import RATES, CacheFunction
from tests.support.clocks import FakeClock, Tally
from tests.support.engine import create_cache_table
from tests.support.faults import FaultyClient, lose_reply, throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.upstream import PaidApi


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_800_000_000_000 - 1_800_000_000_000 % 60_000)


@pytest.fixture
def table(engine: DynamoDBClient) -> str:
    return create_cache_table(engine)


@pytest.fixture
def make(engine: DynamoDBClient, table: str, paid_api: PaidApi, clock: FakeClock) -> Callable[[Any], CacheFunction]:
    return lambda source: CacheFunction(engine, table, clock, paid_api.url, source)


def ask(function: CacheFunction, number: int) -> Any:
    return function.get({"base": f"B{number}", "symbol": "USD"})


def test_the_minutes_budget_is_not_exceeded_and_comes_back_with_the_next(
    make: Callable[[Any], CacheFunction], paid_api: PaidApi, clock: FakeClock
) -> None:
    """With 3 calls a minute the fourth key is 503 until the minute is over."""
    function = make(replace(RATES, max_calls_per_minute=3))
    clock.advance(20_000)

    assert [ask(function, number).status for number in range(3)] == [200] * 3
    refused = ask(function, 3)
    assert (refused.status, refused.problem, refused.headers["retry-after"]) == (503, "spend-limit-reached", "40")
    assert ask(function, 0).status == 200
    assert len(paid_api.paths) == 3
    clock.advance(40_000)
    assert ask(function, 3).status == 200


def test_a_spent_budget_does_not_take_away_what_is_there(
    make: Callable[[Any], CacheFunction], paid_api: PaidApi, clock: FakeClock
) -> None:
    """A stale result is served where a new one may not be bought."""
    policy = replace(RATES.policy, fresh_ms=1_000, stale_ms=600_000)
    function = make(replace(RATES, max_calls_per_minute=1, policy=policy))
    ask(function, 0)
    clock.advance(2_000)

    assert ask(function, 0).headers["cache-status"] == "firstwrite; hit; ttl=-1; detail=stale"
    assert len(paid_api.paths) == 1


def test_racing_callers_do_not_exceed_the_budget(engine: DynamoDBClient, table: str) -> None:
    """64 threads ask for 300 calls with lost replies in between: never more than the 50 that are allowed."""
    clock, tally = SystemClock(), Tally()
    client: Any = FaultyClient(engine, often=(lose_reply, 0.1), only=("update_item",))
    guard = SpendGuard(Conditional(Dynamo(client, clock, tally), tally), FakeClock(), table)

    def take(_: int) -> bool:
        return guard.take("rates", 50, Deadline.after(clock, 30_000)) == 0

    with ThreadPoolExecutor(64) as pool:
        granted = sum(pool.map(take, range(300)))

    assert 25 < granted <= 50


def test_a_source_that_is_down_is_left_alone_and_tried_by_one(
    make: Callable[[Any], CacheFunction], paid_api: PaidApi, clock: FakeClock
) -> None:
    """After failures in a row no key calls; when the time is over one call tries; success closes the circuit."""
    source = replace(RATES, circuit_ms=10_000)
    function, other = make(source), make(source)
    paid_api.status = 503
    for number in range(OPENS_AFTER_FAILURES):
        ask(function, number)
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES

    refused = ask(other, 100)
    assert (refused.problem, refused.headers["retry-after"]) == ("upstream-failed", "10")
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES

    clock.advance(10_000)
    ask(other, 101)
    assert ask(function, 102).problem == "upstream-failed"
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES + 1

    clock.advance(10_000)
    paid_api.status = 200
    assert ask(function, 103).status == 200
    assert ask(other, 104).status == 200
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES + 3


def test_a_try_that_fails_leaves_the_source_alone_from_then_on(
    make: Callable[[Any], CacheFunction], paid_api: PaidApi, clock: FakeClock
) -> None:
    """The time runs from the failure, and not from when the try began."""
    function = make(replace(RATES, circuit_ms=10_000))
    paid_api.status = 503
    for number in range(OPENS_AFTER_FAILURES):
        ask(function, number)
    clock.advance(10_000)
    paid_api.meanwhile = lambda: clock.advance(500)
    ask(function, 100)

    clock.advance(9_999)
    ask(function, 101)
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES + 1
    clock.advance(1)
    ask(function, 102)
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES + 2


def test_a_loaded_table_changes_nothing_of_that(
    engine: DynamoDBClient, table: str, paid_api: PaidApi, clock: FakeClock
) -> None:
    """Where each call is throttled at first, circuit and budget are read and written within the request's time."""
    source = replace(RATES, circuit_ms=10_000, max_calls_per_minute=100)
    loaded: Any = {operation: [throttle, None] * 99 for operation in ("get_item", "put_item", "update_item")}
    function = CacheFunction(FaultyClient(engine, loaded), table, clock, paid_api.url, source)
    paid_api.status = 503
    told = [ask(function, number).status for number in range(OPENS_AFTER_FAILURES + 1)]
    for number, status in ((100, 503), (101, 200)):
        clock.advance(11_000)
        paid_api.status = status
        told.append(ask(function, number).status)

    assert told == [502] * (OPENS_AFTER_FAILURES + 2) + [200]
    assert len(paid_api.paths) == OPENS_AFTER_FAILURES + 2


def test_what_guards_the_money_is_kept_as_long_as_it_is_needed_and_counted(
    engine: DynamoDBClient, make: Callable[[Any], CacheFunction], table: str, paid_api: PaidApi, clock: FakeClock
) -> None:
    """TTL takes a budget, or an open circuit, only long after it is over; each write says what it is for."""
    function = make(replace(RATES, circuit_ms=10_000, max_calls_per_minute=100))
    paid_api.status = 503
    for number in range(OPENS_AFTER_FAILURES):
        ask(function, number)
    open_until, now_s = clock.now_ms() + 10_000, clock.now_ms() // 1000
    clock.advance(10_000)
    minute = now_s // 60

    def item(pk: str) -> Any:
        return engine.get_item(TableName=table, Key={"pk": {"S": pk}})["Item"]

    assert item(f"spend#rates#{minute}")["expires_at"] == {"N": str(now_s + SPEND_KEPT_S)}
    assert item("circuit#rates")["expires_at"] == {"N": str(open_until // 1000 + CIRCUIT_KEPT_S)}
    paid_api.status = 200
    assert ask(function, 100).status == 200
    made = {
        operation: function.tally.of("ConditionalWrites", table="cache", operation=operation, outcome="applied")
        for operation in ("spend", "open-circuit", "close-circuit")
    }
    assert made == {"spend": OPENS_AFTER_FAILURES + 1, "open-circuit": 2, "close-circuit": 1}


def test_failures_of_now_and_then_open_no_circuit(make: Callable[[Any], CacheFunction], paid_api: PaidApi) -> None:
    """Only failures in a row count."""
    function = make(replace(RATES, circuit_ms=10_000))
    for number in range(4 * OPENS_AFTER_FAILURES):
        paid_api.status = 200 if number % OPENS_AFTER_FAILURES == 0 else 503
        ask(function, number)

    assert len(paid_api.paths) == 4 * OPENS_AFTER_FAILURES
