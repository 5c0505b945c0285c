"""Many claims of one item in one transaction: how a hot item passes a thousand claims a second.

Guarantees what `claiming` does, for each request of the group. What differs is the cost: one stock write takes the
units of up to 99 claims, where each claim alone would take its own and meet all others there.

It works in rounds. Each looks at the stock and at the claims themselves, answers whatever the look decides, and
commits as many of the rest as fit, in order. A transaction that fails, because one claim was decided elsewhere or a
shard ran short, is no answer to anybody: the next look singles out exactly those it was about.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from firstwrite.claim.model import ClaimState
from firstwrite.claim.outcomes import Claimed, LimitReached, Replayed, SoldOut
from firstwrite.claim.rules import Backoff, from_several, is_sold_out, meaning, new_claim
from firstwrite.claim.store import MOST_WRITES, Granted
from firstwrite.conditional import Busy, new_write_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstwrite.claim.expiry import Expiry
    from firstwrite.claim.model import Claim, ClaimRequest, ItemSettings, Shard
    from firstwrite.claim.outcomes import Outcome
    from firstwrite.claim.store import Look, StockStore
    from firstwrite.clock import Clock, Deadline


class GroupCommit:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        expiry: brings back the units of holds that are due, before anyone is turned away.
        clock: time.
        rng: picks shards and jitter.
    """

    def __init__(self, store: StockStore, expiry: Expiry, clock: Clock, rng: random.Random | None = None) -> None:
        self._store = store
        self._expiry = expiry
        self._clock = clock
        self._random = rng or random.Random()

    def decide(
        self, settings: ItemSettings, requests: Sequence[ClaimRequest], deadline: Deadline
    ) -> dict[str, Outcome]:
        """Grant what stock and limits allow, in order, each request once.

        Args:
            settings: of the item that all of them want.
            requests: no claim id twice.
            deadline: after this, requests are `Busy`; a repeat will find what was granted.

        Returns:
            Each request's outcome, by claim id.

        Raises:
            DataFaultError: the item's stock is not of the form this code writes.
            StoreUnavailableError: a read was not answered within the deadline.
        """
        group = _Group(settings, requests)
        backoff = Backoff(self._clock, self._random)
        before: Sequence[Shard] | None = None
        searched = False
        while group.undecided:
            look = self._store.look(
                settings,
                deadline,
                claim_ids=list(group.undecided),
                claimants=group.claimants if settings.limit_per_claimant is not None else (),
            )
            turned_away = group.judge(before, look)
            came_back = bool(turned_away) and not searched and self._expiry.expire_item(settings, deadline)
            if isinstance(came_back, Busy):
                if not backoff.wait(deadline):
                    break
                continue
            searched = came_back  # the next look is the last word on those, however slow the table is
            if came_back:
                before = None
                continue
            group.outcomes |= turned_away
            before = look.shards
            claims = self._plan(group, look)
            if claims and isinstance(self._commit(group, claims, deadline), Busy) and not backoff.wait(deadline):
                break
            if not deadline.left_ms():
                break
        for claim_id in group.undecided:
            group.outcomes[claim_id] = Busy("conflict")
        return group.outcomes

    def _commit(self, group: _Group, claims: Sequence[Claim], deadline: Deadline) -> object:
        # Each transaction is a write of its own, or a shard that an earlier one changed would vouch for this one.
        write_id = new_write_id()
        group.write_ids.add(write_id)
        outcome = self._store.grant(
            claims, group.settings.limit_per_claimant, deadline.within(0), write_id, though_rejected=False
        )
        if isinstance(outcome, Granted):
            group.outcomes |= {claim.claim_id: Claimed(claim) for claim in outcome.claims}
        return outcome

    def _plan(self, group: _Group, look: Look) -> list[Claim]:
        """Return the claims to commit: what the look has units for, in order, as many as one transaction takes."""
        room = MOST_WRITES
        limit = group.settings.limit_per_claimant
        stock = _StockInHand(look.shards, sum(request.quantity for request in group.undecided.values()), self._random)
        units = dict(look.units)
        counted: set[str] = set()
        claims: list[Claim] = []
        now = self._clock.now_ms()
        for claim_id, request in group.undecided.items():
            if limit is not None and units[request.claimant] + request.quantity > limit:
                continue  # true only if those before it are granted, so the next look says
            taken = stock.offer(request.quantity)
            if taken is None:
                continue
            cost = 1 + stock.new_shards(taken) + (limit is not None and request.claimant not in counted)
            if cost > room:
                break
            room -= cost
            stock.take(taken)
            counted.add(request.claimant)
            if limit is not None:
                units[request.claimant] += request.quantity
            asked = look.claims.get(claim_id)
            claims.append(new_claim(request, group.settings, taken, now, asked.created_at if asked else None))
        return claims


class _Group:
    """Requests of one item and what has become of them."""

    def __init__(self, settings: ItemSettings, requests: Sequence[ClaimRequest]) -> None:
        self.settings = settings
        self.outcomes: dict[str, Outcome] = {}
        self.write_ids: set[str] = set()
        self._requests = {request.claim_id: request for request in requests}

    @property
    def undecided(self) -> dict[str, ClaimRequest]:
        return {claim_id: request for claim_id, request in self._requests.items() if claim_id not in self.outcomes}

    @property
    def claimants(self) -> list[str]:
        return list(dict.fromkeys(request.claimant for request in self.undecided.values()))

    def judge(self, before: Sequence[Shard] | None, look: Look) -> dict[str, Outcome]:
        """Note whatever a look says is decided already; return those whom it turns away."""
        limit = self.settings.limit_per_claimant
        turned_away: dict[str, Outcome] = {}
        for claim_id, request in self.undecided.items():
            known = self._known(look.claims.get(claim_id), request)
            if known is not None:
                self.outcomes[claim_id] = known
            elif limit is not None and look.units[request.claimant] + request.quantity > limit:
                turned_away[claim_id] = LimitReached(limit)
            elif is_sold_out(before, look.shards, request.quantity, self.settings.shards):
                turned_away[claim_id] = SoldOut()
        return turned_away

    def _known(self, claim: Claim | None, request: ClaimRequest) -> Outcome | None:
        if claim is None:
            return None
        if claim.state is ClaimState.REJECTED:
            # The caller may have read it. Only the caller asks again, which makes it queued.
            return Replayed(claim)
        known = meaning(claim, request, "")
        if isinstance(known, Replayed) and claim.write_id in self.write_ids:
            return Claimed(claim)
        return known


class _StockInHand:
    """What a look has seen of the stock, and what a plan has taken from it: few shards, for each costs a write."""

    def __init__(self, shards: Sequence[Shard], wanted: int, rng: random.Random) -> None:
        self._free = {shard.number: shard.available for shard in shards}
        self._used: set[int] = set()
        # Of those that have enough for all, any: other workers are at the same stock.
        shuffled = rng.sample(list(shards), len(shards))
        self._order = [shard.number for shard in sorted(shuffled, key=lambda shard: -min(shard.available, wanted))]

    def offer(self, quantity: int) -> Mapping[int, int] | None:
        """Return from which shards a quantity can be taken, None where there is too little."""
        for number in (*(number for number in self._order if number in self._used), *self._order):
            if self._free[number] >= quantity:
                return {number: quantity}
        return from_several(self._free, quantity)

    def new_shards(self, taken: Mapping[int, int]) -> int:
        """Return how many shards would be used for the first time."""
        return len(taken.keys() - self._used)

    def take(self, taken: Mapping[int, int]) -> None:
        """Take what was offered."""
        for number, units in taken.items():
            self._free[number] -= units
        self._used |= taken.keys()
