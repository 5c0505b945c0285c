"""Confirm, release, expiry, restock and the queue, all at once."""

from __future__ import annotations

import threading
from collections import Counter as Tallied
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from firstwrite.claim.model import ClaimRequest, ClaimState
from firstwrite.claim.outcomes import Adjusted, Claimed, NotEnoughStock, Refused, Settled, SoldOut
from firstwrite.claim.queue import message_of
from firstwrite.clock import SystemClock
from firstwrite.conditional import Busy
from tests.support.clocks import FakeClock
from tests.support.engine import create_stock_table
from tests.support.stock import Counter, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

ROUNDS = 100
HOLD_MS = 60_000


@pytest.fixture(scope="module")
def table(engine: DynamoDBClient) -> str:
    return create_stock_table(engine)


@pytest.fixture
def item() -> str:
    return f"item-{uuid4().hex}"


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions in threads that start together; return their results in order."""
    together = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        together.wait(timeout=10)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


class AtDeadline:
    """Machines that meet at the deadline of one hold: one whose clock says just before, the others at it.

    Args:
        engine: the store.
        table: the stock table.
        break_writes: what a broken twin does to each machine, nothing in the real one.
    """

    def __init__(
        self, engine: DynamoDBClient, table: str, break_writes: Callable[[Counter], None] = lambda _: None
    ) -> None:
        self.before = Counter(engine, table, FakeClock(), seed=1)
        self.after = Counter(engine, table, FakeClock(), seed=2)
        self.sweeper = Counter(engine, table, FakeClock(), seed=3)
        for machine in (self.before, self.after, self.sweeper):
            break_writes(machine)

    def race(self, item: str) -> tuple[list[Any], ClaimState]:
        """Let confirm, release and expiry race for a hold; return the first two's outcomes and what became of it."""
        settings = self.before.create(item, 9, 1, hold_seconds=HOLD_MS // 1000, limit_per_claimant=6)
        claim = self.before.claim(item, "k", quantity=2).claim
        # Units that a second winner could take instead, were the claim's own state not asked for.
        self.before.clock.advance(HOLD_MS)  # type: ignore[attr-defined]
        self.before.claim(item, "bystander", quantity=4)
        deadline = claim.hold_until
        self.before.clock._now_ms = deadline - 1  # type: ignore[attr-defined]
        for machine in (self.after, self.sweeper):
            machine.clock._now_ms = deadline  # type: ignore[attr-defined]

        def confirm() -> Any:
            return self.before.confirm(claim.claim_id)

        def release() -> Any:
            return self.after.release(claim.claim_id)

        def expire() -> Any:
            return self.sweeper.protocols.expiry.expire_item(settings, self.sweeper.deadline())

        outcomes = at_once(confirm, release, expire)[:2]
        return outcomes, self.before.state(claim.claim_id)

    def check(self, item: str, outcomes: Sequence[Any], state: ClaimState) -> None:
        """One winner, which the losers were told; units went where it says, once."""
        confirmed, released = outcomes
        assert isinstance(confirmed, Settled) == (state is ClaimState.CLAIMED)
        assert isinstance(released, Settled) == (state is ClaimState.RELEASED)
        assert isinstance(confirmed, Settled | Refused)
        assert isinstance(released, Settled | Refused)
        (shard,) = self.before.shards(item)
        counts = (shard.available, shard.held, shard.claimed)
        assert counts == ((3, 4, 2) if state is ClaimState.CLAIMED else (5, 4, 0))
        look = self.before.store.look(self.before.settings(item), self.before.deadline(), claimants=["alice"])
        assert look.units["alice"] == shard.claimed + 4
        assert self.before.audit(item).outcome == "balanced"


def test_of_confirm_release_and_expiry_one_wins(engine: DynamoDBClient, table: str, item: str) -> None:
    """A hundred holds, each with all three at its deadline: one final state each, its units in one place."""
    winners: Tallied[ClaimState] = Tallied()
    for number in range(ROUNDS):
        machines = AtDeadline(engine, table)
        outcomes, state = machines.race(f"{item}-{number}")
        machines.check(f"{item}-{number}", outcomes, state)
        winners[state] += 1
    assert len(winners) > 1, "a race that always has the same winner is none"


def without_state(counter: Counter) -> None:
    """Break a machine: it reads that a claim is held, and writes without asking again."""
    make = counter.store._writes.settle_claim

    def settle_claim(*arguments: Any) -> Any:
        write = make(*arguments)
        object.__setattr__(write, "condition", "attribute_exists(pk)")
        object.__setattr__(write, "values", {name: value for name, value in write.values.items() if name != ":held"})
        return write

    object.__setattr__(counter.store, "_writes", _Broken(counter.store._writes, settle_claim))


class _Broken:
    """Writes, one of them replaced."""

    def __init__(self, writes: Any, settle_claim: Any) -> None:
        self._writes = writes
        self.settle_claim = settle_claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writes, name)


def test_a_twin_that_reads_then_writes_is_caught_by_the_same_check(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """Without the state in the condition, some round ends with two winners, and the check says so."""
    with pytest.raises(AssertionError):  # noqa: PT012 - any round may be the one
        for number in range(ROUNDS):
            machines = AtDeadline(engine, table, without_state)
            outcomes, state = machines.race(f"{item}-{number}")
            machines.check(f"{item}-{number}", outcomes, state)


def test_restock_and_withdrawal_race_with_claims(engine: DynamoDBClient, table: str, item: str) -> None:
    """Twelve machines claim while one restocks and one takes back: every unit is in one place, each key counts once."""
    machines = [Counter(engine, table, SystemClock(), seed) for seed in range(14)]
    machines[0].create(item, 40, 4)

    def claims(machine: Counter, number: int) -> list[Any]:
        return [machine.claim(item, f"{number}-{n}") for n in range(10)]

    def adjust(machine: Counter, add: int) -> list[Any]:
        return [machine.adjust(item, add, f"{add}-{n // 2}") for n in range(20)]

    actions = [lambda n=n, m=m: claims(m, n) for n, m in enumerate(machines[:12])]
    *sold, added, taken = at_once(*actions, lambda: adjust(machines[12], 6), lambda: adjust(machines[13], -3))

    kinds = Tallied(type(outcome) for outcomes in sold for outcome in outcomes)
    assert set(kinds) <= {Claimed, SoldOut}
    assert added == [Adjusted(), Adjusted(replayed=True)] * 10
    back = sum(outcome == Adjusted() for outcome in taken)
    assert {type(outcome) for outcome in taken} <= {Adjusted, NotEnoughStock}
    check_units(machines[0], item, total=40 + 60 - 3 * back, claimed=kinds[Claimed])


def check_units(counter: Counter, item: str, *, total: int, claimed: int) -> None:
    """The item has this many units, and this many are claimed."""
    available = counter.available(item)
    shards = counter.shards(item)
    assert sum(shard.total for shard in shards) == counter.store.total(item, counter.deadline()) == total
    assert sum(shard.claimed for shard in shards) == claimed == total - available
    assert counter.audit(item).outcome == "balanced"


def test_a_restock_that_writes_what_it_read_is_caught_by_the_same_check(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """The check can fail: a twin that adds to the count it read loses a claim made meanwhile."""
    seller, naive = (Counter(engine, table, SystemClock(), seed) for seed in range(2))
    naive.create(item, 10, 1)
    (seen,) = naive.shards(item)
    assert isinstance(seller.claim(item, "k"), Claimed)
    engine.update_item(
        TableName=table,
        Key={"pk": {"S": f"item#{item}#shard#0"}, "sk": {"S": "stock"}},
        UpdateExpression="SET available = :available, #total = :total",
        ExpressionAttributeNames={"#total": "total"},
        ExpressionAttributeValues={
            ":available": {"N": str(seen.available + 5)},
            ":total": {"N": str(seen.total + 5)},
        },
    )
    with pytest.raises(AssertionError):
        check_units(seller, item, total=15, claimed=1)


def deliver(machines: list[Counter], batches: list[list[str]]) -> list[list[str]]:
    """Let each machine take its batch at once."""
    return at_once(
        *(
            lambda machine=machine, bodies=bodies: machine.protocols.worker.take(batch_of(*bodies), machine.deadline())
            for machine, bodies in zip(machines, batches, strict=True)
        )
    )


def test_the_same_messages_with_four_workers_at_once_are_claimed_once(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """Sixty requests for stock 50, every one of them with every worker, in other orders: fifty claims."""
    machines = [Counter(engine, table, SystemClock(), seed) for seed in range(4)]
    machines[0].create(item, 50, 4)
    requests = [ClaimRequest("alice", f"user-{n}", item, 1, f"k{n}") for n in range(60)]
    bodies = [message_of(request) for request in requests]

    failed = deliver(machines, [bodies, bodies[::-1], bodies[30:] + bodies[:30], bodies[20:] + bodies[:20]])
    assert failed == [[]] * 4

    claims = [machines[0].store.claim(request.claim_id, machines[0].deadline()) for request in requests]
    states = Tallied(claim.state for claim in claims if claim)
    assert states == {ClaimState.CLAIMED: 50, ClaimState.REJECTED: 10}
    check_units(machines[0], item, total=50, claimed=50)


def test_a_worker_that_does_not_ask_whether_a_claim_exists_is_caught_by_the_same_check(
    engine: DynamoDBClient, table: str, item: str
) -> None:
    """The check can fail: without the claim's condition a redelivery takes units twice."""
    machines = [Counter(engine, table, SystemClock(), seed) for seed in range(2)]
    machines[0].create(item, 50, 4)
    bodies = [message_of(ClaimRequest("alice", f"user-{n}", item, 1, f"k{n}")) for n in range(10)]
    for machine in machines:
        make = machine.store._writes.grant_claim
        broken: Any = _Broken(machine.store._writes, machine.store._writes.settle_claim)

        def grant_claim(*arguments: Any, make: Any = make, **options: Any) -> Any:
            write = make(*arguments, **options)
            for name, value in (("condition", "size(pk) < :k OR attribute_not_exists(pk)"), ("names", {})):
                object.__setattr__(write, name, value)
            object.__setattr__(write, "values", {":k": 9_999})
            return write

        broken.grant_claim = grant_claim
        object.__setattr__(machine.store, "_writes", broken)
        look = machine.store.look

        def look_at_stock_only(*arguments: Any, look: Any = look, **options: Any) -> Any:
            seen = look(*arguments, **options)
            object.__setattr__(seen, "claims", {})
            return seen

        machine.store.look = look_at_stock_only  # type: ignore[method-assign]
    deliver(machines, [bodies, bodies])
    with pytest.raises(AssertionError):
        check_units(machines[0], item, total=50, claimed=10)


def test_synchronous_claims_and_the_queue_share_one_stock(engine: DynamoDBClient, table: str, item: str) -> None:
    """Four workers and eight callers at one item, some with the same requests: nothing is sold twice."""
    machines = [Counter(engine, table, SystemClock(), seed) for seed in range(12)]
    machines[0].create(item, 120, 8)
    requests = [ClaimRequest("alice", f"user-{n}", item, 1, f"k{n}") for n in range(160)]
    bodies = [message_of(request) for request in requests]

    def call(machine: Counter, mine: Sequence[ClaimRequest]) -> list[Any]:
        return [machine.claiming.claim(request, machine.deadline()) for request in mine]

    def work(machine: Counter, mine: Sequence[str]) -> list[str]:
        return machine.protocols.worker.take(batch_of(*mine), machine.deadline())

    at_once(
        *(lambda m=m, n=n: work(m, bodies[n * 40 : n * 40 + 40]) for n, m in enumerate(machines[:4])),
        *(lambda m=m, n=n: call(m, requests[n * 20 : n * 20 + 20]) for n, m in enumerate(machines[4:])),
    )

    claims = [machines[0].store.claim(request.claim_id, machines[0].deadline()) for request in requests]
    granted = sum(claim is not None and claim.state is ClaimState.CLAIMED for claim in claims)
    assert granted == 120
    check_units(machines[0], item, total=120, claimed=120)


def test_a_sold_out_storm_and_a_sweep_bring_each_unit_back_once(engine: DynamoDBClient, table: str, item: str) -> None:
    """Twenty holds come due under eight claimers and two sweepers: the units are back once, and claimed once."""
    machines = [Counter(engine, table, FakeClock(), seed) for seed in range(10)]
    machines[0].create(item, 20, 4, hold_seconds=HOLD_MS // 1000)
    for number in range(20):
        machines[0].claim(item, f"old-{number}")
    for machine in machines:
        machine.clock._now_ms = machines[0].clock.now_ms() + HOLD_MS  # type: ignore[attr-defined]
    machines[0].clock.advance(HOLD_MS)  # type: ignore[attr-defined]

    def claim(machine: Counter, number: int) -> list[Any]:
        return [machine.claim(item, f"new-{number}-{n}") for n in range(4)]

    results = at_once(
        *(lambda m=m, n=n: claim(m, n) for n, m in enumerate(machines[:8])), *(m.expire for m in machines[8:])
    )
    kinds = Tallied(type(outcome) for outcomes in results[:8] for outcome in outcomes)
    assert set(kinds) <= {Claimed, SoldOut, Busy}
    assert kinds[Claimed] == 20
    shards = machines[0].shards(item)
    assert sum(shard.held for shard in shards) == 20
    assert machines[0].audit(item).outcome == "balanced"
