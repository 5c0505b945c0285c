from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.claim.audit import plan
from firstwrite.claim.outcomes import Claimed, SoldOut
from firstwrite.claim.records import claim_key, meta_key, shard_key
from firstwrite.dynamodb import to_wire

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.stock import Counter


@pytest.fixture
def sold(counter: Counter, item: str) -> str:
    """An item with claims in every state."""
    counter.create(item, 40, 4, hold_seconds=60, limit_per_claimant=20)
    ids = {name: counter.claim(item, name, quantity=2).claim.claim_id for name in ("held", "kept", "back", "due")}
    counter.confirm(ids["kept"])
    counter.release(ids["back"])
    return item


def tamper(engine: DynamoDBClient, counter: Counter, key: dict[str, str], update: str, **values: Any) -> None:
    """Write past the protocols, as only a person with a console would."""
    arguments: dict[str, Any] = {
        "TableName": counter.table,
        "Key": to_wire(key),
        "UpdateExpression": update,
        "ExpressionAttributeNames": {"#total": "total"} if "#total" in update else None,
        "ExpressionAttributeValues": to_wire({f":{name}": value for name, value in values.items()}),
    }
    engine.update_item(**{name: value for name, value in arguments.items() if value})


def test_what_the_protocols_did_is_balanced(counter: Counter, sold: str) -> None:
    """Claims in every state add up to what the shards say."""
    report = counter.audit(sold)

    assert (report.outcome, report.differences, report.unsure, report.total) == ("balanced", [], [], None)
    assert (report.tally.held.total(), report.tally.claimed.total()) == (4, 2)
    assert report.tally.claims == {"held": 2, "claimed": 1, "released": 1}
    assert (counter.tally.of("AuditMismatches"), counter.tally.of("AuditsInconclusive")) == (0, 0)


@pytest.mark.parametrize(
    ("update", "values"),
    [
        ("SET available = available + :n", {"n": 3}),
        ("SET available = available - :n", {"n": 3}),
        ("SET claimed = claimed + :n, available = available - :n", {"n": 1}),
        ("SET held = :n", {"n": 9}),
        ("SET #total = :n", {"n": 1_000}),
    ],
)
def test_a_shard_that_was_tampered_with_is_found_and_repaired_on_request(
    engine: DynamoDBClient, counter: Counter, sold: str, update: str, values: dict[str, int]
) -> None:
    """The report names the shard and the repair; nothing changes until it is asked for; then all is balanced."""
    tamper(engine, counter, shard_key(sold, 2), update, **values)
    before = counter.shards(sold)

    report = counter.audit(sold)
    assert report.outcome == "mismatch"
    assert counter.tally.of("AuditMismatches") == 1
    assert plan(report)
    assert sorted(counter.shards(sold), key=lambda shard: shard.number) == sorted(before, key=lambda s: s.number)

    assert counter.audit(sold, repair=True).repaired
    assert counter.audit(sold).outcome == "balanced"
    counter.available(sold)


def test_oversold_stock_is_shown_as_a_larger_total(engine: DynamoDBClient, counter: Counter, item: str) -> None:
    """Claims are promises: a repair never takes them back, so the total tells how many there are."""
    counter.create(item, 2, 1)
    counter.claim(item, "a", quantity=2)
    tamper(engine, counter, shard_key(item, 0), "SET available = :n", n=5)
    counter.claim(item, "b", quantity=5)

    report = counter.audit(item, repair=True)

    assert plan(report)[-1] == {"total": {"from": 2, "to": 7}}
    assert counter.audit(item).outcome == "balanced"
    assert (counter.store.total(item, counter.deadline()), counter.available(item)) == (7, 0)


def test_a_total_that_was_tampered_with_is_found_and_repaired(
    engine: DynamoDBClient, counter: Counter, sold: str
) -> None:
    """The item's total is what its shards add up to."""
    tamper(engine, counter, meta_key(sold), "SET #total = :n", n=7)

    report = counter.audit(sold, repair=True)

    assert (report.outcome, report.total, report.repaired) == ("mismatch", (7, 40), True)
    assert counter.audit(sold).outcome == "balanced"


def test_a_claim_at_fault_is_named_and_stops_every_repair(engine: DynamoDBClient, counter: Counter, sold: str) -> None:
    """A claim that cannot be read may own units, so nothing is given away on its account."""
    claim_id = counter.claim(sold, "broken").claim.claim_id
    tamper(engine, counter, claim_key(claim_id), "SET quantity = :n", n="one")

    report = counter.audit(sold, repair=True)

    assert (report.outcome, report.repaired, plan(report)) == ("mismatch", False, [])
    assert report.tally.at_fault == [claim_key(claim_id)["sk"]]


def test_an_item_that_is_being_sold_raises_no_false_alarm(counter: Counter, item: str) -> None:
    """Claims that come while others are counted make a shard inconclusive, never wrong."""
    counter.create(item, 100, 1)
    recount = counter.protocols.audit._recount
    sales = iter(range(100))

    def sell_while_counting(*arguments: Any) -> Any:
        counter.claim(item, f"before-{next(sales)}")
        tally = recount(*arguments)
        counter.claim(item, f"after-{next(sales)}")
        return tally

    counter.protocols.audit._recount = sell_while_counting  # type: ignore[method-assign, assignment]
    report = counter.audit(item)

    assert (report.outcome, report.unsure) == ("inconclusive", [0])
    assert counter.tally.of("AuditsInconclusive") == 1


def test_a_shard_that_stands_still_once_is_enough(counter: Counter, item: str) -> None:
    """Only what changed is counted again, a bounded number of times."""
    counter.create(item, 100, 4)
    recount = counter.protocols.audit._recount
    sales = iter(range(2))

    def sell_at_first(*arguments: Any) -> Any:
        for sale in sales:
            counter.claim(item, f"k-{sale}")
        return recount(*arguments)

    counter.protocols.audit._recount = sell_at_first  # type: ignore[method-assign, assignment]
    assert counter.audit(item).outcome == "balanced"


def test_a_repair_does_not_overwrite_a_sale(engine: DynamoDBClient, counter: Counter, item: str) -> None:
    """A shard that was sold from after it was counted is not set to what was counted."""
    counter.create(item, 10, 1)
    tamper(engine, counter, shard_key(item, 0), "SET available = :n", n=8)
    repair = counter.store.repair

    def sell_first(*arguments: Any) -> Any:
        assert isinstance(counter.claim(item, "k"), Claimed)
        return repair(*arguments)

    counter.store.repair = sell_first  # type: ignore[method-assign, assignment]
    assert not counter.audit(item, repair=True).repaired
    counter.store.repair = repair  # type: ignore[method-assign]
    assert counter.audit(item, repair=True).repaired
    assert counter.available(item) == 9


def test_a_repair_that_brings_units_back_is_no_proof_of_being_sold_out(
    engine: DynamoDBClient, counter: Counter, item: str
) -> None:
    """Who looked before the repair learns that the shard has taken something back."""
    counter.create(item, 8, 4)
    counter.claim(item, "all", quantity=8)
    counter.claim(item, "k")
    tamper(engine, counter, shard_key(item, 0), "SET #total = :n", n=3)
    counter.audit(item, repair=True)
    assert isinstance(counter.claim(item, "k"), Claimed)
    assert counter.claim(item, "k2") == SoldOut()


def test_all_items_are_audited_a_part_at_a_time(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are cut short go on where the last one stopped, until every item had its turn."""
    names = {f"item-{n}" for n in range(25)}
    for name in names:
        counter.create(name, 1)
    audited: list[str] = []
    run = counter.protocols.audit.run

    def run_for_ten_seconds(settings: Any, deadline: Any) -> Any:
        audited.append(settings.item)
        counter.clock.advance(10_000)  # type: ignore[attr-defined]
        return run(settings, deadline)

    monkeypatch.setattr(counter.protocols.audit, "run", run_for_ten_seconds)
    counts = [counter.protocols.audit_of_all.run(counter.deadline(100_000)) for _ in range(3)]

    assert counts == [10, 10, 10]
    assert set(audited) == names
    assert len(audited[:25]) == len(set(audited[:25]))


def test_the_scheduled_audit_counts_what_it_finds(engine: DynamoDBClient, counter: Counter, sold: str) -> None:
    """A mismatch is counted, an item that cannot be read too, and none is a zero."""
    counter.protocols.audit_of_all.run(counter.deadline())
    assert counter.tally.counts["AuditMismatches", ()] == 0

    tamper(engine, counter, shard_key(sold, 0), "SET held = :n", n=9)
    counter.create("broken", 1)
    tamper(engine, counter, shard_key("broken", 0), "SET available = :n", n="one")
    assert counter.protocols.audit_of_all.run(counter.deadline()) == 2

    assert counter.tally.of("AuditMismatches") == 2
    assert counter.tally.of("Faults") == 1
