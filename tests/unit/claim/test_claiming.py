from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from firstwrite.claim.model import ClaimRequest, ClaimState, ItemSettings, Shard, default_shards, spread
from firstwrite.claim.outcomes import Claimed, KeyReused, LimitReached, Replayed, SoldOut, UnknownItem
from firstwrite.claim.rules import is_sold_out
from firstwrite.conditional import Busy
from firstwrite.errors import DataFaultError
from tests.support.clocks import FakeClock
from tests.support.faults import cancel, conflict, lose_reply, throttle
from tests.support.stock import Counter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def test_units_are_claimed_until_none_are_left(counter: Counter, item: str) -> None:
    """N units are claimed N times, then it is sold out."""
    counter.create(item, 3)

    outcomes = [type(counter.claim(item, f"k{n}")) for n in range(5)]

    assert outcomes == [Claimed, Claimed, Claimed, SoldOut, SoldOut]
    assert counter.available(item) == 0


def test_a_repeat_is_the_first_claim_again_even_when_sold_out_meanwhile(counter: Counter, item: str) -> None:
    """The same key returns the same claim; stock is taken once."""
    counter.create(item, 1)

    first = counter.claim(item, "k")
    counter.claim(item, "other")
    again = counter.claim(item, "k")

    assert isinstance(again, Replayed)
    assert again.claim.claim_id == first.claim.claim_id
    assert counter.available(item) == 0


@pytest.mark.parametrize("later_ms", [1_000, 11 * 60_000, 23 * 3_600_000])
def test_a_key_is_remembered_longer_than_any_transaction_token(counter: Counter, item: str, later_ms: int) -> None:
    """A repeat after a second, eleven minutes or a day is the same claim: the stored claim decides, not a token."""
    counter.create(item, 5)
    first = counter.claim(item, "k")
    counter.clock.advance(later_ms)  # type: ignore[attr-defined]

    again = counter.claim(item, "k")

    assert isinstance(again, Replayed)
    assert replace(again.claim, write_id="") == first.claim
    assert counter.available(item) == 4


def test_a_used_key_with_another_quantity_is_refused_and_takes_nothing(counter: Counter, item: str) -> None:
    """K with 1, then K with 2: the key was reused, stock is untouched."""
    counter.create(item, 5)
    counter.claim(item, "k", quantity=1)

    assert counter.claim(item, "k", quantity=2) == KeyReused()
    assert counter.available(item) == 4


def test_keys_are_scoped_by_caller_claimant_and_item(counter: Counter, item: str) -> None:
    """The same key of another caller, for another claimant or on another item is another claim."""
    counter.create(item, 5)
    counter.create(f"{item}-2", 5)

    claims = [
        counter.claim(item, "k"),
        counter.claim(item, "k", caller="bob"),
        counter.claim(item, "k", claimant="carol"),
        counter.claim(f"{item}-2", "k"),
    ]

    assert [type(outcome) for outcome in claims] == [Claimed] * 4
    assert len({outcome.claim.claim_id for outcome in claims}) == 4


def test_scopes_that_read_alike_are_different_claims() -> None:
    """The claim id is an injective encoding of its scope."""
    ids = {
        ClaimRequest(*scope, 1, "k").claim_id
        for scope in [("a:b", "c", "i"), ("a", "b:c", "i"), ("a", "", "i"), ("", "a", "i"), ('a", "b', "c", "i")]
    }
    assert len(ids) == 5


def test_an_unknown_item_is_no_sold_out_item(counter: Counter, item: str) -> None:
    """Claiming what was never created says so."""
    assert counter.claim(item, "k") == UnknownItem()


@pytest.mark.parametrize("broken", ["REMOVE available", "SET available = :text", "REMOVE held"])
def test_misshapen_stock_is_a_fault_and_no_sold_out(
    engine: DynamoDBClient, table: str, counter: Counter, item: str, broken: str
) -> None:
    """An attribute that is missing or of the wrong type raises an alarm instead of turning customers away."""
    counter.create(item, 1)
    key = {"pk": {"S": f"item#{item}#shard#0"}, "sk": {"S": "stock"}}
    values: dict[str, Any] = {":text": {"S": "many"}} if ":text" in broken else {}
    engine.update_item(
        TableName=table,
        Key=key,
        UpdateExpression=broken,
        **({"ExpressionAttributeValues": values} if values else {}),  # type: ignore[arg-type]
    )

    with pytest.raises(DataFaultError):
        counter.claim(item, "k")


def test_a_claimant_gets_no_more_than_the_limit(counter: Counter, item: str) -> None:
    """The limit holds per claimant and not over all."""
    counter.create(item, 10, limit_per_claimant=2)

    assert counter.claim(item, "k0", quantity=3) == LimitReached(2)
    assert [type(counter.claim(item, f"k{n}")) for n in range(3)] == [Claimed, Claimed, LimitReached]
    assert isinstance(counter.claim(item, "k3", claimant="bob", quantity=2), Claimed)
    assert counter.available(item) == 6


def test_a_quantity_is_gathered_from_several_shards_where_one_is_short(counter: Counter, item: str) -> None:
    """Scattered units can be claimed together, exactly."""
    counter.create(item, 8, shards=4)

    outcome = counter.claim(item, "k", quantity=7)

    assert isinstance(outcome, Claimed)
    assert sum(outcome.claim.taken.values()) == 7
    assert counter.available(item) == 1
    assert counter.claim(item, "k2", quantity=2) == SoldOut()


def test_a_claim_on_an_item_with_holds_is_held(counter: Counter, item: str) -> None:
    """Units of a hold are held and not claimed, until a deadline."""
    counter.create(item, 2, hold_seconds=60)

    claim = counter.claim(item, "k").claim

    assert claim.state is ClaimState.HELD
    assert claim.hold_until == counter.clock.now_ms() + 60_000
    assert [(shard.held, shard.claimed) for shard in counter.shards(item)] == [(1, 0)]


@pytest.mark.parametrize(("shards", "lost"), [(1, 1), (16, 1), (16, 2)])
def test_a_claim_whose_reply_was_lost_is_claimed_once(
    engine: DynamoDBClient, table: str, item: str, shards: int, lost: int
) -> None:
    """The request finds its own earlier transaction, by writing or by looking: Claimed, not Replayed, and one unit."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[lose_reply] * lost]})
    settings = counter.create(item, 100, shards, hold_seconds=60)

    outcome = counter.claim(item, "k")

    assert isinstance(outcome, Claimed)
    assert counter.available(item) == 99
    # The second try was on another shard and later; the answer is what the first has recorded.
    look = counter.store.look(settings, counter.deadline(), claim_ids=[outcome.claim.claim_id])
    assert look.claims[outcome.claim.claim_id] == outcome.claim


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("ConditionalCheckFailed", "None"), Claimed),
        (("TransactionConflict", "None"), Claimed),
        (("ConditionalCheckFailed", "TransactionConflict"), Claimed),
        (("ThrottlingError", "None"), Claimed),
    ],
)
def test_one_cancelled_try_is_not_the_answer(
    engine: DynamoDBClient, table: str, item: str, codes: tuple[str, ...], expected: type
) -> None:
    """A shortage, conflict or throttle on one shard is followed by another look or shard."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, cancel(*codes)]})
    counter.create(item, 100)

    assert isinstance(counter.claim(item, "k"), expected)


@pytest.mark.parametrize("fault", [conflict, throttle, cancel("TransactionConflict", "None")])
def test_load_that_does_not_end_is_busy_and_never_sold_out(
    engine: DynamoDBClient, table: str, item: str, fault: Any
) -> None:
    """Conflicts and throttles up to the deadline are Busy, and nothing was taken."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[fault] * 9_999]})
    counter.create(item, 100)
    started = counter.clock.elapsed_ms()

    assert isinstance(counter.claim(item, "k"), Busy)
    assert counter.clock.elapsed_ms() - started <= 10_000
    assert counter.available(item) == 100


def test_load_that_ends_is_waited_out(engine: DynamoDBClient, table: str, item: str) -> None:
    """An item of one shard leaves nothing else to try: each try is one attempt, and follows a pause and a new look."""
    conflicts = [cancel("TransactionConflict", "None")] * 3
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *conflicts]})
    counter.create(item, 1)
    counter.client.calls.clear()

    assert isinstance(counter.claim(item, "k"), Claimed)

    assert counter.client.calls == ["get_item", *["batch_get_item", "transact_write_items"] * 4]
    assert len(counter.clock.slept_ms) == 3  # type: ignore[attr-defined]


def test_settings_that_cannot_be_read_at_first_are_read_again(engine: DynamoDBClient, table: str, item: str) -> None:
    """A throttle before anything is decided is no answer either."""
    counter = Counter(engine, table, FakeClock(), script={"get_item": [throttle]})
    counter.create(item, 1)

    assert isinstance(counter.claim(item, "k"), Claimed)


def test_a_repeat_that_meets_its_claim_in_the_write_is_answered_by_it(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """The same request came to two machines, and the other was quicker: its claim comes with the refusal."""
    other = Counter(engine, table, FakeClock())

    def other_first(call: Any) -> Any:
        assert isinstance(other.claim(item, "k"), Claimed)
        return call()

    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, other_first]})
    counter.create(item, 5)
    counter.client.calls.clear()

    assert isinstance(counter.claim(item, "k"), Replayed)

    assert counter.client.calls == ["get_item", "batch_get_item", "transact_write_items"]
    assert counter.available(item) == 4


def test_a_claim_is_two_round_trips_and_sold_out_and_replay_are_one_without_a_write(
    counter: Counter, item: str
) -> None:
    """Once an item was seen, granting reads once and writes once; refusing and replaying read once."""
    counter.create(item, 20)
    for n in range(20):
        counter.claim(item, f"warm-{n}")
    counter.claim(item, "sold out")
    counter.client.calls.clear()

    assert counter.claim(item, "more") == SoldOut()
    assert counter.client.calls == ["batch_get_item"]
    counter.client.calls.clear()
    assert isinstance(counter.claim(item, "warm-3"), Replayed)
    assert counter.client.calls == ["batch_get_item"]

    counter.create(f"{item}-2", 20)
    counter.claim(f"{item}-2", "warm")
    counter.client.calls.clear()
    counter.claim(f"{item}-2", "k")
    assert counter.client.calls == ["batch_get_item", "transact_write_items"]


class Looks:
    """Counts the shards that each look of a counter reads."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._read = counter.store.look

    def of_claim(self, item: str, key: str, quantity: int = 1) -> tuple[type, list[int]]:
        """Return what came of a claim, and how many shards each of its looks read."""
        with patch.object(self._counter.store, "look", side_effect=self._read) as looks:
            outcome = self._counter.claim(item, key, quantity)
        return type(outcome), [len(call.kwargs["shards"]) for call in looks.call_args_list]


def test_a_claim_reads_a_few_shards_and_all_of_them_before_it_is_turned_away(counter: Counter, item: str) -> None:
    """Four shards of sixteen are enough to be granted; nobody is told sold out by less than all."""
    counter.create(item, 64)
    looks = Looks(counter)

    assert looks.of_claim(item, "first") == (Claimed, [4])
    counter.adjust(item, -63, "empty")
    assert looks.of_claim(item, "too late") == (SoldOut, [4, 16, 16])
    assert looks.of_claim(item, "later still") == (SoldOut, [16])
    counter.adjust(item, 64, "fill")
    assert looks.of_claim(item, "back again") == (Claimed, [16])
    assert looks.of_claim(item, "as before") == (Claimed, [4])


def test_the_last_unit_is_found_wherever_it_lies(counter: Counter, item: str) -> None:
    """With one unit left in sixteen shards, some first look misses it, and the claim gets it all the same."""
    missed = 0
    for n in range(8):
        counter.create(f"{item}-{n}", 1, 16)
        outcome, shards = Looks(counter).of_claim(f"{item}-{n}", "last")
        assert outcome is Claimed
        missed += shards == [4, 16]

    assert missed


def test_scattered_units_are_gathered_after_a_look_at_all(counter: Counter, item: str) -> None:
    """Five units that lie in five shards cannot be seen in four; afterwards one unit is looked for in four again."""
    counter.create(item, 16, 16)
    looks = Looks(counter)

    assert looks.of_claim(item, "five", 5) == (Claimed, [4, 16])
    assert looks.of_claim(item, "one") == (Claimed, [4])
    assert looks.of_claim(item, "two", 2)[1] == [16]  # no shard had two when all were read


@pytest.mark.parametrize(("shards", "tries"), [(16, 3), (2, 2)])
def test_after_a_few_short_shards_it_looks_again(
    engine: DynamoDBClient, table: str, item: str, shards: int, tries: int
) -> None:
    """Three shards that turn out short, or as many as were seen, are followed by a new look and not by more tries."""
    short = cancel("None", "ConditionalCheckFailed")
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[short] * tries]})
    counter.create(item, 100, shards)
    counter.client.calls.clear()

    assert isinstance(counter.claim(item, "k"), Claimed)

    look, write = "batch_get_item", "transact_write_items"
    # An injected shortage names no item, so the client asks for it.
    made = [call for call in counter.client.calls if call != "get_item"]
    assert made == [look, *[write] * tries, look, write]


def test_a_conflict_on_a_shard_with_the_last_unit_is_another_try_on_another(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """Two shards have one unit each: whoever meets somebody at one takes the other, without a new look."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, conflict]})
    counter.create(item, 2, 2)
    counter.client.calls.clear()

    assert isinstance(counter.claim(item, "k"), Claimed)

    assert counter.client.calls == ["get_item", "batch_get_item", "transact_write_items", "transact_write_items"]


def test_looks_that_never_tell_end_at_the_deadline(engine: DynamoDBClient, table: str, item: str) -> None:
    """Every shard that seemed to have stock turns out short, again and again: that is busy, and in time."""
    short = cancel("None", "ConditionalCheckFailed")
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[short] * 999]})
    counter.create(item, 100)
    look = counter.store.look
    started = counter.clock.elapsed_ms()

    def slow(*arguments: Any, **named: Any) -> Any:
        counter.clock.advance(500)  # type: ignore[attr-defined]
        return look(*arguments, **named)

    with patch.object(counter.store, "look", side_effect=slow):
        assert counter.claim(item, "k") == Busy("conflict")

    assert counter.clock.elapsed_ms() - started == 10_000


def test_every_outcome_is_counted(counter: Counter, item: str) -> None:
    """What became of claims is a metric, by outcome."""
    counter.create(item, 1)
    for key in ("k", "k", "late", "later"):
        counter.claim(item, key)

    outcomes = {name: counter.tally.of("Claims", outcome=name) for name in ("claimed", "replayed", "sold-out")}
    assert outcomes == {"claimed": 1, "replayed": 1, "sold-out": 2}


def test_creating_an_item_again_shows_what_exists(counter: Counter, item: str) -> None:
    """Creation is all or nothing, once; a repeat changes nothing and returns the settings that stand."""
    made = counter.create(item, 100)
    other = ItemSettings(item, 7, 1)

    assert counter.store.create(made, counter.deadline()) == made
    assert counter.store.create(other, counter.deadline()) == made
    assert counter.available(item) == 100


def shard(number: int, available: int, returns: int = 0) -> Shard:
    return Shard(number, 10, available, 0, 10 - available, returns)


@pytest.mark.parametrize(
    ("before", "now", "proved"),
    [
        (None, [shard(0, 0)], True),
        (None, [shard(0, 1)], False),
        (None, [shard(0, 0), shard(1, 0)], False),
        ([shard(0, 0), shard(1, 0)], [shard(0, 0), shard(1, 0)], True),
        ([shard(0, 1), shard(1, 0)], [shard(0, 0), shard(1, 0)], False),
        ([shard(0, 0), shard(1, 0)], [shard(0, 0, returns=1), shard(1, 0)], False),
        ([shard(0, 0), shard(1, 0)], [shard(0, 1, returns=1), shard(1, 0)], False),
        ([shard(0, 0), shard(1, 0)], [shard(0, 0)], False),
    ],
)
def test_sold_out_needs_proof(before: list[Shard] | None, now: list[Shard], *, proved: bool) -> None:
    """Several shards are sold out only by two looks at all of them, between which nothing came back."""
    shards = len(before or now)
    assert is_sold_out(before, now, 1, shards) is proved


@pytest.mark.parametrize(("stock", "shards"), [(0, 1), (1, 1), (7, 1), (8, 2), (63, 15), (64, 16), (10**6, 16)])
def test_shards_are_a_quarter_of_the_stock_between_1_and_16(stock: int, shards: int) -> None:
    """Small stock is not scattered, large stock is spread; nothing is lost in the spreading."""
    assert default_shards(stock) == shards
    assert sum(spread(stock, shards)) == stock
    assert max(spread(stock, shards)) - min(spread(stock, shards)) <= 1
