from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from firstwrite.claim.expiry import SEARCH_AGAIN_MS
from firstwrite.claim.model import ClaimRequest, ClaimState, ItemSettings
from firstwrite.claim.outcomes import Claimed, LimitReached, Refused, Settled, SoldOut, UnknownClaim
from firstwrite.claim.records import all_due_partitions, claim_key, claim_record, due_partitions
from firstwrite.claim.rules import new_claim
from firstwrite.claim.store import Overtaken
from firstwrite.conditional import Applied, Busy
from firstwrite.errors import DataFaultError
from tests.support.clocks import FakeClock
from tests.support.faults import cancel, lose_reply, throttle
from tests.support.stock import Counter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HOLD_S = 60


def held(counter: Counter, item: str, stock: int = 10, shards: int | None = None, **settings: Any) -> str:
    """Create an item with holds and return the id of a held claim on it."""
    counter.create(item, stock, shards, hold_seconds=HOLD_S, **settings)
    outcome = counter.claim(item, "k")
    assert isinstance(outcome, Claimed)
    return outcome.claim.claim_id


def counts(counter: Counter, item: str) -> tuple[int, int, int]:
    """Return what is available, held and claimed, each shard balanced."""
    available = counter.available(item)
    shards = counter.shards(item)
    return available, sum(shard.held for shard in shards), sum(shard.claimed for shard in shards)


def pass_deadline(counter: Counter) -> None:
    counter.clock.advance(HOLD_S * 1000)  # type: ignore[attr-defined]


def test_a_confirmed_claim_is_claimed_however_often_it_is_confirmed(counter: Counter, item: str) -> None:
    """Confirming moves the units once; a repeat is answered the same."""
    claim_id = held(counter, item)

    outcomes = [counter.confirm(claim_id) for _ in range(3)]

    assert [type(outcome) for outcome in outcomes] == [Settled] * 3
    assert {outcome.claim.state for outcome in outcomes} == {ClaimState.CLAIMED}
    assert counts(counter, item) == (9, 0, 1)


@pytest.mark.parametrize(("verb", "wanted"), [("confirm", "claimed"), ("release", "released")])
def test_a_settlement_is_one_read_and_one_write_and_is_counted(
    counter: Counter, item: str, verb: str, wanted: str
) -> None:
    """What was settled is answered by the write, and counted as what was wanted and what came of it."""
    claim_id = held(counter, item)
    counter.client.calls.clear()

    assert isinstance(getattr(counter, verb)(claim_id), Settled)
    getattr(counter, verb)("nobody's")

    assert counter.client.calls == ["get_item", "transact_write_items"]
    for outcome in ("settled", "unknown-claim"):
        assert counter.tally.of("Settlements", wanted=wanted, outcome=outcome) == 1


@pytest.mark.parametrize("throttled", [1, 2])
def test_a_settlement_that_meets_load_at_first_is_settled_in_the_end(
    engine: DynamoDBClient, table: str, item: str, throttled: int
) -> None:
    """Reading the claim and its item is tried again within the deadline."""
    claim_id = held(Counter(engine, table, FakeClock()), item)
    script = {"get_item": [*[None] * (throttled - 1), throttle]}

    assert isinstance(Counter(engine, table, FakeClock(), script=script).confirm(claim_id), Settled)


def test_a_released_claim_gives_its_units_back_once(counter: Counter, item: str) -> None:
    """Releasing twice returns one unit."""
    claim_id = held(counter, item)

    assert [type(counter.release(claim_id)) for _ in range(3)] == [Settled] * 3
    assert counts(counter, item) == (10, 0, 0)
    assert isinstance(counter.confirm(claim_id), Refused)


def test_a_confirmed_claim_cannot_be_released(counter: Counter, item: str) -> None:
    """What was confirmed, or was claimed at once, is final."""
    claim_id = held(counter, item)
    counter.confirm(claim_id)
    counter.create(f"{item}-2", 1)
    at_once = counter.claim(f"{item}-2", "k").claim.claim_id

    for final in (claim_id, at_once):
        outcome = counter.release(final)
        assert isinstance(outcome, Refused)
        assert outcome.claim.state is ClaimState.CLAIMED
    assert counts(counter, item) == (9, 0, 1)
    assert isinstance(counter.confirm(at_once), Settled)


def test_the_deadline_is_logical_time(counter: Counter, item: str) -> None:
    """A hold can be confirmed up to the last millisecond and not at its deadline, whether anything swept it or not."""
    claim_id = held(counter, item)
    counter.clock.advance(HOLD_S * 1000 - 1)  # type: ignore[attr-defined]
    assert isinstance(counter.confirm(claim_id), Settled)

    late = counter.claim(item, "late").claim.claim_id
    pass_deadline(counter)
    outcome = counter.confirm(late)

    assert isinstance(outcome, Refused)
    assert outcome.claim.state is ClaimState.EXPIRED
    assert counter.state(late) is ClaimState.EXPIRED, "a late confirmation brings the units back by itself"
    assert counts(counter, item) == (9, 0, 1)


def test_a_hold_past_its_deadline_can_still_be_given_back(counter: Counter, item: str) -> None:
    """Releasing late does what the schedule would have done, and the units come back once."""
    claim_id = held(counter, item)
    pass_deadline(counter)

    assert isinstance(counter.release(claim_id), Settled)
    counter.expire()
    assert counter.state(claim_id) is ClaimState.RELEASED
    assert counts(counter, item) == (10, 0, 0)


def test_the_schedule_expires_what_is_due_and_nothing_else(counter: Counter, item: str) -> None:
    """Due holds of every item expire once; holds in time, confirmed and released ones stay as they are."""
    ids = {"confirmed": held(counter, item, 40), "other item": held(counter, f"{item}-2")}
    ids |= {name: counter.claim(item, name).claim.claim_id for name in ("due", "also due", "released")}
    counter.confirm(ids["confirmed"])
    counter.release(ids["released"])
    counter.clock.advance(1)  # type: ignore[attr-defined]
    ids["in time"] = counter.claim(item, "in time").claim.claim_id
    counter.clock.advance(HOLD_S * 1000 - 1)  # type: ignore[attr-defined]

    assert counter.expire()
    assert counter.expire()

    assert {name: counter.state(claim_id).value for name, claim_id in ids.items()} == {
        "confirmed": "claimed",
        "other item": "expired",
        "due": "expired",
        "also due": "expired",
        "released": "released",
        "in time": "held",
    }
    assert counts(counter, item) == (38, 1, 1)
    assert counter.tally.of("HoldsExpired") == 3
    assert counter.tally.of("OldestDueHoldSeconds") == 0


def test_the_schedule_says_how_long_the_oldest_hold_was_due(counter: Counter, item: str) -> None:
    """So that an alarm tells a schedule that lags; nothing due is a zero."""
    held(counter, item)
    counter.clock.advance(HOLD_S * 1000 + 90_500)  # type: ignore[attr-defined]

    counter.expire()
    assert counter.tally.of("OldestDueHoldSeconds") == 90
    counter.expire()
    assert counter.tally.of("OldestDueHoldSeconds") == 90


def test_many_due_holds_expire_in_few_transactions(counter: Counter, item: str) -> None:
    """150 holds of one item are brought back by a handful of writes, and the index ends empty of them."""
    held(counter, item, 150, 2)
    for n in range(149):
        counter.claim(item, f"k{n}")
    pass_deadline(counter)
    counter.client.calls.clear()

    counter.expire()

    assert counts(counter, item) == (150, 0, 0)
    assert counter.client.calls.count("transact_write_items") <= 8
    for partition in due_partitions(item):
        page, _ = counter.protocols.lists.holds(partition, None, counter.deadline())
        assert [entry for entry in page if item in entry["pk"]] == []


def test_what_a_sweep_meets_half_way_drops_out_and_the_rest_expires(counter: Counter, item: str) -> None:
    """One claim released between the sweep's read and its write does not keep the others from expiring."""
    first = held(counter, item, 10, 1)
    others = [counter.claim(item, f"k{n}").claim.claim_id for n in range(3)]
    pass_deadline(counter)
    read = counter.store.claims

    def read_then_lose(keys: Any, deadline: Any) -> Any:
        found = read(keys, deadline)
        counter.store.claims = read  # type: ignore[method-assign]
        counter.release(first)
        return found

    counter.store.claims = read_then_lose  # type: ignore[method-assign]
    counter.expire()

    assert counter.state(first) is ClaimState.RELEASED
    assert {counter.state(claim_id) for claim_id in others} == {ClaimState.EXPIRED}
    assert counts(counter, item) == (10, 0, 0)


@pytest.mark.parametrize(
    ("update", "value"), [("SET taken = :v", {"M": {"0": {"N": "99"}}}), ("SET quantity = :v", {"S": "one"})]
)
def test_a_hold_that_cannot_expire_is_a_fault_and_does_not_hold_up_the_others(
    engine: DynamoDBClient, counter: Counter, item: str, update: str, value: Any
) -> None:
    """A claim that was tampered with is counted as a fault; the others' units come back, though in one transaction."""
    bad = held(counter, item, 20, 1)
    others = [counter.claim(item, f"k{n}").claim.claim_id for n in range(12)]
    key = {name: {"S": text} for name, text in claim_key(bad).items()}
    engine.update_item(
        TableName=counter.table, Key=key, UpdateExpression=update, ExpressionAttributeValues={":v": value}
    )
    pass_deadline(counter)

    counter.protocols.expiry.expire_item(counter.settings(item), counter.deadline())

    assert {counter.state(claim_id) for claim_id in others} == {ClaimState.EXPIRED}
    assert counter.tally.of("Faults") == 1
    with pytest.raises(DataFaultError):
        counter.release(bad)


def test_nobody_is_turned_away_for_a_hold_that_is_due(counter: Counter, item: str) -> None:
    """A sold-out item first brings back what is due, so the next caller is served at once."""
    held(counter, item, 2, 1)
    counter.claim(item, "other")
    assert counter.claim(item, "too early") == SoldOut()
    pass_deadline(counter)

    assert isinstance(counter.claim(item, "later"), Claimed)
    assert counts(counter, item) == (1, 1, 0)


@pytest.mark.parametrize(("busy_for", "expected"), [(3, Claimed), (9_999, Busy)])
def test_a_due_hold_that_meets_load_is_brought_back_when_it_can_be(
    counter: Counter, item: str, busy_for: int, expected: type
) -> None:
    """Until then nobody is told sold out; after the deadline, come again."""
    held(counter, item, 1)
    pass_deadline(counter)
    expire_item, load = counter.protocols.expiry.expire_item, [Busy("throttled")] * busy_for

    def loaded(*given: Any) -> Any:
        return load.pop() if load else expire_item(*given)

    with patch.object(counter.protocols.expiry, "expire_item", side_effect=loaded):
        assert isinstance(counter.claim(item, "later"), expected)


def test_no_claimant_is_at_the_limit_for_a_hold_that_is_due(counter: Counter, item: str) -> None:
    """A hold that ran out does not count against its claimant, swept or not."""
    held(counter, item, limit_per_claimant=1)
    assert counter.claim(item, "k2") == LimitReached(1)
    pass_deadline(counter)

    assert isinstance(counter.claim(item, "k2"), Claimed)


def test_a_storm_of_sold_out_answers_looks_for_due_holds_once(counter: Counter, item: str) -> None:
    """One search tells until when nothing comes due; until then a sold-out answer is one read and no write."""
    held(counter, item, 1)
    assert counter.claim(item, "first") == SoldOut()
    counter.client.calls.clear()

    for n in range(50):
        counter.clock.advance(SEARCH_AGAIN_MS)  # type: ignore[attr-defined]
        assert counter.claim(item, f"k{n}") == SoldOut()

    assert counter.client.calls == ["batch_get_item"] * 50


def test_an_item_without_holds_is_never_searched_for_due_ones(counter: Counter, item: str) -> None:
    """No index query where nothing can come due."""
    counter.create(item, 1)
    counter.claim(item, "k")
    counter.client.calls.clear()
    counter.claim(item, "k2")
    assert "query" not in counter.client.calls


def test_every_partition_of_the_index_is_swept() -> None:
    """Whatever its item and id, a hold is indexed where its item and the schedule look for it."""
    everywhere = set()
    for number in range(2_000):
        request = ClaimRequest("a", "a", f"item-{number % 50}", 1, f"k{number}")
        settings = ItemSettings(request.item, 1, 1, hold_seconds=60)
        partition = claim_record(new_claim(request, settings, {0: 1}, 0))["due_bucket"]
        assert partition in due_partitions(request.item)
        everywhere.add(partition)
    assert everywhere <= set(all_due_partitions())
    assert len(everywhere) > 40


def test_a_limit_is_given_back_with_the_units(counter: Counter, item: str) -> None:
    """Release and expiry count down what the claimant has; confirming does not."""
    claim_id = held(counter, item, limit_per_claimant=2)
    second = counter.claim(item, "k2").claim.claim_id
    assert counter.claim(item, "k3") == LimitReached(2)

    counter.confirm(claim_id)
    assert counter.claim(item, "k3") == LimitReached(2)
    counter.release(second)
    assert isinstance(counter.claim(item, "k4"), Claimed)
    pass_deadline(counter)
    counter.expire()
    assert isinstance(counter.claim(item, "k5"), Claimed)
    assert counter.claim(item, "k6") == LimitReached(2)


@pytest.mark.parametrize("verb", ["confirm", "release"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_settlement_whose_reply_was_lost_happens_once(
    engine: DynamoDBClient, table: str, item: str, verb: str, lost: int
) -> None:
    """The repeat finds its own write; units move once."""
    faults = [None, None, *[lose_reply] * lost]
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": faults})
    claim_id = held(counter, item)

    assert isinstance(getattr(counter, verb)(claim_id), Settled)
    assert counts(counter, item) == ((9, 0, 1) if verb == "confirm" else (10, 0, 0))


def test_a_settlement_that_meets_conflicts_to_the_end_is_busy(engine: DynamoDBClient, table: str, item: str) -> None:
    """Conflicts never look like an answer; afterwards the claim is as it was."""
    conflicts = [None, None, *[cancel("TransactionConflict", "None")] * 9_999]
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": conflicts})
    claim_id = held(counter, item)

    assert isinstance(counter.confirm(claim_id), Busy)
    assert counter.state(claim_id) is ClaimState.HELD


def test_units_go_back_to_the_shards_they_came_from(counter: Counter, item: str) -> None:
    """A quantity gathered from several shards goes back in the same parts."""
    counter.create(item, 8, 4, hold_seconds=HOLD_S)
    claim = counter.claim(item, "k", quantity=7).claim

    counter.release(claim.claim_id)

    assert [(shard.available, shard.held) for shard in counter.shards(item)] == [(2, 0)] * 4


@pytest.mark.parametrize("claim_id", ["nonsense", f"{'0' * 40}.nothing"])
def test_an_unknown_claim_and_anothers_claim_look_the_same(counter: Counter, item: str, claim_id: str) -> None:
    """Who does not own it learns nothing and changes nothing."""
    mine = held(counter, item)

    for verb in (counter.confirm, counter.release):
        assert verb(mine, caller="bob") == UnknownClaim()
        assert verb(claim_id) == UnknownClaim()
    assert counter.state(mine) is ClaimState.HELD


def test_a_unit_that_came_back_is_no_proof_of_being_sold_out(counter: Counter, item: str) -> None:
    """Who looked before a release, and again after it, sees the unit and gets it; so after an expiry."""
    counter.create(item, 8, 4, hold_seconds=HOLD_S)
    claims = [counter.claim(item, f"k{n}").claim.claim_id for n in range(8)]
    assert counter.claim(item, "late") == SoldOut()

    counter.release(claims[0])
    assert isinstance(counter.claim(item, "late"), Claimed)
    assert counter.claim(item, "later") == SoldOut()

    pass_deadline(counter)
    counter.expire()
    assert isinstance(counter.claim(item, "later"), Claimed)


@pytest.mark.parametrize(
    ("to", "passed_ms", "moves"),
    [
        (ClaimState.CLAIMED, HOLD_S * 1000 - 1, True),
        (ClaimState.CLAIMED, HOLD_S * 1000, False),
        (ClaimState.EXPIRED, HOLD_S * 1000 - 1, False),
        (ClaimState.EXPIRED, HOLD_S * 1000, True),
    ],
)
def test_the_deadline_is_in_the_write_itself(
    counter: Counter, item: str, to: ClaimState, passed_ms: int, *, moves: bool
) -> None:
    """At every instant a hold can be confirmed or can expire, never both, whatever its caller has read before."""
    claim_id = held(counter, item)
    claim = counter.store.claim(claim_id, counter.deadline())
    assert claim is not None

    outcome = counter.store.settle([claim], to, claim.created_at + passed_ms, counter.deadline(), limited=False)

    assert isinstance(outcome, Applied if moves else Overtaken)
    assert counter.state(claim_id) is (to if moves else ClaimState.HELD)
