from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from firstwrite.cache.record import Flight
from firstwrite.clock import SystemClock
from tests.support.cache import CacheFunction, with_policy
from tests.support.engine import create_cache_table
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.http import Reply
    from tests.support.upstream import PaidApi

CALLERS = 20


@pytest.fixture(scope="module")
def table(engine: DynamoDBClient) -> str:
    return create_cache_table(engine)


@pytest.fixture
def paid_api() -> Iterator[PaidApi]:
    with running_paid_api() as api:
        api.takes_s = 0.3
        yield api


def race(
    engine: DynamoDBClient,
    table: str,
    paid_api: PaidApi,
    source: Any,
    prepare: Callable[[CacheFunction], None] = lambda _: None,
) -> list[tuple[Reply, float]]:
    """Let 20 execution environments ask for one key at once; return each reply and how long it took, in seconds."""
    query = {"base": uuid4().hex, "symbol": "USD"}
    start = threading.Barrier(CALLERS)

    def call(_: int) -> tuple[Reply, float]:
        function = CacheFunction(engine, table, SystemClock(), paid_api.url, source)
        prepare(function)
        start.wait()
        began = time.monotonic()
        return function.get(query), time.monotonic() - began

    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(call, range(CALLERS)))


def check_one_paid_call(replies: list[Reply], paid_api: PaidApi) -> None:
    """One call, 20 equal answers, 19 of them marked collapsed."""
    assert len(paid_api.paths) == 1
    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1
    statuses = sorted(reply.headers["cache-status"] for reply in replies)
    assert statuses == ["firstwrite; fwd=miss; collapsed"] * (CALLERS - 1) + ["firstwrite; fwd=miss; stored"]


def test_twenty_callers_of_one_key_cost_one_paid_call(engine: DynamoDBClient, table: str, paid_api: PaidApi) -> None:
    """20 environments miss at once: 1 upstream call, 20 equal bodies."""
    replies = race(engine, table, paid_api, with_policy())

    check_one_paid_call([reply for reply, _ in replies], paid_api)


def test_a_read_then_write_twin_is_caught_by_the_same_check(
    engine: DynamoDBClient, table: str, paid_api: PaidApi
) -> None:
    """The check can fail: an acquire that trusts what it read pays more than once."""

    def break_it(function: CacheFunction) -> None:
        def acquire_without_condition(key: str, owner: str, policy: Any, *_: Any, **__: Any) -> Flight:
            now = function.clock.now_ms()
            return Flight(key, owner, 1, now + policy.lease_ms, owner, 0)

        function.api.store.acquire = acquire_without_condition  # type: ignore[method-assign]

    replies = [reply for reply, _ in race(engine, table, paid_api, with_policy(), break_it)]

    with pytest.raises(AssertionError):
        check_one_paid_call(replies, paid_api)
    assert len(paid_api.paths) > 1


def test_callers_whose_wait_ends_are_told_so_and_the_value_comes_later(
    engine: DynamoDBClient, table: str, paid_api: PaidApi
) -> None:
    """Upstream slower than the wait: 19 get 503 with Retry-After in time, the winner its value, still one call."""
    paid_api.takes_s = 1.5
    source = with_policy(timeout_ms=5_000, lease_ms=8_000, wait_ms=500)

    replies = race(engine, table, paid_api, source)

    waited = [(reply, took) for reply, took in replies if reply.status == 503]
    assert len(waited) == CALLERS - 1
    assert {reply.problem for reply, _ in waited} == {"fetch-in-progress"}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply, _ in waited)
    assert max(took for _, took in waited) < 1.5
    assert [reply.status for reply, _ in replies if reply.status != 503] == [200]
    assert len(paid_api.paths) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_twenty_callers_of_a_failing_upstream_cost_at_most_two_calls(
    engine: DynamoDBClient, table: str, paid_api: PaidApi, status: int
) -> None:
    """The winner's failure is everybody's answer; nobody queues up to fail in turn."""
    paid_api.status, paid_api.takes_s = status, 0.1

    replies = [reply for reply, _ in race(engine, table, paid_api, with_policy())]

    assert {reply.problem for reply in replies} == {"upstream-failed"}
    assert len(paid_api.paths) <= 2


def test_twenty_callers_of_a_hanging_upstream_cost_at_most_two_calls(
    engine: DynamoDBClient, table: str, paid_api: PaidApi
) -> None:
    """A hang ends at the timeout for all, within the wait."""
    paid_api.takes_s = 2.0

    replies = race(engine, table, paid_api, with_policy(timeout_ms=400))

    assert {reply.problem for reply, _ in replies} == {"upstream-timeout"}
    assert max(took for _, took in replies) < 3.0
    assert len(paid_api.paths) <= 2
