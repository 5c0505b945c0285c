"""What a claim costs: round trips and capacity by outcome, at 100 and at 100,000 claims, and how fast one item sells.

    PYTHONPATH=lambda_src python -m bench.claims

Runs on an atomic engine on this machine. Write units are what the engine says was consumed; it does not meter reads
as DynamoDB does, so these are counted by its rule: a unit for each record read consistently, up to 4 KB. Absolute
speeds are this machine's and this engine's.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from firstwrite.claim.model import ClaimRequest, ItemSettings, default_shards
from firstwrite.claim.queue import message_of
from firstwrite.claim.records import claim_record
from firstwrite.claim.rules import new_claim
from firstwrite.clock import SystemClock
from firstwrite.dynamodb import to_wire
from tests.support.engine import create_stock_table, make_test_client, running_engine
from tests.support.stock import Counter, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

STOCK = 1_000_000
SIZES = (100, 100_000)
SAMPLES = 50
SYNC_CALLERS, SYNC_CLAIMS = 16, 2_000
WORKERS, BATCH = 4, 99


@dataclass
class Meter:
    """A client that adds up what its calls cost."""

    client: Any
    round_trips: int = 0
    write_units: float = 0
    read_units: int = 0
    writes: int = 0
    stock_writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method = getattr(self.client, operation)

        def call(**request: Any) -> Any:  # noqa: ANN401 - any call of the client
            reply = method(**request, ReturnConsumedCapacity="TOTAL")
            capacity = reply.get("ConsumedCapacity", [])
            units = sum(part["CapacityUnits"] for part in (capacity if isinstance(capacity, list) else [capacity]))
            with self.lock:
                self.round_trips += 1
                self._count(operation, request, units)
            return reply

        return call

    def _count(self, operation: str, request: dict[str, Any], units: float) -> None:
        match operation:
            case "transact_write_items":
                keys = [part.get("Key") or part["Item"] for item in request["TransactItems"] for part in item.values()]
            case "put_item":
                keys = [request["Item"]]
            case "update_item":
                keys = [request["Key"]]
            case "batch_get_item":
                self.read_units += sum(len(part["Keys"]) for part in request["RequestItems"].values())
                return
            case _:
                self.read_units += 1
                return
        self.write_units += units
        self.writes += len(keys)
        self.stock_writes += sum(key["sk"]["S"] == "stock" for key in keys)


def metered(endpoint: str, table: str, seed: int = 1) -> tuple[Counter, Meter]:
    """Return a machine that sells, and what meters it."""
    meter = Meter(make_test_client(endpoint))
    return Counter(meter, table, SystemClock(), seed), meter


def seed_claims(client: DynamoDBClient, table: str, settings: ItemSettings, number: int) -> None:
    """Put claims and the stock they have taken as if they had been made."""
    shards = settings.shards

    def puts() -> Iterator[dict[str, Any]]:
        for n in range(number):
            request = ClaimRequest("seed", f"user-{n}", settings.item, 1, f"seed-{n}")
            record = claim_record(new_claim(request, settings, {n % shards: 1}, 0))
            yield {"PutRequest": {"Item": to_wire({**record, "write_id": "seed"})}}

    def write(batch: list[Any]) -> None:
        client.batch_write_item(RequestItems={table: batch})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, in_parts(puts(), 25)))
    for shard in range(shards):
        units = len(range(shard, number, shards))
        client.update_item(
            TableName=table,
            Key=to_wire({"pk": f"item#{settings.item}#shard#{shard}", "sk": "stock"}),
            UpdateExpression="SET available = available - :units, claimed = claimed + :units",
            ExpressionAttributeValues=to_wire({":units": units}),
        )


def in_parts(things: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of up to `size`."""
    part: list[Any] = []
    for thing in things:
        part.append(thing)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def cost(meter: Meter, action: Callable[[int], Any]) -> str:
    """Return what an action costs on average, after one that warms up."""
    action(-1)
    trips, writes, reads = meter.round_trips, meter.write_units, meter.read_units
    began = time.monotonic()
    for n in range(SAMPLES):
        action(n)
    took_ms = (time.monotonic() - began) * 1000 / SAMPLES
    averages = [(now - before) / SAMPLES for now, before in
                ((meter.round_trips, trips), (meter.write_units, writes), (meter.read_units, reads))]  # fmt: skip
    return f"{averages[0]:11.2f} {averages[1]:12.2f} {averages[2]:11.2f} {took_ms:8.1f}"


def print_costs(endpoint: str, claims: int) -> None:
    """Print what each outcome costs on an item with so many claims."""
    client = make_test_client(endpoint)
    table = create_stock_table(client)
    counter, meter = metered(endpoint, table)
    plain = counter.create("plain", STOCK)
    counter.create("holds", STOCK, hold_seconds=600)
    seed_claims(client, table, plain, claims)
    print(f"\n{claims:,} claims on the item     round trips  write units  read units       ms")
    run = uuid4().hex
    print("  claimed              ", cost(meter, lambda n: counter.claim("plain", f"{run}-{n}")))
    print("  replayed             ", cost(meter, lambda n: counter.claim("plain", f"{run}-{max(n, 0)}")))
    held = [counter.claim("holds", f"{run}-{n}").claim.claim_id for n in range(SAMPLES + 1)]
    print("  confirmed            ", cost(meter, lambda n: counter.confirm(held[n])))
    counter.adjust("plain", -(STOCK - claims - SAMPLES - 1), "all that is left")
    counter.claim("plain", "warm")
    print("  sold out             ", cost(meter, lambda n: counter.claim("plain", f"late-{n}")))
    began = time.monotonic()
    report = counter.protocols.audit.run(plain, counter.deadline(600_000))
    print(f"  audited: {report.outcome} in {time.monotonic() - began:.1f} s")


def print_speed(endpoint: str) -> None:
    """Print how many claims a second one item takes, one by one and in groups."""
    print("\none hot item             claims/s  stock writes a claim  share of writes  write units a claim")
    for name, sell in (("synchronous", _sell_one_by_one), ("through the queue", _sell_in_groups)):
        client = make_test_client(endpoint)
        table = create_stock_table(client)
        machines = [metered(endpoint, table, seed) for seed in range(SYNC_CALLERS)]
        settings = machines[0][0].create("hot", STOCK, default_shards(STOCK))
        for counter, _ in machines:
            counter.store._settings.put("hot", settings)  # noqa: SLF001 - warm, as an environment is after a request
        began = time.monotonic()
        claims = sell([counter for counter, _ in machines])
        took_s = time.monotonic() - began
        stock_writes = sum(meter.stock_writes for _, meter in machines)
        writes = sum(meter.writes for _, meter in machines)
        units = sum(meter.write_units for _, meter in machines)
        print(
            f"  {name:20} {claims / took_s:11,.0f} {stock_writes / claims:21.3f} "
            f"{stock_writes / writes:16.3f} {units / claims:20.2f}"
        )


def _sell_one_by_one(counters: list[Counter]) -> int:
    def sell(number: int) -> None:
        for n in range(SYNC_CLAIMS // SYNC_CALLERS):
            counters[number].claim("hot", f"{number}-{n}")

    with ThreadPoolExecutor(SYNC_CALLERS) as pool:
        list(pool.map(sell, range(SYNC_CALLERS)))
    return SYNC_CLAIMS


def _sell_in_groups(counters: list[Counter]) -> int:
    batches = 10 * WORKERS

    def work(number: int) -> None:
        for batch in range(number, batches, WORKERS):
            requests = [ClaimRequest("shop", f"user-{batch}-{n}", "hot", 1, f"{batch}-{n}") for n in range(BATCH)]
            counter = counters[number]
            assert not counter.protocols.worker.take(batch_of(*map(message_of, requests)), counter.deadline())  # noqa: S101

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    return batches * BATCH


def main() -> None:
    """Measure and print."""
    with running_engine() as endpoint:
        for claims in SIZES:
            print_costs(endpoint, claims)
        print_speed(endpoint)


if __name__ == "__main__":
    main()
