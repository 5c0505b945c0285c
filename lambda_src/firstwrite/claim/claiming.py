"""Claims on limited stock.

Guarantees: N units are claimed at most N times; the same request, however often repeated, is one claim; a rejection
is only said when it was true at some instant of the request; load and conflict are `Busy`, never a rejection.

One claim is one transaction: take the units where enough are left, put the claim where it does not exist. Stock is
spread over shards, because transactions that meet on one item cancel each other. Nothing is stored about a rejection,
so the same request may succeed later, when stock has come back.
"""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

from firstwrite.claim.outcomes import OUTCOME_NAMES, Claimed, LimitReached, SoldOut, UnknownItem
from firstwrite.claim.remembered import Remembered
from firstwrite.claim.rules import Backoff, from_several, is_sold_out, meaning, new_claim
from firstwrite.claim.store import Granted, NotGranted
from firstwrite.conditional import Busy, new_write_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from firstwrite.claim.expiry import Expiry
    from firstwrite.claim.model import ClaimRequest, ItemSettings, Shard
    from firstwrite.claim.outcomes import Outcome
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Clock, Deadline
    from firstwrite.observability import Count

FEW_SHARDS = 4
"""How many a first look reads: a read of all costs more than the claim itself. With half of the shards empty, one first
look in 16 finds nothing and is followed by one at all of them."""
TRIES_PER_LOOK = 3
"""Shards to try on what one look saw, before looking again."""


class Claiming:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        expiry: brings back the units of holds that are due, before anyone is turned away.
        clock: time.
        count: told of every outcome as `Claims`.
        rng: picks shards and jitter.
    """

    def __init__(
        self, store: StockStore, expiry: Expiry, clock: Clock, count: Count, rng: random.Random | None = None
    ) -> None:
        self._store = store
        self._expiry = expiry
        self._clock = clock
        self._count = count
        self._random = rng or random.Random()
        self._few = FEW_SHARDS
        self._last_whole_look: Remembered[Sequence[Shard]] = Remembered()

    def claim(self, request: ClaimRequest, deadline: Deadline) -> Outcome:
        """Grant the request if stock and limit allow, or return what was granted to it before.

        Args:
            request: who asks for how much of what, under which key.
            deadline: after this, an undecided request is `Busy`; nothing was taken, or a repeat will find it.

        Raises:
            DataFaultError: the item's stock is not of the form this code writes.
            StoreUnavailableError: a read was not answered within the deadline.
        """
        outcome = self._decide(request, deadline)
        self._count("Claims", outcome=OUTCOME_NAMES[type(outcome)])
        return outcome

    def _decide(self, request: ClaimRequest, deadline: Deadline) -> Outcome:
        settings = self._store.settings(request.item, deadline)
        if settings is None:
            return UnknownItem()
        limit = settings.limit_per_claimant
        if limit is not None and request.quantity > limit:
            return LimitReached(limit)
        return self._decide_on(settings, request, deadline)

    def _decide_on(self, settings: ItemSettings, request: ClaimRequest, deadline: Deadline) -> Outcome:
        write_id = new_write_id()
        backoff = Backoff(self._clock, self._random)
        few = settings.shards > self._few and self._have_sufficed(settings.item, request.quantity)
        searched = False  # for holds that are due; once a request, however slow the table is
        while True:
            look_at = self._random.sample(range(settings.shards), self._few) if few else range(settings.shards)
            outcome = self._look_and_try(settings, request, deadline, write_id, look_at)
            match outcome:
                case None:
                    few = False
                    again = deadline.left_ms() > 0
                case Busy():
                    again = backoff.wait(deadline)
                case SoldOut() | LimitReached() if not searched:
                    came_back = self._expiry.expire_item(settings, deadline)
                    if isinstance(came_back, Busy):
                        outcome, again = came_back, backoff.wait(deadline)
                    else:
                        searched = again = came_back
                case _:
                    again = False
            if not again:
                return outcome or Busy("conflict")

    def _have_sufficed(self, item: str, quantity: int) -> bool:
        """Whether, as far as this process knows, one shard may have `quantity` units."""
        last = self._last_whole_look.get(item)
        return last is None or any(shard.available >= quantity for shard in last)

    def _look_and_try(
        self,
        settings: ItemSettings,
        request: ClaimRequest,
        deadline: Deadline,
        write_id: str,
        look_at: Sequence[int],
    ) -> Outcome | None:
        """Look once and try what the look suggests; None where only a new look, at all shards, tells."""
        # Taken before the look begins: two looks prove something only if one ended before the other began.
        before = self._last_whole_look.get(settings.item)
        look = self._store.look(settings, deadline, shards=look_at, claim_ids=[request.claim_id])
        if len(look.shards) == settings.shards:
            self._last_whole_look.put(settings.item, look.shards)
        existing = look.claims.get(request.claim_id)
        known = meaning(existing, request, write_id) if existing else None
        if known is not None:
            return known
        if is_sold_out(before, look.shards, request.quantity, settings.shards):
            return SoldOut()
        return self._try(request, settings, look.shards, deadline, write_id)

    def _try(
        self, request: ClaimRequest, settings: ItemSettings, shards: Sequence[Shard], deadline: Deadline, write_id: str
    ) -> Outcome | None:
        """Try a few ways to take the units; None where all of them met a shortage, so that a new look tells more."""
        busy: Busy | None = None
        for taken in islice(self._ways(shards, request.quantity), TRIES_PER_LOOK):
            claim = new_claim(request, settings, taken, self._clock.now_ms())
            # One attempt each: on a conflict another shard is a better bet than patience.
            outcome = self._store.grant([claim], settings.limit_per_claimant, deadline.within(0), write_id)
            match outcome:
                case Granted(claims):
                    return Claimed(claims[0])
                case Busy():
                    busy = outcome
                case NotGranted(existing) if request.claim_id in existing:
                    return meaning(existing[request.claim_id], request, write_id)
                case NotGranted(over_limit=True):
                    return LimitReached(settings.limit_per_claimant or 0)
                case NotGranted():
                    pass  # the shard was short
        return busy

    def _ways(self, shards: Sequence[Shard], quantity: int) -> Iterator[Mapping[int, int]]:
        """Yield ways to take `quantity`: from one shard that has it all, any at random; else from several together."""
        shards = self._random.sample(list(shards), len(shards))
        whole = [shard for shard in shards if shard.available >= quantity]
        for shard in whole:
            yield {shard.number: quantity}
        if not whole:
            taken = from_several({shard.number: shard.available for shard in shards}, quantity)
            if taken:
                yield taken
