"""Whatever is done to an item, in whatever order: a model that is a dozen lines long says what must come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from firstwrite.claim.model import ClaimRequest, ClaimState
from firstwrite.claim.outcomes import Adjusted, Claimed, LimitReached, NotEnoughStock, Refused, Settled, SoldOut
from firstwrite.claim.queue import message_of
from tests.support.clocks import FakeClock
from tests.support.engine import create_stock_table
from tests.support.stock import Counter, batch_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HOLD_MS = 60_000
LIMIT = 4
FINAL = {ClaimState.CLAIMED, ClaimState.RELEASED, ClaimState.EXPIRED}
QUANTITIES = st.integers(1, 3)
CLAIMANTS = st.sampled_from(["ann", "bob"])


class StockMachine(RuleBasedStateMachine):
    """One item under claims, settlements, time and operators, beside a model of it."""

    client: Any
    claims: Bundle[str] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.counter = Counter(self.client, create_stock_table(self.client), FakeClock())
        self.total = 0
        self.held: dict[str, tuple[str, int, int]] = {}
        self.claimed: dict[str, tuple[str, int]] = {}
        self.seen: dict[str, ClaimState] = {}
        self.keys = 0

    @initialize(stock=st.integers(0, 12), shards=st.integers(1, 4), holds=st.booleans())
    def create(self, stock: int, shards: int, *, holds: bool) -> None:
        self.holds = holds
        self.total = stock
        self.counter.create("item", stock, shards, limit_per_claimant=LIMIT, hold_seconds=60 if holds else None)

    def left(self) -> int:
        """Return what can be claimed, after what is due came back."""
        held = sum(quantity for _, quantity, until in self.held.values() if until > self.counter.clock.now_ms())
        return self.total - held - sum(quantity for _, quantity in self.claimed.values())

    def units_of(self, claimant: str) -> int:
        now = self.counter.clock.now_ms()
        held = sum(units for name, units, until in self.held.values() if name == claimant and until > now)
        return held + sum(units for name, units in self.claimed.values() if name == claimant)

    def granted(self, claim_id: str, claimant: str, quantity: int) -> None:
        if self.holds:
            self.held[claim_id] = (claimant, quantity, self.counter.clock.now_ms() + HOLD_MS)
        else:
            self.claimed[claim_id] = (claimant, quantity)

    @rule(target=claims, claimant=CLAIMANTS, quantity=QUANTITIES)
    def claim(self, claimant: str, quantity: int) -> Any:
        self.keys += 1
        outcome = self.counter.claim("item", f"k{self.keys}", quantity, claimant=claimant)
        over_limit = self.units_of(claimant) + quantity > LIMIT
        match outcome:
            case Claimed(claim):
                assert quantity <= self.left()
                assert not over_limit
                self.granted(claim.claim_id, claimant, quantity)
                return claim.claim_id
            case SoldOut():
                assert quantity > self.left()
            case LimitReached():
                assert over_limit
            case _:
                raise AssertionError(outcome)
        return multiple()

    @rule(asked=st.lists(st.tuples(CLAIMANTS, QUANTITIES), min_size=1, max_size=6), twice=st.booleans())
    def take_batch(self, asked: list[tuple[str, int]], *, twice: bool) -> None:
        requests = []
        for claimant, quantity in asked:
            self.keys += 1
            requests.append(ClaimRequest("alice", claimant, "item", quantity, f"k{self.keys}"))
        bodies = [message_of(request) for request in requests] * (2 if twice else 1)
        assert self.counter.protocols.worker.take(batch_of(*bodies), self.counter.deadline()) == []
        for request in requests:
            claim = self.counter.store.claim(request.claim_id, self.counter.deadline())
            assert claim is not None
            if claim.state is not ClaimState.REJECTED:
                self.granted(claim.claim_id, claim.claimant, claim.quantity)
        assert self.left() >= 0

    @rule(claim_id=claims)
    def confirm(self, claim_id: str) -> None:
        outcome = self.counter.confirm(claim_id)
        held = self.held.get(claim_id)
        if held and held[2] > self.counter.clock.now_ms():
            assert isinstance(outcome, Settled)
            claimant, quantity, _ = self.held.pop(claim_id)
            self.claimed[claim_id] = (claimant, quantity)
        else:
            assert isinstance(outcome, Settled if claim_id in self.claimed else Refused)

    @rule(claim_id=claims)
    def release(self, claim_id: str) -> None:
        before = self.counter.state(claim_id)
        outcome = self.counter.release(claim_id)
        assert isinstance(outcome, Settled) == (before in (ClaimState.HELD, ClaimState.RELEASED))
        if before is ClaimState.HELD:
            self.held.pop(claim_id)

    @rule(by_ms=st.sampled_from([1_000, 20_000, HOLD_MS]))
    def pass_time(self, by_ms: int) -> None:
        self.counter.clock.advance(by_ms)  # type: ignore[attr-defined]

    @precondition(lambda self: self.holds)
    @rule()
    def sweep(self) -> None:
        assert self.counter.expire()
        for claim_id, (_, _, until) in self.held.items():
            if until <= self.counter.clock.now_ms():
                assert self.counter.state(claim_id) is ClaimState.EXPIRED

    @rule(add=st.integers(-6, 6).filter(bool), repeats=st.integers(1, 2))
    def adjust(self, add: int, repeats: int) -> None:
        self.keys += 1
        enough = self.left() + add >= 0
        for repeat in range(repeats):
            outcome = self.counter.adjust("item", add, f"k{self.keys}")
            assert outcome == (Adjusted(replayed=repeat > 0) if enough else NotEnoughStock())
        if enough:
            self.total += add

    @invariant()
    def stock_and_claims_agree_to_the_unit(self) -> None:
        shards = self.counter.shards("item")
        for shard in shards:
            assert shard.available + shard.held + shard.claimed == shard.total
            assert min(shard.available, shard.held, shard.claimed) >= 0
        assert sum(shard.total for shard in shards) == self.total
        assert sum(shard.claimed for shard in shards) == sum(quantity for _, quantity in self.claimed.values())

    @invariant()
    def a_count_is_what_its_claimant_has(self) -> None:
        look = self.counter.store.look(
            self.counter.settings("item"),
            self.counter.deadline(),
            claim_ids=[*self.held, *self.claimed],
            claimants=["ann", "bob"],
        )
        for claimant, units in look.units.items():
            owned = [claim for claim in look.claims.values() if claim.state in (ClaimState.HELD, ClaimState.CLAIMED)]
            assert units == sum(claim.quantity for claim in owned if claim.claimant == claimant)

    def teardown(self) -> None:
        if self.counter.store.settings("item", self.counter.deadline()):
            assert self.counter.audit("item").outcome == "balanced"

    @invariant()
    def a_final_state_is_final(self) -> None:
        for claim_id in {*self.held, *self.claimed, *self.seen}:
            state = self.counter.state(claim_id)
            before = self.seen.get(claim_id)
            assert before not in FINAL or before is state
            self.seen[claim_id] = state


def test_any_order_of_events_leaves_stock_and_claims_in_agreement(engine: DynamoDBClient) -> None:
    """After every step available + held + claimed = total, and each claim has one final state."""

    class Machine(StockMachine):
        client = engine

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            # Shrinking a failure takes minutes on an engine; the steps that led to it are printed as they are.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
