"""The rules that need no table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.claim.model import ClaimRequest, ClaimState
from firstwrite.claim.rules import BACKOFF_BASE_MS, BACKOFF_CAP_MS, Backoff, from_several, open_claim
from firstwrite.clock import Deadline
from tests.support.clocks import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("available", "quantity", "taken"),
    [
        ({0: 1, 1: 5, 2: 3}, 7, {1: 5, 2: 2}),
        ({0: 1, 1: 5, 2: 3}, 8, {1: 5, 2: 3}),
        ({0: 1, 1: 5, 2: 3}, 10, None),
        ({0: 0, 1: 2, 2: 0}, 2, {1: 2}),
    ],
)
def test_units_are_taken_from_as_few_shards_as_will_do(
    available: Mapping[int, int], quantity: int, taken: Mapping[int, int] | None
) -> None:
    """Each shard is one more write of the transaction; none is written that gives nothing."""
    assert from_several(available, quantity) == taken


class Longest:
    """Chance that always says the most, and what it was asked."""

    def __init__(self) -> None:
        self.least: list[float] = []

    def uniform(self, least: float, most: float) -> float:
        self.least.append(least)
        return most


def test_tries_are_further_and_further_apart_until_the_deadline() -> None:
    """Full jitter: from nothing up to a bound that doubles to its cap; no sleep that would end at the deadline."""
    clock, rng = FakeClock(), Longest()
    backoff: Any = Backoff(clock, rng)  # type: ignore[arg-type]
    bounds = [min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2**wait) for wait in range(6)]
    deadline = Deadline.after(clock, sum(bounds))

    while backoff.wait(deadline):
        pass

    assert clock.slept_ms == bounds[:-1]
    assert rng.least == [0] * 6


def test_a_claim_to_which_nothing_is_granted_says_what_was_asked() -> None:
    """Its caller reads at the claim what became of which request."""
    request = ClaimRequest("alice", "bob", "seat", 2, "k")
    claim = open_claim(request, ClaimState.REJECTED, 7, reason="sold-out")
    asked = (claim.caller, claim.claimant, claim.item, claim.quantity, claim.created_at, claim.reason)
    assert asked == ("alice", "bob", "seat", 2, 7, "sold-out")
