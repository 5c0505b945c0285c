"""What the protocol counts: the money that was spent and saved is told from these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.cache.record import Flight, Policy
from firstwrite.cache.single_flight import FetchError
from firstwrite.conditional import Busy
from tests.support.flight import POLICY, Machine, Upstream

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

COUNTED = (
    "CacheHits",
    "CacheMisses",
    "CacheStale",
    "CacheCollapsed",
    "CacheRefreshes",
    "CacheFailuresShared",
    "CacheWaitsTimedOut",
    "LeasesTakenOver",
    "ResultsNotStored",
)
STALE = Policy(name="rates", lease_ms=2_000, timeout_ms=1_000, wait_ms=10_000, stale_ms=600_000)


def counts(machine: Machine) -> dict[str, int]:
    """Return what was counted since the last time, without zeros."""
    found = {name: machine.tally.of(name, source="rates") for name in COUNTED}
    machine.tally.counts.clear()
    return {name: number for name, number in found.items() if number}


def test_a_miss_a_hit_and_a_renewal(machine: Machine, key: str) -> None:
    """Each is counted once, as what it is."""
    upstream = Upstream(machine.clock, b"v1")

    machine.get(key, upstream)
    assert counts(machine) == {"CacheMisses": 1}
    machine.get(key, upstream)
    assert counts(machine) == {"CacheHits": 1}
    machine.get(key, upstream, renew=True)
    assert counts(machine) == {"CacheRefreshes": 1}


def test_a_hit_from_memory_is_a_hit(machine: Machine, key: str) -> None:
    """It saves a call like any other."""
    policy = replace(POLICY, memory_ms=1_000)
    upstream = Upstream(machine.clock, b"v1")
    machine.get(key, upstream, policy)
    counts(machine)

    assert machine.get(key, upstream, policy).how == "memory"
    assert counts(machine) == {"CacheHits": 1}


def test_a_takeover_is_no_miss(machine: Machine, key: str) -> None:
    """Calls above misses and renewals are those that were perhaps paid twice."""
    machine.acquire(key, "dead")
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)

    machine.get(key, Upstream(machine.clock, b"v1"))

    assert counts(machine) == {"LeasesTakenOver": 1}


def test_who_loses_the_key_counts_no_miss(engine: DynamoDBClient, machine: Machine, table: str, key: str) -> None:
    """Another machine wins between a caller's read and its write, and dies: what is counted is the wait."""
    rival = Machine(engine, table, machine.clock)
    acquire = machine.store.acquire

    def beaten(*arguments: Any, **named: Any) -> Any:
        machine.store.acquire = acquire  # type: ignore[method-assign]
        assert isinstance(rival.acquire(key, "rival"), Flight)
        return acquire(*arguments, **named)

    machine.store.acquire = beaten  # type: ignore[method-assign]
    machine.get(key, Upstream(machine.clock, b"v1"), wait_ms=500)

    assert counts(machine) == {"CacheWaitsTimedOut": 1}


def test_what_is_served_stale_and_what_renews_it(machine: Machine, key: str) -> None:
    """A stale answer is counted for its caller; its renewal serves nobody, so it counts no hit, even if it is late."""
    upstream = Upstream(machine.clock, b"v1")
    machine.get(key, upstream, STALE)
    machine.clock.advance(STALE.fresh_ms)
    counts(machine)

    assert machine.get(key, upstream, STALE, renew_later=lambda: None).how == "stale"
    assert counts(machine) == {"CacheStale": 1}
    machine.get(key, upstream, STALE, in_background=True)
    assert counts(machine) == {"CacheRefreshes": 1}
    machine.get(key, upstream, STALE, in_background=True)
    assert counts(machine) == {}


def test_a_shared_failure(machine: Machine, key: str) -> None:
    """Who fetched counts a miss, who shares its failure counts that."""
    upstream = Upstream(machine.clock, FetchError("failed"))

    machine.get(key, upstream)
    assert counts(machine) == {"CacheMisses": 1}
    machine.get(key, upstream)
    assert counts(machine) == {"CacheFailuresShared": 1}


def fails(*_: Any) -> Any:
    raise RuntimeError("injected")


@pytest.mark.parametrize("complete", [fails, lambda *_: Busy("throttled")])
def test_a_result_that_could_not_be_stored(machine: Machine, key: str, complete: Any) -> None:
    """It reaches its caller, was paid for and will be paid for again."""
    machine.store.complete = complete  # type: ignore[method-assign]

    assert machine.get(key, Upstream(machine.clock, b"v1")).how == "unstored"

    assert counts(machine) == {"CacheMisses": 1, "ResultsNotStored": 1}


def test_a_failure_says_what_it_is() -> None:
    """What is logged of it is its kind."""
    assert str(FetchError("timeout")) == "timeout"
