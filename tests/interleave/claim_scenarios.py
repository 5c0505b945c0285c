"""Races for claims."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from firstwrite.claim.claiming import FEW_SHARDS
from firstwrite.claim.handler import Claims
from firstwrite.claim.model import Adjustment, ClaimRequest, ClaimState, ItemSettings
from firstwrite.claim.outcomes import Queued
from firstwrite.claim.queue import Intake, message_of
from firstwrite.clock import Deadline
from tests.interleave.claim_invariants import TABLE, ClaimInvariants
from tests.interleave.explorer import ALL_FAULTS, DEATH, LOAD, NETWORK, STALL, START_MS, Scenario
from tests.interleave.racer import Seat, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interleave.engine import Engine

ITEM = "show"
TIME_LEFT_MS = 600_000
HOLD_S = 10
NEARLY_DUE_MS = 1_000
"""How long the holds that stand at the start have left; `clock` passes it."""


class Rng(random.Random):
    """Chance that chooses the first of everything, and the longest wait."""

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """Return the first."""
        del counts
        return list(population)[:k]

    def uniform(self, a: float, b: float) -> float:
        """Return the greatest."""
        return max(a, b)


def machine(client: Any, seat: Seat) -> Claims:
    """Return one process of the claim functions, at a seat."""
    claims = Claims(client, TABLE, seat, nothing, Rng(1))
    claims.store._dynamo._uniform = max
    return claims


def deadline(seat: Seat) -> Deadline:
    """Return one that only a loop without end would reach."""
    return Deadline.after(seat, TIME_LEFT_MS)


def wants(key: str, quantity: int = 1, who: str = "") -> ClaimRequest:
    """Return a request; whoever is not named is named by the key."""
    who = who or f"of-{key}"
    return ClaimRequest(who, who, ITEM, quantity, key)


def warm(claims: Claims, settings: ItemSettings) -> None:
    """Let a process know the item's settings, which never change, from an earlier request."""
    claims.store._settings.put(ITEM, settings)


class Show:
    """An item, and racers for it.

    Args:
        stock: units.
        shards: parts.
        holds: requests that are held at the start, and nearly due.
        later: requests that are held at the start, and not due for long.
        queued: requests that are noted as queued at the start.
        few: shards that a claim looks at first.
        searched: racers know of the holds that stand at the start, from an earlier search, and search for no others
            until these come due.
        settings: limit and hold.
    """

    def __init__(
        self,
        stock: int,
        shards: int = 1,
        holds: Sequence[ClaimRequest] = (),
        later: Sequence[ClaimRequest] = (),
        queued: Sequence[ClaimRequest] = (),
        *,
        few: int = FEW_SHARDS,
        searched: bool = False,
        **settings: Any,
    ) -> None:
        self._few = few
        self._searched = searched
        self.settings = ItemSettings(ITEM, stock, shards, **settings)
        self._holds = holds
        self._later = later
        self._queued = queued

    def setup(self, engine: Engine, seat: Seat) -> None:
        """Make the table and the item."""
        engine.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk"}, {"AttributeName": "sk"}],
            GlobalSecondaryIndexes=[
                {"IndexName": "due", "KeySchema": [{"AttributeName": "due_bucket"}, {"AttributeName": "hold_until"}]}
            ],
        )
        then = Seat("S", (), (), START_MS - HOLD_S * 1000 + NEARLY_DUE_MS)
        claims = machine(engine, then)
        assert claims.store.create(self.settings, deadline(then)) is None
        for request in self._holds:
            claims.claiming.claim(request, deadline(then))
        for request in self._later:
            machine(engine, seat).claiming.claim(request, deadline(seat))
        intake = Intake(claims.store, _Queue, "queue", then, nothing)  # type: ignore[arg-type]
        for request in self._queued:
            assert isinstance(intake.accept(request, deadline(then)), Queued)

    def _machine(self, seat: Seat) -> Claims:
        claims = machine(seat, seat)
        claims.claiming._few = self._few
        warm(claims, self.settings)
        if self._searched:
            claims.expiry._nothing_due_before.put(ITEM, START_MS + NEARLY_DUE_MS)
        return claims

    def claims(self, *requests: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that makes claims, one after the other."""

        def script(seat: Seat) -> None:
            claims = self._machine(seat)
            for request in requests:
                seat.note("asks", request)
                seat.note("is answered", (request, claims.claiming.claim(request, deadline(seat))))

        return script

    def settles(self, request: ClaimRequest, to: Any) -> Callable[[Seat], None]:
        """Return a racer that confirms or releases a claim."""

        def script(seat: Seat) -> None:
            claims = self._machine(seat)
            outcome = claims.settling.settle(request.claim_id, request.caller, to, deadline(seat))
            seat.note("settles", (request.claim_id, to, outcome))

        return script

    def confirms(self, request: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that confirms a claim."""
        return self.settles(request, ClaimState.CLAIMED)

    def releases(self, request: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that releases a claim."""
        return self.settles(request, ClaimState.RELEASED)

    def releases_all(self, *requests: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that releases claims, one after the other."""
        scripts = [self.releases(request) for request in requests]

        def script(seat: Seat) -> None:
            for one in scripts:
                one(seat)

        return script

    def expires(self, seat: Seat) -> None:
        """Expire what is due, as the schedule does."""
        self._machine(seat).expiry.expire_item(self.settings, deadline(seat))

    def adjusts(self, add: int, key: str) -> Callable[[Seat], None]:
        """Return a racer that restocks, or takes units back."""

        def script(seat: Seat) -> None:
            request = Adjustment("operator", ITEM, add, key)
            seat.note("asks", request)
            seat.note("is answered", (request, self._machine(seat).restocking.adjust(request, deadline(seat))))

        return script

    def works(self, *requests: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that is a worker with a batch of messages."""

        def script(seat: Seat) -> None:
            seat.note("asks", tuple(dict.fromkeys(requests)))
            undone = self._machine(seat).worker.take(_messages(requests), deadline(seat))
            for request in dict.fromkeys(requests):
                seat.note("is answered", (request, undone or "decided"))

        return script

    def queues(self, request: ClaimRequest) -> Callable[[Seat], None]:
        """Return a racer that has a claim taken in for the queue."""

        def script(seat: Seat) -> None:
            claims = self._machine(seat)
            intake = Intake(claims.store, _Queue, "queue", seat, nothing)  # type: ignore[arg-type]
            intake.accept(request, deadline(seat))

        return script

    def settled(self, *requests: ClaimRequest, queued: Sequence[ClaimRequest] = ()) -> Callable[[Seat], None]:
        """Return a latecomer: what is due expires, messages come again, all repeat, an audit recounts."""

        def script(seat: Seat) -> None:
            claims = self._machine(seat)
            while claims.expiry.expire_item(self.settings, deadline(seat)):
                seat.sleep_ms(1_000)
            if queued:
                self.works(*queued)(seat)
            self.claims(*requests)(seat)
            seat.note("audits", claims.audit.run(self.settings, deadline(seat)).outcome)

        return script


class _Queue:
    """A queue that takes everything."""

    def send_message(self, **_: Any) -> None:
        """Take a message."""


def _messages(requests: Sequence[ClaimRequest]) -> list[dict[str, str]]:
    return [{"messageId": str(number), "body": message_of(request)} for number, request in enumerate(requests)]


def all_scenarios() -> list[Scenario]:
    """Return the races for claims."""
    one, two, three = wants("one"), wants("two"), wants("three")
    last = Show(1)
    couple = Show(2)
    shards = Show(2, shards=2)
    held = Show(1, holds=[three], hold_seconds=HOLD_S)
    four = wants("four")
    both_held = Show(2, holds=[three], later=[four], hold_seconds=HOLD_S)
    big_three = wants("three", quantity=2)
    bouncing = Show(4, shards=2, holds=[big_three], later=[four], hold_seconds=HOLD_S, searched=True)
    glimpsed = Show(2, shards=2, few=1)
    half_held = Show(2, shards=2, holds=[three], hold_seconds=HOLD_S, searched=True)
    coupon = Show(4, limit_per_claimant=1)
    mine, mine_too = wants("mine", who="bob"), wants("mine-too", who="bob")
    limited = Show(2, holds=[mine], limit_per_claimant=1, hold_seconds=HOLD_S)
    empty = Show(0)
    queued = Show(1, queued=[one, two])
    plenty = Show(3, queued=[one, two])
    return [
        Scenario(
            "claim-last",
            "two claim the last unit",
            {"A": last.claims(one), "B": last.claims(two)},
            last.setup,
            ClaimInvariants(),
            budget=2,
            after=last.settled(one, two),
        ),
        Scenario(
            "claim-three",
            "three claim two units",
            {"A": couple.claims(one), "B": couple.claims(two), "C": couple.claims(three)},
            couple.setup,
            ClaimInvariants(),
            faults=LOAD | NETWORK | DEATH,
            after=couple.settled(one, two, three),
        ),
        Scenario(
            "claim-repeat",
            "one request twice at once, and again, beside another's",
            {"A": couple.claims(one, one), "B": couple.claims(one)},
            couple.setup,
            ClaimInvariants(),
            budget=2,
            after=couple.settled(one),
        ),
        Scenario(
            "claim-reused-key",
            "one key for two different requests",
            {"A": couple.claims(one), "B": couple.claims(wants("one", quantity=2))},
            couple.setup,
            ClaimInvariants(),
            budget=2,
            after=couple.settled(one),
        ),
        Scenario(
            "claim-shards",
            "one wants all of two shards, one wants a unit",
            {"A": shards.claims(wants("one", quantity=2)), "B": shards.claims(two)},
            shards.setup,
            ClaimInvariants(),
            after=shards.settled(two),
        ),
        Scenario(
            "claim-few-shards",
            "two shards, of which a claim looks at one first: whoever finds it empty looks at both",
            {"A": glimpsed.claims(one, three), "B": glimpsed.claims(two)},
            glimpsed.setup,
            ClaimInvariants(),
            after=glimpsed.settled(one, two, three),
        ),
        Scenario(
            "claim-sold-out-proof",
            "two shards: a unit comes back to one while the other's is claimed; nobody may be told sold out",
            {"A": half_held.claims(one, wants("one-more")), "B": half_held.claims(two), "C": half_held.releases(three)},
            half_held.setup,
            ClaimInvariants(),
            faults=frozenset({"conflict"}),
            budget=0,
            after=half_held.settled(),
        ),
        Scenario(
            "claim-sold-out-twice",
            "two shards: units come back to one and leave the other, twice; nobody may be told sold out",
            {
                "A": bouncing.claims(one),
                "B": bouncing.claims(two, wants("five", quantity=2)),
                "C": bouncing.releases_all(big_three, four),
            },
            bouncing.setup,
            ClaimInvariants(),
            budget=0,
        ),
        Scenario(
            "claim-sold-out-restock",
            "two shards without stock, one restocks while another claims all of it",
            {"A": shards.claims(wants("one", quantity=2), wants("two", quantity=2)), "B": shards.adjusts(2, "r")},
            shards.setup,
            ClaimInvariants(),
            faults=LOAD | NETWORK,
            after=shards.settled(),
        ),
        Scenario(
            "claim-limit",
            "one claimant, two keys, one unit each may have",
            {"A": coupon.claims(mine), "B": coupon.claims(mine_too)},
            coupon.setup,
            ClaimInvariants(1),
            budget=2,
            after=coupon.settled(mine, mine_too),
        ),
        Scenario(
            "hold-settle",
            "a hold is confirmed, released and due at once, beside another",
            {"A": both_held.confirms(three), "B": both_held.releases(three), "C": both_held.expires},
            both_held.setup,
            ClaimInvariants(all_decided=True),
            after=both_held.settled(),
        ),
        Scenario(
            "hold-confirm-expire",
            "a hold comes due while it is confirmed, beside another",
            {"A": both_held.confirms(three), "B": both_held.expires},
            both_held.setup,
            ClaimInvariants(all_decided=True),
            faults=ALL_FAULTS | {"stale"},
            budget=2,
            after=both_held.settled(),
        ),
        Scenario(
            "hold-limited",
            "a claimant's hold is released and comes due while he claims another",
            {"A": limited.claims(mine_too), "B": limited.releases(mine), "C": limited.expires},
            limited.setup,
            ClaimInvariants(1, all_decided=True),
            faults=STALL | DEATH | {"lost-reply"},
            after=limited.settled(),
        ),
        Scenario(
            "hold-due-claimed",
            "the last unit is held and due: who claims it expires the hold, while another confirms it",
            {"A": held.claims(one), "B": held.confirms(three)},
            held.setup,
            ClaimInvariants(all_decided=True),
            budget=2,
            after=held.settled(),
        ),
        Scenario(
            "stock-restock",
            "one restocks twice with one key while another claims",
            {"A": empty.claims(one), "B": empty.adjusts(1, "r"), "C": empty.adjusts(1, "r")},
            empty.setup,
            ClaimInvariants(),
            faults=LOAD | DEATH | {"lost-reply", "late-request"},
            after=empty.settled(one),
        ),
        Scenario(
            "stock-withdraw",
            "the last unit is taken back, restocked and claimed",
            {"A": last.claims(one), "B": last.adjusts(-1, "w"), "C": last.adjusts(1, "r")},
            last.setup,
            ClaimInvariants(),
            faults=frozenset({"conflict", "lost-reply"}),
            after=last.settled(one),
        ),
        Scenario(
            "queue-duplicates",
            "two workers have the same two messages, one of them twice; one unit",
            {"A": queued.works(one, two, one), "B": queued.works(two, one)},
            queued.setup,
            ClaimInvariants(all_decided=True),
            after=queued.settled(queued=[one, two]),
        ),
        Scenario(
            "queue-and-direct",
            "a worker has a message whose caller also claims at once",
            {"A": plenty.works(one, two), "B": plenty.claims(one)},
            plenty.setup,
            ClaimInvariants(all_decided=True),
            budget=2,
            after=plenty.settled(queued=[one, two]),
        ),
        Scenario(
            "queue-asked-again",
            "a rejected request is asked again while a worker has its message once more, and stock comes back",
            {"A": queued.works(one, two), "B": queued.queues(two), "C": queued.adjusts(1, "r")},
            queued.setup,
            ClaimInvariants(all_decided=True),
            faults=DEATH | {"lost-reply"},
            after=queued.settled(queued=[one, two]),
        ),
    ]
