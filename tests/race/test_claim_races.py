from __future__ import annotations

import threading
from collections import Counter as Tallied
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from firstwrite.claim.outcomes import Claimed, Replayed, SoldOut
from firstwrite.clock import SystemClock
from firstwrite.conditional import Busy
from tests.support.engine import create_stock_table
from tests.support.faults import cancel, lose_reply, throttle
from tests.support.stock import Counter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MACHINES = 32


@pytest.fixture(scope="module")
def table(engine: DynamoDBClient) -> str:
    return create_stock_table(engine)


@pytest.fixture
def item() -> str:
    return f"item-{uuid4().hex}"


def machines(engine: DynamoDBClient, table: str, **faults: Any) -> list[Counter]:
    return [Counter(engine, table, SystemClock(), seed, **faults) for seed in range(MACHINES)]


def race(counters: list[Counter], item: str, keys: list[str]) -> list[Any]:
    """Let all machines claim at once, one claim a key; return the outcomes in the keys' order."""

    def claim(numbered: tuple[int, str]) -> Any:
        number, key = numbered
        return counters[number % len(counters)].claim(item, key)

    with ThreadPoolExecutor(MACHINES) as pool:
        return list(pool.map(claim, enumerate(keys)))


def check_exact(outcomes: list[Any], counter: Counter, item: str, stock: int) -> None:
    """As many claims as stock, the rest sold out, nothing left, nothing below zero."""
    kinds = Tallied(type(outcome) for outcome in outcomes)
    assert kinds == {Claimed: stock, SoldOut: len(outcomes) - stock}
    assert len({outcome.claim.claim_id for outcome in outcomes if isinstance(outcome, Claimed)}) == stock
    assert counter.available(item) == 0


@pytest.mark.parametrize(("stock", "claims", "shards"), [(100, 1_000, 16), (100, 300, 1), (1, 2, 1)])
def test_as_many_succeed_as_there_is_stock(
    engine: DynamoDBClient, table: str, item: str, *, stock: int, claims: int, shards: int
) -> None:
    """Stock 100 and 1,000 claims at once: exactly 100 succeed, on one shard and on many; so for the last unit."""
    counters = machines(engine, table)
    counters[0].create(item, stock, shards)

    outcomes = race(counters, item, [f"key-{n}" for n in range(claims)])

    check_exact(outcomes, counters[0], item, stock)


def test_a_read_then_write_twin_oversells_and_is_caught_by_the_same_check(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """The check can fail: two machines that read before either writes both sell the last unit."""
    counters = machines(engine, table)[:2]
    counters[0].create(item, 1)
    both_have_read = threading.Barrier(2)

    def naive(counter: Counter) -> Any:
        grant = counter.store._conditional.transact

        def without_condition(writes: Any, operation: str, deadline: Any, **options: Any) -> Any:
            both_have_read.wait(timeout=10)
            put, take = writes
            counter.store._dynamo.call(
                "update_item",
                deadline,
                TableName=take.table.name,
                Key={name: {"S": value} for name, value in take.key.items()},
                UpdateExpression="SET available = :left",
                ExpressionAttributeValues={":left": {"N": "0"}},
            )
            return grant([put], operation, deadline, **options)

        return without_condition

    for counter in counters:
        counter.store._conditional.transact = naive(counter)  # type: ignore[method-assign]
    outcomes = race(counters, item, ["a", "b"])

    assert [type(outcome) for outcome in outcomes] == [Claimed, Claimed]
    with pytest.raises(AssertionError):
        check_exact(outcomes, counters[0], item, 1)


def test_repeats_at_once_are_one_claim_each(engine: DynamoDBClient, table: str, item: str) -> None:
    """Fifty requests, each sent four times at once: fifty claims, each granted once and replayed thrice."""
    counters = machines(engine, table)
    counters[0].create(item, 100)
    keys = [f"key-{n}" for n in range(50)] * 4

    outcomes = race(counters, item, keys)

    claims = {outcome.claim.claim_id for outcome in outcomes}
    assert len(claims) == 50
    assert Tallied(type(outcome) for outcome in outcomes) == {Claimed: 50, Replayed: 150}
    assert counters[0].available(item) == 50


@pytest.mark.parametrize(
    ("fault", "share"),
    [(cancel("TransactionConflict", "None"), 0.3), (throttle, 0.5), (lose_reply, 0.3)],
    ids=["conflict", "throttle", "lost reply"],
)
def test_stock_is_exact_under_faults(engine: DynamoDBClient, table: str, item: str, fault: Any, share: float) -> None:
    """200 claims on stock 50 with faults in many calls: exactly 50 units go, nobody gets a wrong answer."""
    Counter(engine, table, SystemClock()).create(item, 50)
    counters = machines(engine, table, often=(fault, share), only=("transact_write_items",))

    outcomes = race(counters, item, [f"key-{n}" for n in range(200)])

    kinds = Tallied(type(outcome) for outcome in outcomes)
    assert set(kinds) <= {Claimed, SoldOut, Busy}
    assert kinds[Claimed] == 50
    assert Counter(engine, table, SystemClock()).available(item) == 0


def test_a_limit_holds_when_one_claimant_asks_from_everywhere(engine: DynamoDBClient, table: str, item: str) -> None:
    """Sixty requests of one claimant at once, limit 5: exactly 5 units."""
    counters = machines(engine, table)
    counters[0].create(item, 100, limit_per_claimant=5)

    outcomes = race(counters, item, [f"key-{n}" for n in range(60)])

    assert sum(isinstance(outcome, Claimed) for outcome in outcomes) == 5
    assert counters[0].available(item) == 95
