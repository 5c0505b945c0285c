"""How soon those who wait have the result, and how often they look."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cache import CALLERS, UPSTREAM_S, race
from bench.measure import Spread, percentile
from firstwrite.clock import SystemClock
from tests.support.cache import RATES, CacheFunction, with_policy
from tests.support.engine import create_cache_table, make_test_client
from tests.support.faults import FaultyClient
from tests.support.upstream import running_paid_api


@dataclass(frozen=True, slots=True)
class Waiters:
    """What those who waited saw, over all races, the first included, in which nothing is known of the source.

    Attributes:
        after_ms: how long after the winner they answered.
        p99_ms: of the slowest in a hundred.
        most_reads: of any.
        p99_ms_known: the same, the first race left out.
        most_reads_known: of any, the first race left out.
        reads: of all.
    """

    after_ms: Spread
    p99_ms: float
    p99_ms_known: float
    most_reads: int
    most_reads_known: int
    reads: Spread


def waiters(endpoint: str, races: int) -> Waiters:
    """Let 20 race for a value that takes 300 ms, again and again for new values."""
    client = make_test_client(endpoint)
    table = create_cache_table(client)
    clients = [FaultyClient(client) for _ in range(CALLERS)]
    source = with_policy(RATES, timeout_ms=5_000, lease_ms=8_000, expected_ms=None)
    after_ms: list[float] = []
    reads: list[int] = []
    with running_paid_api() as paid_api:
        paid_api.takes_s = UPSTREAM_S
        functions = [CacheFunction(each, table, SystemClock(), paid_api.url, source) for each in clients]
        for _ in range(races):
            outcomes = race(functions, clients)
            (done,) = [ended for status, ended, _, _ in outcomes if "stored" in status]
            waited = [(ended, read) for status, ended, read, _ in outcomes if "collapsed" in status]
            after_ms += [(ended - done) * 1000 for ended, _ in waited]
            reads += [read for _, read in waited]
    known = slice(CALLERS - 1, None)
    return Waiters(
        Spread.of(after_ms),
        percentile(after_ms, 0.99),
        percentile(after_ms[known], 0.99),
        max(reads),
        max(reads[known]),
        Spread.of(reads),
    )
