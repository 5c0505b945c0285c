"""What the cache costs: reads and writes of each outcome, and how soon waiters answer.

    python -m bench.cache

Runs on an atomic engine on this machine, with a paid API that takes 300 ms. Absolute times are this machine's.
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from firstwrite.clock import SystemClock
from tests.support.cache import RATES, CacheFunction, with_policy
from tests.support.engine import create_cache_table, make_test_client, running_engine
from tests.support.faults import FaultyClient
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Iterable

CALLERS = 20
ROUNDS = 30
UPSTREAM_S = 0.3
READS = {"get_item", "batch_get_item"}


def race(functions: list[CacheFunction], clients: list[FaultyClient]) -> list[tuple[str, float, int, int]]:
    """Let all ask for one new key at once; return status, end time, reads and writes of each."""
    query = {"base": uuid4().hex, "symbol": "USD"}
    start = threading.Barrier(len(functions))

    def call(number: int) -> tuple[str, float, int, int]:
        clients[number].calls.clear()
        start.wait()
        reply = functions[number].get(query)
        ended = time.monotonic()
        calls = clients[number].calls
        reads = sum(call in READS for call in calls)
        return reply.headers["cache-status"], ended, reads, len(calls) - reads

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, range(len(functions))))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure and print."""
    with running_engine() as endpoint, running_paid_api() as paid_api:
        paid_api.takes_s = UPSTREAM_S
        client = make_test_client(endpoint)
        table = create_cache_table(client)
        clients = [FaultyClient(client) for _ in range(CALLERS)]
        source = with_policy(RATES, timeout_ms=5_000, lease_ms=8_000, expected_ms=None)
        functions = [CacheFunction(each, table, SystemClock(), paid_api.url, source) for each in clients]
        for label, rounds in (("first race, nothing known of the source", 1), ("later races", ROUNDS)):
            show(label, [race(functions, clients) for _ in range(rounds)])
        query = {"base": "EUR", "symbol": "USD"}
        functions[0].get(query)
        for name in ("miss", "hit"):
            clients[0].calls.clear()
            functions[0].get(query if name == "hit" else {"base": uuid4().hex, "symbol": "USD"})
            print(f"{name}: {clients[0].calls}")


def show(label: str, races: list[list[Any]]) -> None:
    """Print the waiters' figures over `races`."""
    after_ms, reads, writes = [], [], []
    for outcomes in races:
        (done,) = [ended for status, ended, _, _ in outcomes if "stored" in status]
        for status, ended, read, written in outcomes:
            if "collapsed" in status:
                after_ms.append((ended - done) * 1000)
                reads.append(read)
                writes.append(written)
    print(
        f"{label}: {len(after_ms)} waiters answered after the winner by median {statistics.median(after_ms):.0f} ms, "
        f"p99 {percentile(after_ms, 0.99):.0f} ms; reads median {statistics.median(reads):.0f}, "
        f"most {max(reads)}; refused writes mean {statistics.mean(writes):.2f}"
    )


if __name__ == "__main__":
    main()
