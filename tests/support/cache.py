"""The cache function as it is wired, over a test table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firstwrite.cache import handler
from firstwrite.cache.record import Policy
from firstwrite.cache.sources import Source
from firstwrite.observability import Counters
from firstwrite.settings import Settings
from tests.support.clocks import Tally
from tests.support.http import LambdaContext, Reply, event, reply_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.clock import Clock

RATES = Source(
    name="rates",
    params=("base", "symbol"),
    url="${DemoUrl}/latest?base={base}&symbols={symbol}",
    timeout_ms=1_000,
    allow_private=True,
    price_per_call=0.002,
    policy=Policy(name="rates", timeout_ms=1_000, lease_ms=3_000, wait_ms=3_000),
)


class TallyingCounters(Counters):
    """Counters that keep what they counted."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()

    def count(self, name: str, value: int = 1, **dimensions: str) -> None:
        self.tally(name, value, **dimensions)

    def flush(self) -> None:
        """Write nothing; tests read the tally."""


class CacheFunction(handler.CacheFunction):
    """One execution environment of the cache function."""

    def __init__(
        self, client: Any, table: str, clock: Clock, upstream_url: str, source: Source = RATES, **settings: str
    ) -> None:
        environ = {"AUTH": "header", "CACHE_TABLE": table, "DEMO_URL": upstream_url, **settings}
        counters = TallyingCounters()
        super().__init__(Settings.from_environ(environ), {source.name: source}, client, clock, counters)
        self.tally = counters.tally
        self.clock = clock

    def send(self, request: dict[str, Any], time_left_ms: int = 29_000) -> Reply:
        return reply_of(self.handle(request, LambdaContext(time_left_ms)))  # type: ignore[arg-type]

    def get(
        self,
        query: Mapping[str, str] | str,
        source: str = "rates",
        headers: Mapping[str, str] | None = None,
        time_left_ms: int = 29_000,
    ) -> Reply:
        return self.send(event("GET", f"/v1/cache/{source}", query=query, headers=headers), time_left_ms)


def with_policy(source: Source = RATES, **changes: Any) -> Source:
    """Return `source` with a changed policy; `timeout_ms` changes in both places."""
    timeout_ms = changes.get("timeout_ms", source.timeout_ms)
    return replace(source, timeout_ms=timeout_ms, policy=replace(source.policy, **changes))
