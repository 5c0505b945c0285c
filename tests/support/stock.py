"""Claims without HTTP: one machine's protocol objects over a shared stock table."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from firstwrite.claim.claiming import Claiming
from firstwrite.claim.model import ClaimRequest, ItemSettings, default_shards
from firstwrite.claim.store import StockStore
from firstwrite.clock import Deadline
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from tests.support.clocks import Tally
from tests.support.faults import FaultyClient

if TYPE_CHECKING:
    from firstwrite.claim.model import Shard
    from firstwrite.clock import Clock


class Counter:
    """A machine that sells."""

    def __init__(self, client: Any, table: str, clock: Clock, seed: int = 1, **faults: Any) -> None:
        self.clock = clock
        self.tally = Tally()
        self.client = FaultyClient(client, **faults)
        dynamo = Dynamo(self.client, clock, self.tally)  # type: ignore[arg-type]
        self.store = StockStore(dynamo, Conditional(dynamo, self.tally), table)
        self.claiming = Claiming(self.store, clock, self.tally, random.Random(seed))

    def deadline(self, within_ms: float = 10_000) -> Deadline:
        return Deadline.after(self.clock, within_ms)

    def create(self, item: str, stock: int, shards: int | None = None, **settings: Any) -> ItemSettings:
        made = ItemSettings(item, stock, shards or default_shards(stock), **settings)
        assert self.store.create(made, self.deadline()) is None
        return made

    def claim(self, item: str, key: str, quantity: int = 1, caller: str = "alice", claimant: str = "alice") -> Any:
        return self.claiming.claim(ClaimRequest(caller, claimant, item, quantity, key), self.deadline())

    def shards(self, item: str) -> list[Shard]:
        settings = self.store.settings(item, self.deadline())
        assert settings is not None
        return self.store.shards(settings, self.deadline())

    def available(self, item: str) -> int:
        shards = self.shards(item)
        for shard in shards:
            assert shard.available + shard.held + shard.claimed == shard.total
            assert min(shard.available, shard.held, shard.claimed) >= 0
        return sum(shard.available for shard in shards)
