"""What mutants of `conditional` showed to be untested: which errors are no lost race, and what is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from firstwrite.clock import Deadline
from firstwrite.conditional import Applied, Busy, Conditional, Put, Update
from firstwrite.dynamodb import Dynamo, Table
from tests.interleave.engine import Engine
from tests.support.clocks import FakeClock, Tally
from tests.support.engine import create_cache_table
from tests.support.faults import FaultyClient, lose_request

if TYPE_CHECKING:
    from collections.abc import Callable


class Stand:
    """Conditional writes over an engine in memory."""

    def __init__(self, **script: Any) -> None:
        engine: Any = Engine()
        self.table = Table(create_cache_table(engine), "cache", ("pk",))
        self.clock = FakeClock()
        self.tally = Tally()
        client: Any = FaultyClient(engine, script=script)
        self.conditional = Conditional(Dynamo(client, self.clock, self.tally), self.tally)

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 0)

    def put(self, **attributes: Any) -> Put:
        return Put(self.table, {"pk": "a", **attributes}, "attribute_not_exists(pk)")


def test_a_write_that_is_refused_for_its_form_is_no_lost_race() -> None:
    """A validation error is an exception even where an item stands there that a rejection could show."""
    stand = Stand()
    stand.conditional.write(stand.put(word="x"), "put", stand.deadline())
    add = Update(
        stand.table, {"pk": "a"}, "SET word = word + :n, write_id = :write_id", "attribute_exists(pk)", values={":n": 1}
    )

    with pytest.raises(ClientError, match="incorrect data type"):
        stand.conditional.write(add, "add", stand.deadline())


def _without_item(call: Callable[[], Any]) -> Any:
    """Answer a failed condition as engines do that do not show the item."""
    try:
        return call()
    except ClientError as error:
        error.response.pop("Item", None)  # type: ignore[typeddict-item]
        raise


def test_a_rejection_whose_item_cannot_be_read_is_busy() -> None:
    """Whoever cannot learn to whom it lost does not know whether it lost."""
    stand = Stand(put_item=[None, _without_item], get_item=[lose_request])
    stand.conditional.write(stand.put(), "put", stand.deadline())

    assert stand.conditional.write(stand.put(), "put", stand.deadline()) == Busy("unreachable")


def test_a_transaction_that_is_refused_for_its_form_is_no_lost_race() -> None:
    """The same for transactions: DynamoDB's own error, not a cancelled transaction."""
    stand = Stand()

    with pytest.raises(ClientError, match="multiple operations on one item"):
        stand.conditional.transact([stand.put(), stand.put()], "claim", stand.deadline())


def _without_items(call: Callable[[], Any]) -> Any:
    """Answer a cancelled transaction without the items that stood in the way."""
    try:
        return call()
    except ClientError as error:
        for reason in error.response["CancellationReasons"]:
            reason.pop("Item", None)
        raise


def test_a_transaction_whose_rival_cannot_be_read_is_busy() -> None:
    """Whoever cannot learn what stood in the way does not know whether it was its own write."""
    stand = Stand(transact_write_items=[None, _without_items], get_item=[lose_request])
    stand.conditional.transact([stand.put()], "claim", stand.deadline())

    assert stand.conditional.transact([stand.put()], "claim", stand.deadline()) == Busy("unreachable")


def test_a_transaction_found_again_says_so() -> None:
    """A transaction that had taken effect before is applied, marked as recovered, for what was sent last may differ."""
    stand = Stand()
    first, again = (
        stand.conditional.transact([stand.put(n=n)], "claim", stand.deadline(), write_id="w") for n in (1, 2)
    )

    assert first == Applied()
    assert isinstance(again, Applied)
    assert again.recovered
    assert again.current[0] == {"pk": "a", "n": 1, "write_id": "w"}


def test_transactions_are_counted_by_outcome() -> None:
    """The share of failed transactions has its denominator."""
    stand = Stand()
    for _ in range(2):
        stand.conditional.transact([stand.put()], "claim", stand.deadline())

    counted = [stand.tally.of("ConditionalWrites", operation="claim", outcome=name) for name in ("applied", "rejected")]
    assert counted == [1, 1]
