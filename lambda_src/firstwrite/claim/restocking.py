"""Restock and withdrawal: more units on sale, or unclaimed ones taken back.

Guarantees: one adjustment for each idempotency key, however often repeated; the record of it, the item's total and the
shards change together; nothing that was held or claimed is ever taken back, and stock does not fall below zero.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from firstwrite.claim.model import MAX_STOCK, spread
from firstwrite.claim.outcomes import Adjusted, KeyReused, NotEnoughStock, TooMuch, UnknownItem
from firstwrite.claim.rules import Backoff, from_several, is_sold_out
from firstwrite.conditional import Applied, Busy, new_write_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstwrite.claim.expiry import Expiry
    from firstwrite.claim.model import Adjustment, ItemSettings, Shard
    from firstwrite.claim.store import Overtaken, StockStore
    from firstwrite.clock import Clock, Deadline
    from firstwrite.observability import Count

Outcome = Adjusted | NotEnoughStock | TooMuch | KeyReused | UnknownItem | Busy


class Restocking:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        expiry: brings back the units of holds that are due, before a withdrawal is refused.
        clock: time.
        count: told of every outcome as `Adjustments`.
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

    def adjust(self, adjustment: Adjustment, deadline: Deadline) -> Outcome:
        """Make the adjustment, unless it was made before.

        Args:
            adjustment: who wants how many units of what added, under which key.
            deadline: after this, `Busy`; a repeat with the same key is safe.

        Raises:
            DataFaultError: the item's stock is not of the form this code writes.
            StoreUnavailableError: a read was not answered within the deadline.
        """
        settings = self._store.settings(adjustment.item, deadline)
        outcome = self._adjust(adjustment, settings, deadline) if settings else UnknownItem()
        self._count("Adjustments", outcome=_NAMES[type(outcome)])
        return outcome

    def _adjust(self, adjustment: Adjustment, settings: ItemSettings, deadline: Deadline) -> Outcome:
        write_id = new_write_id()
        backoff = Backoff(self._clock, self._random)
        # Every shard more is one more that a claim can be at; a restock that meets one tries with half of them.
        breadth = settings.shards
        before: Sequence[Shard] | None = None
        while True:
            shards = self._store.shards(settings, deadline)
            tried: Applied | Overtaken | Busy | None = None
            parts = self._parts(adjustment.add, shards, breadth)
            if parts is not None:
                tried = self._store.adjust(adjustment, parts, self._clock.now_ms(), deadline.within(0), write_id)
            outcome: Outcome | None
            match tried:
                case Applied():
                    return Adjusted()
                case Busy():
                    outcome = tried
                    breadth = max(1, breadth // 2)
                case _:
                    outcome = self._refusal(adjustment, settings, before, shards, deadline, write_id=write_id)
            match outcome:
                case Busy():
                    again = backoff.wait(deadline)
                case None:
                    again = deadline.left_ms() > 0
                case _:
                    again = False
            if not again:
                return outcome or Busy("conflict")
            before = shards

    def _refusal(
        self,
        adjustment: Adjustment,
        settings: ItemSettings,
        before: Sequence[Shard] | None,
        shards: Sequence[Shard],
        deadline: Deadline,
        *,
        write_id: str,
    ) -> Adjusted | NotEnoughStock | TooMuch | KeyReused | Busy | None:
        """Return why the adjustment cannot be made, None where only a new look tells."""
        # Asked last, since a first request is the rule; a repeat may come after its units are gone again.
        made = self._store.adjusted(adjustment, deadline)
        if made is not None:
            add, made_by = made
            # Its own write, whose reply was lost, is no replay.
            return Adjusted(replayed=made_by != write_id) if add == adjustment.add else KeyReused()
        if self._store.total(adjustment.item, deadline) + adjustment.add > MAX_STOCK:
            return TooMuch()
        short = is_sold_out(before, shards, -adjustment.add, settings.shards)
        came_back = short and self._expiry.expire_item(settings, deadline)
        if isinstance(came_back, Busy):
            return came_back
        return NotEnoughStock() if short and not came_back else None

    def _parts(self, add: int, shards: Sequence[Shard], breadth: int) -> Mapping[int, int] | None:
        """Return how many units each shard gets, or gives; None where they have too few to give."""
        if add < 0:
            return from_several({shard.number: shard.available for shard in shards}, -add)
        emptiest = sorted(self._random.sample(list(shards), len(shards)), key=lambda shard: shard.available)
        numbers = [shard.number for shard in emptiest[:breadth]]
        return {number: units for number, units in zip(numbers, spread(add, len(numbers)), strict=True) if units}


_NAMES: dict[type, str] = {
    Adjusted: "adjusted",
    NotEnoughStock: "not-enough-stock",
    TooMuch: "too-much",
    KeyReused: "key-reused",
    UnknownItem: "unknown-item",
    Busy: "busy",
}
