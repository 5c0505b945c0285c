from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError

from firstwrite.claim.model import ClaimRequest, ClaimState
from firstwrite.claim.outcomes import KeyReused, LimitReached, Queued, Replayed, UnknownItem
from firstwrite.claim.queue import Intake, message_of, read_message
from firstwrite.conditional import Busy
from tests.support.clocks import FakeClock
from tests.support.faults import cancel, lose_reply, throttle
from tests.support.stock import Counter, FakeQueue, batch_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def ask(item: str, key: str, quantity: int = 1, claimant: str = "alice") -> ClaimRequest:
    return ClaimRequest("alice", claimant, item, quantity, key)


def requests(item: str, number: int, **what: Any) -> list[ClaimRequest]:
    return [ask(item, f"k{n}", **what) for n in range(number)]


def take(counter: Counter, asked: list[ClaimRequest], within_ms: float = 10_000) -> list[str]:
    return counter.protocols.worker.take(batch_of(*map(message_of, asked)), counter.deadline(within_ms))


def states(counter: Counter, asked: list[ClaimRequest]) -> list[str]:
    claims = [counter.store.claim(request.claim_id, counter.deadline()) for request in asked]
    return [claim.state.value if claim else "none" for claim in claims]


def queue(counter: Counter, asked: list[ClaimRequest]) -> list[Any]:
    intake = Intake(counter.store, FakeQueue, "queue", counter.clock, counter.tally)  # type: ignore[arg-type]
    return [intake.accept(request, counter.deadline()) for request in asked]


def test_a_batch_is_one_stock_write(counter: Counter, item: str) -> None:
    """99 claims on a well-stocked item are one transaction with one write to one shard."""
    counter.create(item, 10_000, 4)
    asked = requests(item, 99)
    queue(counter, asked)
    counter.client.calls.clear()

    assert take(counter, asked) == []

    assert counter.client.calls.count("transact_write_items") == 1
    assert set(states(counter, asked)) == {"claimed"}
    assert sorted(shard.claimed for shard in counter.shards(item)) == [0, 0, 0, 99]
    assert counter.audit(item).outcome == "balanced"


def test_as_many_are_granted_as_fit_in_order(counter: Counter, item: str) -> None:
    """The first of a batch get what there is; the others' fate says why not."""
    counter.create(item, 30, 5)
    asked = requests(item, 50)
    queue(counter, asked)

    assert take(counter, asked) == []

    assert states(counter, asked) == ["claimed"] * 30 + ["rejected"] * 20
    last = counter.store.claim(asked[-1].claim_id, counter.deadline())
    assert last is not None
    assert last.reason == "sold-out"
    assert counter.available(item) == 0
    assert counter.audit(item).outcome == "balanced"


def test_a_small_request_is_served_behind_one_that_is_too_large(counter: Counter, item: str) -> None:
    """Whoever does not fit does not hold up who does."""
    counter.create(item, 5, 1)
    asked = [ask(item, "a", 2), ask(item, "b", 9), ask(item, "c", 3)]

    take(counter, asked)

    assert states(counter, asked) == ["claimed", "rejected", "claimed"]


def test_a_limit_holds_within_a_batch(counter: Counter, item: str) -> None:
    """One claimant's requests are counted together, others' are not held against them."""
    counter.create(item, 100, 4, limit_per_claimant=3)
    counter.claim(item, "before", claimant="ann")
    asked = [ask(item, f"k{n}", claimant="ann" if n % 2 else f"other-{n}") for n in range(20)]

    assert take(counter, asked) == []

    granted = [request for request, state in zip(asked, states(counter, asked), strict=True) if state == "claimed"]
    assert [request.idempotency_key for request in granted if request.claimant == "ann"] == ["k1", "k3"]
    assert len(granted) == 12
    assert counter.available(item) == 87


def test_redelivery_changes_nothing(counter: Counter, item: str) -> None:
    """A whole batch that comes again, and again in another order, finds everything decided."""
    counter.create(item, 30, 4)
    asked = requests(item, 50)
    queue(counter, asked)
    take(counter, asked)
    before = states(counter, asked)
    counter.adjust(item, 10, "more")

    assert take(counter, asked) == take(counter, asked[::-1]) == []

    assert states(counter, asked) == before, "a rejection that was read stays one, whatever was restocked"
    assert counter.available(item) == 10


def test_batch_of_ten_with_a_poisoned_message_and_a_duplicate(counter: Counter, item: str) -> None:
    """Message 4 is no request and is reported alone; 7 is 2 again; the rest are done, and a redelivery is harmless."""
    counter.create(item, 100, 4)
    bodies = [message_of(request) for request in requests(item, 10)]
    bodies[4], bodies[7] = '{"item": "half a mess', bodies[2]

    for _ in range(2):
        assert counter.protocols.worker.take(batch_of(*bodies), counter.deadline()) == ["m4"]
        assert counter.available(item) == 92
    assert counter.tally.of("PoisonedMessages") == 2


@pytest.mark.parametrize(
    "change",
    [
        {"quantity": 0},
        {"quantity": -1},
        {"quantity": True},
        {"quantity": "1"},
        {"quantity": 1.0},
        {"item": "a#b"},
        {"item": ""},
        {"claimant": ""},
        {"claimant": "a\x00"},
        {"caller": None},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 256},
        {"extra": 1},
    ],
    ids=json.dumps,
)
def test_a_message_that_is_no_request_is_poison(change: dict[str, Any]) -> None:
    """Nothing but a whole and valid request gets near a write."""
    good = json.loads(message_of(ask("item", "k")))
    assert read_message(json.dumps(good)) == ask("item", "k")
    assert read_message(json.dumps({**good, **change})) is None


@pytest.mark.parametrize("body", ["", "[]", "null", "7", "{", '"text"', "[" * 100_000])
def test_a_message_that_is_no_object_is_poison(body: str) -> None:
    """Whatever was sent, reading it raises nothing."""
    assert read_message(body) is None


def test_an_item_that_does_not_exist_goes_to_the_dead_letters_and_others_do_not(counter: Counter, item: str) -> None:
    """A producer's mistake is seen by somebody, and concerns nobody else."""
    counter.create(item, 10)
    assert take(counter, [ask(item, "k"), ask("nothing", "k"), ask(item, "k2")]) == ["m1"]
    assert counter.available(item) == 8


def test_one_key_for_two_requests_in_one_batch_is_one_claim(counter: Counter, item: str) -> None:
    """The one that was queued is decided, whichever comes first; the other has no claim."""
    counter.create(item, 10)
    queued, other = ask(item, "k", 1), ask(item, "k", 2)
    queue(counter, [queued])

    assert take(counter, [other, queued]) == []

    assert states(counter, [queued]) == ["claimed"]
    assert counter.available(item) == 9


@pytest.mark.parametrize("lost", [1, 2])
def test_a_batch_whose_reply_was_lost_is_committed_once(
    engine: DynamoDBClient, table: str, item: str, lost: int
) -> None:
    """The next look finds what landed."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[lose_reply] * lost]})
    counter.create(item, 100, 4)
    asked = requests(item, 20)

    assert take(counter, asked) == []
    assert counter.available(item) == 80
    assert counter.tally.of("QueuedClaims", outcome="claimed") == 20


def test_a_claim_decided_elsewhere_meanwhile_does_not_spoil_the_group(counter: Counter, item: str) -> None:
    """One claim of twenty is granted to a synchronous repeat between look and commit: nineteen are committed."""
    counter.create(item, 100, 1)
    asked = requests(item, 20)
    queue(counter, asked)
    look = counter.store.look

    def look_then_lose(*arguments: Any, **options: Any) -> Any:
        seen = look(*arguments, **options)
        counter.store.look = look  # type: ignore[method-assign]
        counter.claim(item, "k7")
        return seen

    counter.store.look = look_then_lose  # type: ignore[method-assign]
    assert take(counter, asked) == []

    assert set(states(counter, asked)) == {"claimed"}
    assert counter.available(item) == 80


@pytest.mark.parametrize("fault", [throttle, cancel("TransactionConflict", "None")])
def test_what_cannot_be_decided_comes_again(engine: DynamoDBClient, table: str, item: str, fault: Any) -> None:
    """Load up to the deadline fails all messages, decides none, and the next delivery decides them."""
    counter = Counter(engine, table, FakeClock(), script={"transact_write_items": [None, *[fault] * 9_999]})
    counter.create(item, 100, 4)
    asked = requests(item, 3)
    queue(counter, asked)

    assert take(counter, asked) == ["m0", "m1", "m2"]
    assert states(counter, asked) == ["queued"] * 3
    counter.client._script.clear()
    assert take(counter, asked) == []
    assert states(counter, asked) == ["claimed"] * 3


def test_holds_that_are_due_come_back_before_a_queued_claim_is_rejected(counter: Counter, item: str) -> None:
    """Nobody in the queue is turned away for a hold that has run out."""
    counter.create(item, 2, 1, hold_seconds=60)
    counter.claim(item, "a")
    counter.claim(item, "b")
    counter.clock.advance(60_000)  # type: ignore[attr-defined]

    take(counter, requests(item, 3))

    assert states(counter, requests(item, 3)) == ["held", "held", "rejected"]


def test_a_rejected_claim_can_be_asked_for_again(counter: Counter, item: str) -> None:
    """A rejection holds no key: a synchronous retry, or another queued request, may be granted."""
    counter.create(item, 1, 1)
    first, second = ask(item, "a", 2), ask(item, "b", 2)
    queue(counter, [first, second])
    take(counter, [first, second])
    assert states(counter, [first, second]) == ["rejected"] * 2
    counter.adjust(item, 4, "more")

    assert counter.claim(item, "a", 1).claim.state is ClaimState.CLAIMED, "even for another quantity"
    assert isinstance(queue(counter, [second])[0], Queued)
    take(counter, [second])
    assert states(counter, [first, second]) == ["claimed"] * 2
    assert counter.available(item) == 2


def test_the_intake_answers_what_is_known_already(counter: Counter, item: str) -> None:
    """Unknown item, limit, a reused key, a decided claim and a repeat are told at once, and nothing else is queued."""
    counter.create(item, 10, limit_per_claimant=3)
    counter.claim(item, "decided")

    outcomes = queue(
        counter,
        [
            ask("nothing", "k"),
            ask(item, "k", 4),
            ask(item, "decided"),
            ask(item, "decided", 2),
            ask(item, "new"),
            ask(item, "new"),
            ask(item, "new", 2),
        ],
    )

    assert [type(outcome) for outcome in outcomes] == [
        UnknownItem, LimitReached, Replayed, KeyReused, Queued, Queued, KeyReused,
    ]  # fmt: skip
    assert [outcomes[4].repeated, outcomes[5].repeated] == [False, True]


def test_a_queue_that_is_down_is_busy_and_a_repeat_sends_again(counter: Counter, item: str) -> None:
    """Nothing was promised; the repeat finds its own note and sends what was not sent."""
    counter.create(item, 10)
    sqs = FakeQueue()
    intake = Intake(counter.store, lambda: sqs, "queue", counter.clock, counter.tally)  # type: ignore[arg-type, return-value]
    sqs.down = EndpointConnectionError(endpoint_url="queue")
    assert isinstance(intake.accept(ask(item, "k"), counter.deadline()), Busy)

    sqs.down = None
    assert isinstance(intake.accept(ask(item, "k"), counter.deadline()), Queued)
    assert sqs.bodies == [message_of(ask(item, "k"))]


def test_a_batch_that_is_too_large_for_one_transaction_takes_two(counter: Counter, item: str) -> None:
    """Under a limit each claimant's count is a write too, so 80 claims of 80 people are two transactions."""
    counter.create(item, 1_000, 4, limit_per_claimant=1)
    asked = [ask(item, "k", claimant=f"user-{n}") for n in range(80)]
    counter.client.calls.clear()

    assert take(counter, asked) == []

    assert counter.client.calls.count("transact_write_items") == 2
    assert counter.available(item) == 920


def test_an_item_whose_stock_cannot_be_read_concerns_no_other_item(
    engine: DynamoDBClient, counter: Counter, item: str
) -> None:
    """Its messages come again, and end as dead letters; the fault is counted."""
    for name in (item, f"{item}-2"):
        counter.create(name, 10, 1)
    engine.update_item(
        TableName=counter.table,
        Key={"pk": {"S": f"item#{item}#shard#0"}, "sk": {"S": "stock"}},
        UpdateExpression="REMOVE available",
    )

    assert take(counter, [ask(item, "a"), ask(f"{item}-2", "a"), ask(item, "b")]) == ["m0", "m2"]

    assert counter.available(f"{item}-2") == 9
    assert counter.tally.of("Faults") == 1


def test_a_shard_that_ran_short_meanwhile_is_looked_at_again(counter: Counter, item: str) -> None:
    """Between look and commit somebody takes most of the stock: the group gets what is left, in order."""
    counter.create(item, 20, 1)
    asked = requests(item, 10)
    look = counter.store.look

    def look_then_sell(*arguments: Any, **options: Any) -> Any:
        seen = look(*arguments, **options)
        counter.store.look = look  # type: ignore[method-assign]
        counter.claim(item, "large", quantity=17)
        return seen

    counter.store.look = look_then_sell  # type: ignore[method-assign]
    assert take(counter, asked) == []

    assert states(counter, asked) == ["claimed"] * 3 + ["rejected"] * 7
