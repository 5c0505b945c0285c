from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firstwrite.claim.model import MAX_STOCK
from firstwrite.claim.outcomes import Adjusted, Claimed, KeyReused, NotEnoughStock, SoldOut, TooMuch, UnknownItem
from firstwrite.conditional import Busy
from tests.support.clocks import FakeClock
from tests.support.faults import Fault, cancel, lose_reply, throttle
from tests.support.stock import Counter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def total(counter: Counter, item: str) -> int:
    """Return the item's total, which must be that of its shards."""
    stored = counter.store.total(item, counter.deadline())
    assert stored == sum(shard.total for shard in counter.shards(item))
    return stored


def test_units_are_added_once_for_each_key(counter: Counter, item: str) -> None:
    """A repeat adds nothing and says so; another key adds again."""
    counter.create(item, 10)

    outcomes = [counter.adjust(item, 5, "a"), counter.adjust(item, 5, "a"), counter.adjust(item, 7, "b")]

    assert outcomes == [Adjusted(), Adjusted(replayed=True), Adjusted()]
    assert (total(counter, item), counter.available(item)) == (22, 22)


def test_another_amount_under_a_used_key_is_refused(counter: Counter, item: str) -> None:
    """The key belongs to the amount it came with."""
    counter.create(item, 10)
    counter.adjust(item, 5, "a")

    assert counter.adjust(item, 6, "a") == KeyReused()
    assert counter.adjust(item, -5, "a") == KeyReused()
    assert isinstance(counter.adjust(item, 6, "a", caller="another"), Adjusted)
    assert total(counter, item) == 21


def test_restock_serves_who_was_turned_away(counter: Counter, item: str) -> None:
    """Sold out, restocked, sold: a shard that gained units is not proof of being sold out."""
    counter.create(item, 8, 4)
    counter.claim(item, "all", quantity=8)
    assert counter.claim(item, "k") == SoldOut()

    counter.adjust(item, 1, "more")

    assert isinstance(counter.claim(item, "k"), Claimed)
    assert counter.claim(item, "k2") == SoldOut()


def test_units_taken_back_come_from_as_many_shards_as_it_takes(counter: Counter, item: str) -> None:
    """Only unclaimed units can be taken back, down to none and never below."""
    counter.create(item, 20, 5)
    counter.claim(item, "k", quantity=3)

    assert counter.adjust(item, -18, "too many") == NotEnoughStock()
    assert counter.adjust(item, -17, "the rest") == Adjusted()
    assert counter.adjust(item, -1, "one more") == NotEnoughStock()
    assert counter.adjust(item, -17, "the rest") == Adjusted(replayed=True)
    assert (total(counter, item), counter.available(item)) == (3, 0)


def test_a_withdrawal_that_was_refused_may_succeed_later(counter: Counter, item: str) -> None:
    """A refusal stores nothing."""
    counter.create(item, 1)
    assert counter.adjust(item, -2, "k") == NotEnoughStock()
    counter.adjust(item, 1, "more")
    assert counter.adjust(item, -2, "k") == Adjusted()


def test_a_withdrawal_waits_for_no_sweep(counter: Counter, item: str) -> None:
    """Units of holds that are due can be taken back."""
    counter.create(item, 1, hold_seconds=60)
    counter.claim(item, "k")
    assert counter.adjust(item, -1, "a") == NotEnoughStock()
    counter.clock.advance(60_000)  # type: ignore[attr-defined]

    assert counter.adjust(item, -1, "a") == Adjusted()
    assert total(counter, item) == 0


def test_a_total_has_a_most(counter: Counter, item: str) -> None:
    """Up to a million million units and not one more."""
    counter.create(item, 1)
    assert counter.adjust(item, MAX_STOCK, "k") == TooMuch()
    assert counter.adjust(item, MAX_STOCK - 1, "k") == Adjusted()
    assert total(counter, item) == MAX_STOCK


def test_an_unknown_item_is_said_to_be_one(counter: Counter, item: str) -> None:
    """Nothing is restocked that was never created."""
    assert counter.adjust(item, 1, "k") == UnknownItem()


@pytest.mark.parametrize("add", [5, -5])
@pytest.mark.parametrize("lost", [1, 2])
def test_an_adjustment_whose_reply_was_lost_is_made_once(
    engine: DynamoDBClient, table: str, item: str, add: int, lost: int
) -> None:
    """The repeat finds its own record, and is no replay."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[lose_reply] * lost]})
    counter.create(item, 10)

    assert counter.adjust(item, add, "k") == Adjusted()
    assert total(counter, item) == 10 + add


@pytest.mark.parametrize("fault", [throttle, cancel("None", "TransactionConflict")])
def test_load_that_does_not_end_is_busy(engine: DynamoDBClient, table: str, item: str, fault: Fault) -> None:
    """Nothing was changed and nothing is said to have been."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[fault] * 9_999]})
    counter.create(item, 10)

    assert isinstance(counter.adjust(item, 5, "k"), Busy)
    assert total(counter, item) == 10


def test_a_restock_that_meets_claims_everywhere_asks_for_fewer_shards(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """Each conflict halves the number of shards it writes to, down to one that it can have."""
    counter = Counter(
        engine, table, FakeClock(), script={"transact_write_items": [None, *[cancel("TransactionConflict")] * 4]}
    )
    counter.create(item, 160, 16)

    assert counter.adjust(item, 16, "k") == Adjusted()
    assert sum(shard.total > 10 for shard in counter.shards(item)) == 1
