from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError, IncompleteReadError, ReadTimeoutError

from firstwrite.cache.memory import Memory
from firstwrite.cache.record import Answer, Flight, State, Stored
from firstwrite.cache.single_flight import HEADROOM_MS, Failed, FetchError, InProgress, Served
from firstwrite.clock import Deadline
from firstwrite.conditional import Busy
from firstwrite.errors import StoreUnavailableError
from tests.support.clocks import FakeClock, SkewedClock
from tests.support.faults import FaultyClient, lose_reply, throttle
from tests.support.flight import POLICY, Machine, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient


def test_the_first_caller_fetches_and_the_next_is_served_from_the_cache(machine: Machine, key: str) -> None:
    """A result is fetched once per freshness window."""
    upstream = Upstream(machine.clock, b"v1", b"v2")

    first = machine.get(key, upstream)
    second = machine.get(key, upstream)
    machine.clock.advance(POLICY.fresh_ms)
    third = machine.get(key, upstream)

    assert [first.how, second.how, third.how] == ["stored", "hit", "stored"]
    assert [got.stored.answer.body for got in (first, second, third)] == [b"v1", b"v1", b"v2"]
    assert len(upstream.flights) == 2


def test_a_hit_is_one_read_and_a_miss_one_read_and_two_writes(machine: Machine, key: str) -> None:
    """The hit path is a single read; the winner adds acquire and complete."""
    upstream = Upstream(machine.clock, b"v1")

    machine.get(key, upstream)
    assert machine.client.calls == ["get_item", "update_item", "put_item"]
    machine.client.calls.clear()
    machine.get(key, upstream)
    assert machine.client.calls == ["get_item"]


@pytest.mark.parametrize("body", [b"", b"0", b"false", b"null", b"[]", b"\x00\xff" * 700, b"x" * 300_000])
def test_any_body_comes_back_to_the_byte(machine: Machine, key: str, body: bytes) -> None:
    """Empty, falsy, binary and large bodies are served from the cache as upstream sent them."""
    upstream = Upstream(machine.clock, body)

    machine.get(key, upstream)
    again = machine.get(key, upstream)

    assert again == Served(again.stored, "hit")
    assert again.stored.answer.body == body
    assert len(upstream.flights) == 1


def test_a_dead_winner_is_waited_for_within_its_lease_and_replaced_after_it(machine: Machine, key: str) -> None:
    """At 1.0 s of a 2 s lease the next caller waits; at 2.1 s it takes over with the next fence and one more call."""
    dead = machine.acquire(key, "dead")
    upstream = Upstream(machine.clock, b"v1")
    machine.clock.advance(1_000)

    waited = machine.get(key, upstream, wait_ms=500)
    assert isinstance(waited, InProgress)
    assert upstream.flights == []

    machine.clock.advance(600)
    taken_over = machine.get(key, upstream)
    assert taken_over.how == "stored"
    assert [flight.fence for flight in upstream.flights] == [dead.fence + 1]


def test_a_lease_that_ended_long_ago_is_taken_over_by_a_new_process_in_its_first_write(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """There is no watching period: the record itself says that the lease is over."""
    machine.acquire(key, "dead")
    machine.clock.advance(3_600_000)
    newcomer = Machine(engine, table, machine.clock)

    assert newcomer.get(key, Upstream(machine.clock, b"v1")).how == "stored"
    assert newcomer.client.calls == ["get_item", "update_item", "put_item"]


def test_a_late_winner_does_not_replace_the_newer_result_and_its_caller_is_answered(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """A stalls past its lease, B completes v2, A then completes v1: v2 stays, A's caller gets v2, it is counted."""
    other = Machine(engine, table, machine.clock)
    newer = Upstream(machine.clock, b"v2")

    def stalls(_: Flight) -> Answer:
        machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
        assert other.get(key, newer).how == "stored"
        return Answer(200, "text/plain", b"v1")

    late = machine.get(key, stalls)

    assert (late.how, late.stored.answer.body) == ("collapsed", b"v2")
    assert machine.tally.of("LateWinners") == 1
    assert machine.get(key, newer).stored.answer.body == b"v2"
    assert len(newer.flights) == 1


@pytest.mark.parametrize("meanwhile", ["being fetched", "invalidated", "deleted"])
def test_a_late_winner_keeps_its_answer_where_no_newer_one_stands(
    engine: DynamoDBClient, machine: Machine, table: str, key: str, meanwhile: str
) -> None:
    """The old result is still in the record while others fetch; it is not what this caller paid for."""
    machine.get(key, Upstream(machine.clock, b"v0"))
    machine.clock.advance(POLICY.fresh_ms)
    late = Answer(200, "text/plain", b"v1")

    def stalls(_: Flight) -> Answer:
        machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
        if meanwhile == "being fetched":
            machine.acquire(key, "other")
        elif meanwhile == "invalidated":
            machine.store.invalidate(key, Deadline.after(machine.clock, 1_000))
        else:
            engine.delete_item(TableName=table, Key={"pk": {"S": key}})
        return late

    now = machine.clock.now_ms() + POLICY.lease_ms + POLICY.clock_skew_ms
    assert machine.get(key, stalls) == Served(Stored(late, "", now, now, now), "unstored", "stale")
    assert machine.tally.of("LateWinners", source="rates") == 1


def test_a_late_loser_does_not_spoil_the_newer_result(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """A's fetch fails after B has completed: the record stays completed and the third call is a hit."""
    other = Machine(engine, table, machine.clock)
    newer = Upstream(machine.clock, b"v2")

    def stalls(_: Flight) -> Answer:
        machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
        other.get(key, newer)
        raise FetchError("failed")

    assert isinstance(machine.get(key, stalls), Failed)
    assert machine.get(key, newer).how == "hit"
    assert len(newer.flights) == 1


def test_a_takeover_that_comes_too_late_is_refused_and_gets_the_completed_result(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """The holder completes between a taker's read and its write; the taker returns that result."""
    machine.acquire(key, "holder")
    holder = Machine(engine, table, machine.clock)
    flight = machine.store.read(key, Deadline.after(machine.clock, 1_000))
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)

    def holder_completes_first(call: Callable[[], Any]) -> Any:
        assert flight is not None
        mine = Flight(key, "holder", flight.fence, flight.lease_until, "r", 0)
        answer = Answer(200, "text/plain", b"v1")
        holder.store.complete(mine, answer, POLICY, 5, Deadline.after(machine.clock, 1_000))
        return call()

    machine.client._script["update_item"] = [holder_completes_first]
    upstream = Upstream(machine.clock, b"v2")

    assert machine.get(key, upstream).stored.answer.body == b"v1"
    assert upstream.flights == []


def test_fences_only_grow(machine: Machine, key: str) -> None:
    """Every fetch and takeover has a higher fence than all before."""
    fences: list[int] = []
    for _ in range(5):
        fences.append(machine.acquire(key, f"owner-{len(fences)}").fence)
        machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)

    assert fences == sorted(set(fences))


def test_a_fence_keeps_growing_after_the_record_was_deleted(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """TTL may delete a record; the next fence is still higher than the last."""
    before = machine.acquire(key, "before").fence
    engine.delete_item(TableName=table, Key={"pk": {"S": key}})
    machine.clock.advance(5_000)

    assert machine.acquire(key, "after").fence > before


def test_the_idempotency_key_for_upstream_is_one_for_a_refresh_and_its_takeovers(machine: Machine, key: str) -> None:
    """Takeovers and failures keep it, a stored result ends it."""
    failing = Upstream(machine.clock, FetchError("timeout"))
    machine.acquire(key, "dead")
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
    machine.get(key, failing)
    machine.clock.advance(POLICY.cooldown_ms)
    good = Upstream(machine.clock, b"v1")
    machine.get(key, good)
    machine.clock.advance(POLICY.fresh_ms)
    machine.get(key, good)

    ids = [flight.refresh_id for flight in failing.flights + good.flights]
    assert ids[0] == ids[1] != ids[2]


def test_the_winning_write_whose_reply_was_lost_is_still_the_winners(
    engine: DynamoDBClient, table: str, clock: FakeClock, key: str
) -> None:
    """The winner recognises its own acquire and its own complete; one upstream call."""
    client = FaultyClient(engine, script={"update_item": [lose_reply], "put_item": [lose_reply]})
    machine = Machine(client, table, clock)
    upstream = Upstream(clock, b"v1")

    assert machine.get(key, upstream).how == "stored"
    assert machine.get(key, upstream).how == "hit"
    assert len(upstream.flights) == 1
    assert machine.tally.of("ConditionalWrites", outcome="recovered") == 2


def test_a_failure_is_shared_until_its_cooldown_ends_and_the_cooldown_grows(machine: Machine, key: str) -> None:
    """Nobody calls a failing upstream again before the cooldown, which doubles with each failure and is capped."""
    upstream = Upstream(machine.clock, FetchError("failed"), takes_ms=0)
    waits = []
    for calls in range(1, 9):
        failed = machine.get(key, upstream)
        assert isinstance(machine.get(key, upstream), Failed)
        assert len(upstream.flights) == calls
        waits.append(failed.retry_after_ms)
        machine.clock.advance(failed.retry_after_ms)

    assert waits == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_a_call_that_was_not_made_lengthens_no_cooldown(machine: Machine, key: str) -> None:
    """What the spend guard refuses is tried again when it says; the first real failure after it cools down briefly."""
    refused = FetchError("spend-limit", refused=True, retry_after_ms=40)
    upstream = Upstream(machine.clock, refused, refused, FetchError("failed"), takes_ms=0)

    waits = []
    for _ in range(3):
        waits.append(machine.get(key, upstream).retry_after_ms)
        machine.clock.advance(waits[-1])

    assert waits == [40, 40, POLICY.cooldown_ms]


def test_a_call_that_was_not_made_is_not_tried_again_before_it_says(machine: Machine, key: str) -> None:
    """The refusal is shared until then."""
    upstream = Upstream(machine.clock, FetchError("spend-limit", refused=True, retry_after_ms=40), takes_ms=0)

    machine.get(key, upstream)
    machine.clock.advance(39)

    assert machine.get(key, upstream) == Failed("spend-limit", 1)
    assert len(upstream.flights) == 1


def test_an_upstream_that_asks_to_be_left_alone_is(machine: Machine, key: str) -> None:
    """A Retry-After longer than the cooldown is honoured."""
    failed = machine.get(key, Upstream(machine.clock, FetchError("failed", retry_after_ms=30_000)))

    assert failed == Failed("failed", 30_000)


def test_a_fetcher_that_raises_reaches_its_caller_and_leaves_a_failed_record(machine: Machine, key: str) -> None:
    """An unexpected exception is the caller's; the record is Failed, never Completed and never left to its lease."""
    with pytest.raises(ZeroDivisionError):
        machine.get(key, Upstream(machine.clock, ZeroDivisionError()))

    record = machine.store.read(key, Deadline.after(machine.clock, 1_000))
    assert record is not None
    assert (record.state, record.failure) == (State.FAILED, "failed")
    assert record.stored is None


@pytest.mark.parametrize(
    ("on_unknown", "shared"), [("retry", Failed("failed", POLICY.cooldown_ms)), ("fail", Failed("unknown", None))]
)
def test_a_fetcher_that_raises_may_have_paid(machine: Machine, key: str, on_unknown: Any, shared: Failed) -> None:
    """Nobody knows what it had done by then, so its failure is shared as the policy for unknown outcomes says."""
    policy = replace(POLICY, on_unknown=on_unknown)
    with pytest.raises(ZeroDivisionError):
        machine.get(key, Upstream(machine.clock, ZeroDivisionError()), policy)

    assert machine.get(key, lambda _: pytest.fail("fetched again"), policy) == shared


@pytest.mark.parametrize(
    "loaded",
    [{"get_item": [throttle]}, {"update_item": [throttle]}, {"update_item": [None, throttle]}],
    ids=["reading", "acquiring", "failing"],
)
def test_a_call_that_meets_load_is_made_again(
    engine: DynamoDBClient, table: str, clock: FakeClock, key: str, loaded: Any
) -> None:
    """The failure is shared all the same, or all who wait would wait for a dead lease."""
    machine = Machine(FaultyClient(engine, script=loaded), table, clock)
    upstream = Upstream(clock, FetchError("failed"))

    for _ in range(2):
        assert machine.get(key, upstream).kind == "failed"
    assert len(upstream.flights) == 1


@pytest.mark.parametrize("loaded", [{"update_item": [throttle]}, {"get_item": [None, throttle]}], ids=str)
def test_an_unknown_outcome_that_meets_load_is_settled_all_the_same(
    engine: DynamoDBClient, table: str, clock: FakeClock, key: str, loaded: Any
) -> None:
    """Declaring it and reading what came of that are made again."""
    policy = replace(POLICY, on_unknown="fail")
    Machine(engine, table, clock).acquire(key, "dead", policy)
    clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
    machine = Machine(FaultyClient(engine, script=loaded), table, clock)

    assert machine.get(key, lambda _: pytest.fail("paid twice"), policy) == Failed("unknown", None)


def test_whoever_waited_shares_a_failure_that_may_be_tried_again_at_once(machine: Machine, key: str) -> None:
    """Without a cooldown the next caller fetches; those who waited for this fetch have their answer."""
    policy = replace(POLICY, cooldown_ms=0)
    flight = machine.acquire(key, "owner", policy)
    sleep_ms = machine.clock.sleep_ms

    def fails_meanwhile(duration_ms: float) -> None:
        sleep_ms(duration_ms)
        machine.store.fail(flight, "failed", 1, machine.clock.now_ms(), Deadline.after(machine.clock, 1_000))
        machine.clock.advance(5)

    machine.clock.sleep_ms = fails_meanwhile

    assert machine.get(key, lambda _: pytest.fail("fetched again"), policy) == Failed("failed", 0)


def test_a_negative_answer_is_kept_briefly(machine: Machine, key: str) -> None:
    """404 is an answer: served from the cache, for negative_ms and no longer."""
    calls = []

    def missing(flight: Flight) -> Answer:
        calls.append(flight)
        return Answer(404, "text/plain", b"no", negative=True)

    machine.get(key, missing)
    assert machine.get(key, missing).stored.answer.status == 404
    machine.clock.advance(POLICY.negative_ms)
    machine.get(key, missing)

    assert len(calls) == 2


def test_an_old_result_is_served_when_renewing_it_fails(machine: Machine, key: str) -> None:
    """Stale if error: within stale_ms a failing upstream does not take the last result away."""
    policy = replace(POLICY, stale_ms=600_000)
    machine.get(key, Upstream(machine.clock, b"v1"), policy)
    machine.clock.advance(policy.fresh_ms)
    machine.get(key, Upstream(machine.clock, FetchError("failed")), policy)

    served = machine.get(key, Upstream(machine.clock, FetchError("failed")), policy)

    assert (served.how, served.stored.answer.body) == ("stale", b"v1")


@pytest.mark.parametrize("skew_ms", [-30_000, -100, 100, 30_000])
def test_a_skewed_clock_steals_nothing_within_the_allowance_and_stores_one_result_beyond_it(
    engine: DynamoDBClient, machine: Machine, table: str, key: str, skew_ms: int
) -> None:
    """Within the allowance a live lease is respected; beyond it the loser is fenced off and one result stands."""
    other = Machine(engine, table, SkewedClock(machine.clock, skew_ms))
    theirs = Upstream(machine.clock, b"theirs", takes_ms=10)

    def slow(_: Flight) -> Answer:
        machine.clock.advance(POLICY.lease_ms - 200)
        other.get(key, theirs, wait_ms=0)
        return Answer(200, "text/plain", b"mine")

    served = machine.get(key, slow)

    stolen = skew_ms > POLICY.clock_skew_ms + 200
    assert len(theirs.flights) == stolen
    record = machine.store.read(key, Deadline.after(machine.clock, 1_000))
    assert record is not None
    assert record.stored is not None
    assert record.stored.answer.body == served.stored.answer.body == (b"theirs" if stolen else b"mine")


@pytest.mark.parametrize("time_left_ms", [-5_000, 0, 1_499])
def test_no_paid_call_is_started_that_could_not_end_in_time(machine: Machine, key: str, time_left_ms: float) -> None:
    """With too little of the function's time left the caller is told to try again and the key is left alone."""
    upstream = Upstream(machine.clock, b"v1")

    assert isinstance(machine.get(key, upstream, time_left_ms=time_left_ms), InProgress)
    assert upstream.flights == []
    assert machine.store.read(key, Deadline.after(machine.clock, 1_000)) is None


def test_a_paid_call_that_can_just_end_in_time_is_started(machine: Machine, key: str) -> None:
    """A millisecond decides: with less left than the call and storing its result may take, come back in a second."""
    upstream = Upstream(machine.clock, b"v1")
    enough_ms = POLICY.timeout_ms + HEADROOM_MS

    assert machine.get(key, upstream, time_left_ms=enough_ms - 1) == InProgress(1_000)
    assert machine.get(key, upstream, time_left_ms=enough_ms).how == "stored"


def test_an_answer_says_why_it_was_fetched(machine: Machine, key: str) -> None:
    """There was none, not even after a failure; the one there was had become stale; the caller asked for a new one."""
    good = Upstream(machine.clock, b"v1")
    machine.get(key, Upstream(machine.clock, FetchError("failed")))
    machine.clock.advance(POLICY.cooldown_ms)

    assert machine.get(key, good).forward == "miss"
    assert machine.get(key, good).forward == "miss"
    machine.clock.advance(POLICY.fresh_ms)
    assert machine.get(key, good).forward == "stale"
    assert machine.get(key, good, renew=True).forward == "request"


def test_a_lease_ends_however_much_time_the_function_has(machine: Machine, key: str) -> None:
    """The lease comes from the policy, never from the function's time."""
    leases = []

    def look(flight: Flight) -> Answer:
        leases.append(flight.lease_until - machine.clock.now_ms())
        return Answer(200, "text/plain", b"")

    machine.get(key, look, time_left_ms=10**12)

    assert leases == [POLICY.lease_ms]


def test_a_record_that_expired_a_second_ago_counts_as_expired_and_its_ttl_is_in_seconds(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """Expired records still answer until TTL gets to them; they are not served, and TTL is a number of seconds."""
    upstream = Upstream(machine.clock, b"v1", b"v2")
    machine.get(key, upstream)
    item = engine.get_item(TableName=table, Key={"pk": {"S": key}})["Item"]
    seconds = int(item["expires_at"]["N"])
    assert machine.clock.now_ms() / 1000 < seconds < machine.clock.now_ms() / 1000 + 7 * 86_400

    machine.clock.advance(POLICY.fresh_ms + 1_000)
    assert machine.get(key, upstream).stored.answer.body == b"v2"


def test_one_fetch_may_ask_for_another_key_through_the_same_objects(machine: Machine, key: str) -> None:
    """Nested fetches complete each record once, with its own value."""
    inner = Upstream(machine.clock, b"inner")

    def outer(_: Flight) -> Answer:
        return Answer(200, "text/plain", b"outer of " + machine.get(f"{key}-b", inner).stored.answer.body)

    assert machine.get(key, outer).stored.answer.body == b"outer of inner"
    assert machine.get(f"{key}-b", inner).stored.answer.body == b"inner"
    assert len(inner.flights) == 1


def test_a_winner_that_may_have_paid_is_not_replaced_until_an_operator_clears_the_key(
    machine: Machine, key: str
) -> None:
    """`on_unknown = "fail"`: after a dead winner nobody calls again, until the key is invalidated."""
    policy = replace(POLICY, on_unknown="fail")
    machine.acquire(key, "dead", policy)
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
    upstream = Upstream(machine.clock, b"v1")

    for calls in (["get_item", "update_item", "get_item"], ["get_item"], ["get_item"]):
        machine.client.calls.clear()
        assert machine.get(key, upstream, policy) == Failed("unknown", None)
        assert machine.client.calls == calls
        machine.clock.advance(86_400_000)
    assert upstream.flights == []

    machine.store.invalidate(key, Deadline.after(machine.clock, 1_000))
    assert machine.get(key, upstream, policy).how == "stored"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FetchError("timeout", ambiguous=True), "unknown"),
        (FetchError("timeout", ambiguous=False), "timeout"),
        (FetchError("timeout"), "timeout"),
    ],
)
def test_a_call_without_an_answer_follows_the_policy_for_unknown_outcomes(
    machine: Machine, key: str, error: FetchError, kind: str
) -> None:
    """A time-out after the request left may have been paid; one before it, and one that says nothing of it, was not."""
    policy = replace(POLICY, on_unknown="fail")
    upstream = Upstream(machine.clock, error)

    fetched = machine.get(key, upstream, policy)
    assert fetched == Failed("timeout", None if kind == "unknown" else POLICY.cooldown_ms)
    assert machine.get(key, upstream, policy).kind == kind
    assert len(upstream.flights) == 1


def test_an_invalidation_drops_the_value_and_refuses_a_fetch_that_began_before(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """What was fetched before the invalidation is not stored after it; its own caller still gets it."""
    operator = Machine(engine, table, machine.clock)

    def overtaken(_: Flight) -> Answer:
        operator.store.invalidate(key, Deadline.after(machine.clock, 1_000))
        return Answer(200, "text/plain", b"old")

    late = machine.get(key, overtaken)
    assert (late.how, late.stored.answer.body) == ("unstored", b"old")
    assert machine.tally.of("LateWinners") == 1

    newer = Upstream(machine.clock, b"new")
    assert machine.get(key, newer).how == "stored"
    operator.store.invalidate(key, Deadline.after(machine.clock, 1_000))
    assert machine.get(key, newer).how == "stored"
    assert newer.flights[1].fence > newer.flights[0].fence


def test_a_caller_that_wants_a_new_result_gets_one_and_joins_a_fetch_that_is_running(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """`no-cache` fetches though the result is fresh; two at once fetch once."""
    other = Machine(engine, table, machine.clock)
    upstream = Upstream(machine.clock, b"v1", b"v2", b"v3")
    machine.get(key, upstream)

    assert (renewed := machine.get(key, upstream, renew=True)).how == "stored"
    assert (renewed.forward, renewed.stored.answer.body) == ("request", b"v2")

    joined: list[Any] = []

    def meanwhile(flight: Flight) -> Answer:
        joined.append(other.get(key, upstream, renew=True, wait_ms=0))
        return upstream(flight)

    machine.get(key, meanwhile, renew=True)
    assert isinstance(joined[0], InProgress)
    assert len(upstream.flights) == 3


def test_a_renewal_that_lost_to_another_takes_its_result(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """Two callers find the same fresh result and want a new one: the second takes what the first fetched."""
    upstream = Upstream(machine.clock, b"v1", b"v2", b"v3")
    machine.get(key, upstream)
    other = Machine(engine, table, machine.clock)

    def other_renews_first(call: Callable[[], Any]) -> Any:
        other.get(key, upstream, renew=True)
        return call()

    machine.client._script["update_item"] = [other_renews_first]
    served = machine.get(key, upstream, renew=True)

    assert (served.how, served.forward, served.stored.answer.body) == ("collapsed", "request", b"v2")
    assert len(upstream.flights) == 2


def test_a_stale_result_is_served_at_once_while_it_is_renewed(machine: Machine, key: str) -> None:
    """Stale while revalidate: nobody waits, one renewal is asked for, and it is done in the background."""
    policy = replace(POLICY, stale_ms=600_000)
    upstream = Upstream(machine.clock, b"v1", b"v2")
    machine.get(key, upstream, policy)
    machine.clock.advance(policy.fresh_ms)
    asked: list[None] = []

    def ask() -> Any:
        return machine.get(key, upstream, policy, renew_later=lambda: asked.append(None))

    assert [(served.how, served.stored.answer.body) for served in (ask(), ask())] == [("stale", b"v1")] * 2
    assert (len(asked), len(upstream.flights)) == (2, 1)

    machine.get(key, upstream, policy, in_background=True, wait_ms=0)
    machine.get(key, upstream, policy, in_background=True, wait_ms=0)
    assert (ask().how, ask().stored.answer.body) == ("hit", b"v2")
    assert len(upstream.flights) == 2


def test_a_stale_result_is_served_while_somebody_renews_it_and_past_its_time_is_not(machine: Machine, key: str) -> None:
    """While a renewal runs the old result does; after stale_until it is waited for instead."""
    policy = replace(POLICY, stale_ms=5_000)
    machine.get(key, Upstream(machine.clock, b"v1"), policy)
    machine.clock.advance(policy.fresh_ms)
    machine.acquire(key, "renewing", policy)

    served = machine.get(
        key,
        Upstream(machine.clock, b"v2"),
        policy,
        wait_ms=0,
        renew_later=lambda: pytest.fail("it is being renewed"),
    )
    assert served.how == "stale"
    machine.clock.advance(5_000)
    machine.acquire(key, "renewing again", policy)
    assert isinstance(machine.get(key, Upstream(machine.clock, b"v2"), policy, wait_ms=0), InProgress)


def test_the_winner_too_gets_the_old_result_when_its_fetch_fails(machine: Machine, key: str) -> None:
    """Stale if error holds for the caller whose fetch failed."""
    policy = replace(POLICY, stale_ms=600_000)
    machine.get(key, Upstream(machine.clock, b"v1"), policy)
    machine.clock.advance(policy.fresh_ms)

    served = machine.get(key, Upstream(machine.clock, FetchError("failed")), policy)

    assert (served.how, served.stored.answer.body) == ("stale", b"v1")


@pytest.mark.parametrize(("past_ms", "how"), [(-1, "stale"), (0, None)])
def test_an_old_result_is_served_until_its_time_is_over(
    machine: Machine, key: str, past_ms: int, how: str | None
) -> None:
    """What counts is when the fetch has failed, to the millisecond."""
    policy = replace(POLICY, stale_ms=600_000)
    stored = machine.get(key, Upstream(machine.clock, b"v1"), policy).stored
    machine.clock.advance(policy.fresh_ms)

    def fails(_: Flight) -> Answer:
        machine.clock.advance(stored.stale_until - machine.clock.now_ms() + past_ms)
        raise FetchError("failed")

    served = machine.get(key, fails, policy)

    assert (served.how if isinstance(served, Served) else None) == how


@pytest.mark.parametrize("size", [65_000, 70_000, 399 * 1024, 400 * 1024, 401 * 1024, 5_000_000])
@pytest.mark.parametrize("unit", [b"\xff", "\u20ac".encode()], ids=["one byte", "three bytes"])
def test_a_body_of_any_size_is_cached_and_large_ones_stand_beside_the_table(
    machine: Machine, key: str, size: int, unit: bytes
) -> None:
    """One call per freshness window whatever the size; the record itself stays small."""
    noise = random.Random(size).randbytes(size)
    body = noise if unit == b"\xff" else (unit * (size // 3 + 1))[:size] + noise[: size // 2]
    upstream = Upstream(machine.clock, body)

    first, second = machine.get(key, upstream), machine.get(key, upstream)

    assert first.stored.answer.body == second.stored.answer.body == body
    assert second.how == "hit"
    assert len(upstream.flights) == 1
    stored = sum(len(object_) for object_ in machine.bucket.objects.values())
    assert stored in {0, len(body)}


def test_a_large_body_that_expired_is_fetched_again(machine: Machine, key: str) -> None:
    """A record that points at an object which lifecycle removed is no hit and no fault."""
    body = random.Random(1).randbytes(100_000)
    upstream = Upstream(machine.clock, body)
    machine.get(key, upstream)
    machine.bucket.objects.clear()

    assert machine.get(key, upstream).how == "stored"
    assert len(upstream.flights) == 2


def answered(status: int, code: str) -> ClientError:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetObject")


@pytest.mark.parametrize(
    ("met", "told"),
    [
        (answered(503, "SlowDown"), StoreUnavailableError),
        (ReadTimeoutError(endpoint_url="injected"), StoreUnavailableError),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), StoreUnavailableError),
        (answered(403, "AccessDenied"), ClientError),
    ],
    ids=str,
)
def test_a_large_body_that_cannot_be_read_just_now_is_load_and_no_fault(
    machine: Machine, key: str, met: Exception, told: type[Exception]
) -> None:
    """S3 that does not answer is busy; S3 that refuses is a fault. Neither is paid for again."""
    upstream = Upstream(machine.clock, random.Random(1).randbytes(100_000))
    machine.get(key, upstream)

    def refuse(**_: Any) -> Any:
        raise met

    machine.bucket.get_object = refuse  # type: ignore[method-assign]
    with pytest.raises(told):
        machine.get(key, upstream)

    assert len(upstream.flights) == 1


def test_a_result_that_cannot_be_stored_reaches_its_caller_and_frees_the_key(machine: Machine, key: str) -> None:
    """The bucket fails: the caller who paid gets the bytes, the key is not left to its lease."""
    machine.bucket.put_object = lambda **_: 1 / 0  # type: ignore[method-assign, assignment]
    body = random.Random(1).randbytes(100_000)

    served = machine.get(key, Upstream(machine.clock, body))

    assert (served.how, served.stored.answer.body) == ("unstored", body)
    record = machine.store.read(key, Deadline.after(machine.clock, 1_000))
    assert record is not None
    assert (record.state, record.failure) == (State.FAILED, "failed")


def test_hot_keys_can_be_served_from_memory_for_a_moment(machine: Machine, key: str) -> None:
    """With memory on, a hit reads nothing; it ends after memory_ms and does not outlive freshness."""
    policy = replace(POLICY, memory_ms=1_000)
    upstream = Upstream(machine.clock, b"v1", b"v2")
    stored = machine.get(key, upstream, policy).stored
    machine.client.calls.clear()

    assert machine.get(key, upstream, policy) == Served(stored, "memory")
    assert machine.client.calls == []
    machine.clock.advance(1_000)
    assert machine.get(key, upstream, policy).how == "hit"
    assert machine.get(key, upstream, policy).how == "memory"
    machine.flights.forget(key)
    assert machine.get(key, upstream, policy).how == "hit"
    assert machine.get(key, upstream, policy, renew=True).how == "stored"  # whoever wants a new result gets no memory
    machine.clock.advance(POLICY.fresh_ms)
    assert machine.get(key, upstream, policy).how == "stored"


def test_what_others_fetched_is_remembered_and_what_is_no_fresh_result_is_not(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """A collapsed answer serves the next caller; a stale one, one that could not be stored and a failure do not."""
    policy = replace(POLICY, memory_ms=1_000, stale_ms=600_000)
    other = Machine(engine, table, machine.clock)
    upstream = Upstream(machine.clock, b"v1")
    machine.get(key, upstream, policy)
    machine.clock.advance(policy.fresh_ms)

    for _ in range(2):
        assert machine.get(key, upstream, policy, renew_later=lambda: None).how == "stale"

    def other_first(call: Callable[[], Any]) -> Any:
        other.get(key, upstream, policy, renew=True)
        return call()

    machine.client.meet({"update_item": [other_first]})
    assert machine.get(key, upstream, policy, renew=True).how == "collapsed"
    assert machine.get(key, upstream, policy).how == "memory"

    with patch.object(machine.store, "complete", return_value=Busy("throttled")):
        assert machine.get(f"{key}-2", upstream, policy).how == "unstored"
    assert isinstance(machine.get(f"{key}-2", upstream, policy, wait_ms=0), InProgress)

    failing = Upstream(machine.clock, FetchError("failed"))
    for _ in range(2):
        assert isinstance(machine.get(f"{key}-3", failing, policy), Failed)


def test_without_memory_nothing_is_kept_in_it(machine: Machine, key: str) -> None:
    """A source that does not ask for it takes no room from those that do."""
    with patch.object(Memory, "put") as put:
        machine.get(key, Upstream(machine.clock, b"v1"))
    put.assert_not_called()


def test_memory_is_bounded_and_forgets_the_least_recently_used(clock: FakeClock) -> None:
    """The oldest make room; what is larger than the whole memory is not kept."""
    memory = Memory(clock, max_bytes=3_000)
    now = clock.now_ms()
    stored = [Stored(Answer(200, "t", b"x" * size), "", now, now + 9_999, now) for size in (400, 400, 400, 9_000)]
    for name, value in zip("abc", stored, strict=False):
        memory.put(name, value, 1_000)
    memory.get("a")
    memory.put("d", stored[0], 1_000)
    memory.put("e", stored[3], 1_000)

    assert [name for name in "abcde" if memory.get(name)] == ["a", "c", "d"]
