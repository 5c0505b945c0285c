"""Whether anything grows with what is stored, and how fast one hot item sells, alone and through the queue."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench.cache_contenders import Firstwrite as Cache
from bench.cache_contenders import Place
from bench.claim_contenders import ClaimEnvironment
from bench.claim_contenders import Firstwrite as Shop
from bench.claims import in_parts, seed_claims
from bench.latency import always, soon
from bench.measure import Contender, Spread, interleaved, ratio
from bench.meter import Meter
from bench.paid import Paid
from firstwrite.claim.model import Adjustment, ClaimRequest
from firstwrite.claim.queue import message_of
from firstwrite.clock import SystemClock
from tests.support.engine import create_cache_table, create_stock_table, make_test_client
from tests.support.stock import Counter, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.units import Cost

STOCK = 1_000_000
SHARDS = 16
SAMPLES = 3
CALLERS, WORKERS, BATCH = 16, 4, 99


@dataclass(frozen=True, slots=True)
class Growth:
    """One outcome at two sizes.

    Attributes:
        outcome: what was measured.
        small: its cost where little is stored.
        large: its cost where much is.
        time: how many times longer it took, pair by pair.
    """

    outcome: str
    small: Cost
    large: Cost
    time: Spread

    @property
    def grows(self) -> bool:
        """Does it cost more round trips or units where much is stored?"""
        return (
            self.large.round_trips > self.small.round_trips
            or self.large.read_units > self.small.read_units
            or self.large.write_units > self.small.write_units
        )


def growths(endpoint: str, small: int, large: int, rounds: int) -> list[Growth]:
    """Measure with `small` and with `large` numbers of claims and keys stored."""
    return _cache_growth(endpoint, small, large, rounds) + _claim_growth(endpoint, small, large, rounds)


def _cache_growth(endpoint: str, small: int, large: int, rounds: int) -> list[Growth]:
    meter = Meter(endpoint, exact=True)
    client = make_test_client(endpoint)
    costs: list[Cost] = []
    contenders: dict[str, Contender] = {}
    for number in (small, large):
        table = create_cache_table(client)
        _put_keys(client, table, number)
        metered, timed = (Cache(Place(each, table, Paid(size=1_024).call)) for each in (meter.client, client))
        for environment in (metered, timed):
            environment("key")
        costs.append(meter.of([metered.request("key")] * SAMPLES))
        contenders[str(number)] = always(timed.request("key"))
    times = interleaved(contenders, rounds)
    return [Growth("hit", costs[0], costs[1], ratio(times[str(large)], times[str(small)]))]


def _put_keys(client: Any, table: str, number: int) -> None:  # noqa: ANN401 - DynamoDB
    def puts() -> Iterator[Any]:
        for n in range(number):
            yield {"PutRequest": {"Item": {"pk": {"S": f"bench#{n}"}, "state": {"S": "pending"}, "fence": {"N": "1"}}}}

    def write(batch: list[Any]) -> None:
        client.batch_write_item(RequestItems={table: batch})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, in_parts(puts(), 25)))


def _claim_growth(endpoint: str, small: int, large: int, rounds: int) -> list[Growth]:
    meter = Meter(endpoint, exact=True)
    client = make_test_client(endpoint)
    sides: list[tuple[ClaimEnvironment, ClaimEnvironment]] = []
    for number in (small, large):
        shop = Shop(client)
        settings = shop.create_spread("item", STOCK, SHARDS)
        seed_claims(client, shop.table, settings, number)
        sides.append((ClaimEnvironment(shop.function(meter.client)), ClaimEnvironment(shop.function(client))))
        for side in sides[-1]:
            side("item", "again")
    found: list[Growth] = []

    def compare(outcome: str, key: Callable[[int], str]) -> None:
        costs = [meter.of([partial(metered, "item", key(n)) for n in range(-SAMPLES, 0)]) for metered, _ in sides]
        contenders: dict[str, Contender] = {
            name: lambda n, timed=side[1]: timed.request("item", key(n + rounds))  # type: ignore[misc]
            for name, side in zip(("small", "large"), sides, strict=True)
        }
        times = interleaved(contenders, rounds)
        found.append(Growth(outcome, costs[0], costs[1], ratio(times["large"], times["small"])))

    run = uuid4().hex
    compare("claimed", lambda n: f"{run}-{n}")
    compare("replayed", lambda _: "again")
    for metered, timed in sides:
        protocols = timed.function.claims
        left = sum(shard.available for shard in protocols.store.shards(settings, soon()))
        protocols.restocking.adjust(Adjustment("bench", "item", -left, "all that is left"), soon())
        for environment in (metered, timed):
            environment("item", "too late")
    compare("sold out", lambda n: f"late-{run}-{n}")
    return found


@dataclass(frozen=True, slots=True)
class Hot:
    """One hot item.

    Attributes:
        alone_per_s: claims a second, each in a request of its own, by round.
        queued_per_s: claims a second through the queue's worker, by round.
        alone: mean cost of a claim in a request of its own.
        queued: mean cost of a claim through the queue, without the queue's own price.
    """

    alone_per_s: list[float]
    queued_per_s: list[float]
    alone: Cost
    queued: Cost

    @property
    def gain(self) -> Spread:
        """How many times faster the queue is, round by round."""
        return ratio(self.queued_per_s, self.alone_per_s)


def hot_item(endpoint: str, rounds: int, claims: int) -> Hot:
    """Sell one item both ways in turn, `claims` or a little more each time."""
    table = create_stock_table(make_test_client(endpoint))
    alone, queued = Meter(endpoint), Meter(endpoint)
    sellers = [Counter(alone.client, table, SystemClock(), seed) for seed in range(CALLERS)]
    workers = [Counter(queued.client, table, SystemClock(), seed) for seed in range(WORKERS)]
    for item, counters in (("alone", sellers), ("queued", workers)):
        counters[0].create(item, STOCK, SHARDS)
        for counter in counters:
            counter.claim(item, f"warm-{uuid4().hex}")
    alone.reset()
    queued.reset()
    speeds: list[tuple[float, float]] = []
    batches = -(-claims // (BATCH * WORKERS)) * WORKERS
    for _ in range(rounds):
        slow = _per_second(claims, lambda: _sell_alone(sellers, claims))
        fast = _per_second(batches * BATCH, lambda: _sell_in_batches(workers, batches))
        speeds.append((slow, fast))
    return Hot(
        [slow for slow, _ in speeds],
        [fast for _, fast in speeds],
        alone.cost.over(rounds * claims),
        queued.cost.over(rounds * batches * BATCH),
    )


def _per_second(number: int, sell: Callable[[], object]) -> float:
    began = time.perf_counter()
    sell()
    return number / (time.perf_counter() - began)


def _sell_alone(counters: list[Counter], claims: int) -> None:
    def sell(counter: Counter) -> None:
        for _ in range(claims // CALLERS):
            counter.claim("alone", uuid4().hex)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(sell, counters))


def _sell_in_batches(counters: list[Counter], batches: int) -> None:
    def work(counter: Counter) -> None:
        for _ in range(batches // WORKERS):
            requests = [ClaimRequest("shop", f"user-{n}", "queued", 1, uuid4().hex) for n in range(BATCH)]
            failed = counter.protocols.worker.take(batch_of(*map(message_of, requests)), counter.deadline())
            assert not failed, failed  # noqa: S101 - wrong figures otherwise

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, counters))
