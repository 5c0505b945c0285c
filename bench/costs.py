"""What each outcome costs: round trips, bytes, units, dollars."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from bench.cache_contenders import CONTENDERS, Environment, Place
from bench.claim_contenders import shops
from bench.meter import Meter, S3Meter
from bench.paid import Paid
from tests.support.engine import create_cache_table, make_test_client

if TYPE_CHECKING:
    from bench.claim_contenders import Shop
    from bench.units import Cost

KB = 1_024
SAMPLES = 5
HIT_KB = (1, 4, 64, 300)
STOCK = 1_000
SOLD_OUT_OF = 64


@dataclass(frozen=True, slots=True)
class Row:
    """What one outcome of one contender costs."""

    outcome: str
    contender: str
    cost: Cost


Make = Callable[[Place], Environment]


def cache_costs(endpoint: str) -> list[Row]:
    """Measure hits of several sizes, misses and waiters."""
    s3 = S3Meter()
    bodies = [(f"hit, {size} KB", Paid(size=size * KB)) for size in HIT_KB]
    bodies.append(("hit, 64 KB of JSON", Paid(size=64 * KB, compressible=True)))
    rows = [
        Row(outcome, name, _hit(make, endpoint, paid, s3))
        for outcome, paid in bodies
        for name, make in CONTENDERS.items()
    ]
    rows += [Row("miss, 1 KB", name, _miss(make, endpoint)) for name, make in CONTENDERS.items()]
    rows += [Row("waiter, 1 KB, 300 ms", name, _waiter(make, endpoint)) for name, make in CONTENDERS.items()]
    return rows


def _hit(make: Make, endpoint: str, paid: Paid, s3: S3Meter) -> Cost:
    meter = Meter(endpoint, exact=True)
    ask = make(Place(meter.client, create_cache_table(make_test_client(endpoint)), paid.call))
    key = uuid4().hex
    ask(key)
    ask(key)
    gets, puts = s3.gets, s3.puts
    cost = meter.of([lambda: ask(key)] * SAMPLES)
    cost.s3_gets, cost.s3_puts = (s3.gets - gets) / SAMPLES, (s3.puts - puts) / SAMPLES
    return cost


def _miss(make: Make, endpoint: str) -> Cost:
    meter = Meter(endpoint, exact=True)
    ask = make(Place(meter.client, create_cache_table(make_test_client(endpoint)), Paid(size=KB).call))
    ask(uuid4().hex)
    return meter.of([lambda: ask(uuid4().hex)] * SAMPLES)


def _waiter(make: Make, endpoint: str) -> Cost:
    """Measure one who asks while another's call runs; where it pays too, that is its cost."""
    paid = Paid(size=KB, takes_s=0.3)
    client, meter = make_test_client(endpoint), Meter(endpoint, exact=True)
    table = create_cache_table(client)
    winner, waiter = make(Place(client, table, paid.call)), make(Place(meter.client, table, paid.call))
    winner(uuid4().hex)

    def wait() -> None:
        key = uuid4().hex
        with ThreadPoolExecutor(1) as pool:
            won = pool.submit(winner, key)
            time.sleep(0.1)
            try:
                waiter(key)
            except Exception as error:
                if type(error).__name__ != "IdempotencyAlreadyInProgressError":
                    raise
            won.result()

    return meter.of([wait] * SAMPLES)


def claim_costs(endpoint: str) -> list[Row]:
    """Measure claims granted, replayed and refused."""
    rows: list[Row] = []
    for name, shop in shops(make_test_client(endpoint)).items():
        rows += [
            Row(outcome, name, cost)
            for outcome, cost in zip(("claimed", "replayed", "sold out"), _claim(shop, endpoint), strict=True)
            if outcome != "replayed" or name.startswith(("Powertools", "Firstwrite"))  # the others know no replay
        ]
    return rows


def sell_out(shop: Shop, item: str, claim: Callable[[str, str], str | None]) -> None:
    """Put an item up for sale with as many parts of stock as a large one has, and sell all of it."""
    shop.create(item, SOLD_OUT_OF)
    number = 0
    while claim(item, f"early-{number}") is not None:
        number += 1


def _claim(shop: Shop, endpoint: str) -> tuple[Cost, Cost, Cost]:
    meter = Meter(endpoint, exact=True)
    claim = shop.environment(meter.client)
    item, gone = uuid4().hex, uuid4().hex
    shop.create(item, STOCK)
    sell_out(shop, gone, shop.environment(make_test_client(endpoint)))
    claim(item, "warm")
    claim(gone, "refused, once")
    claimed = meter.of([partial(claim, item, f"key-{n}") for n in range(SAMPLES)])
    replayed = meter.of([partial(claim, item, f"key-{n}") for n in range(SAMPLES)])
    sold_out = meter.of([partial(claim, gone, f"late-{n}") for n in range(SAMPLES)])
    return claimed, replayed, sold_out
