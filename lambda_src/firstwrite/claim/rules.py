"""What every way to a decision shares: when stock is sold out, what a repeat means, what a claim is, how to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstwrite.claim.model import Claim, ClaimState
from firstwrite.claim.outcomes import Claimed, KeyReused, Replayed

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from firstwrite.claim.model import ClaimRequest, ItemSettings, Shard
    from firstwrite.clock import Clock, Deadline

BACKOFF_BASE_MS = 20
BACKOFF_CAP_MS = 500


def is_sold_out(before: Sequence[Shard] | None, now: Sequence[Shard], quantity: int, shards: int) -> bool:
    """Were there, at some instant of this request, fewer than `quantity` units?

    The shards were read one by one, so their sum may never have been true: a unit can come back to a shard already
    read while another leaves one not read yet. But between two looks in which no shard took anything back,
    availability only fell: at the start of the second, each shard had at most what the first saw. So two looks prove
    it, and the earlier one may be from an earlier request (double collect, after Afek et al., "Atomic Snapshots of
    Shared Memory", 1993). An only shard is read at one instant and proves it alone. A look at a few proves nothing.

    Args:
        before: a look at all shards that ended before the other began, None where there was none.
        now: this request's look.
        quantity: units asked for.
        shards: how many the item has.
    """
    if len(now) < shards:
        return False
    if shards == 1:
        return now[0].available < quantity
    if before is None or sum(shard.available for shard in before) >= quantity:
        return False
    returns_before = {shard.number: shard.returns for shard in before}
    return all(returns_before[shard.number] == shard.returns for shard in now)


def meaning(claim: Claim, request: ClaimRequest, write_id: str) -> Claimed | Replayed | KeyReused | None:
    """Return what an existing claim means to a request, None where it can still be granted.

    A rejection holds no key: a request that says something else may have it.
    """
    if claim.state is ClaimState.REJECTED:
        return None
    if claim.fingerprint != request.fingerprint:
        return KeyReused()
    if claim.is_open:
        return None
    # Its own write, whose reply was lost, is no replay.
    return Claimed(claim) if claim.write_id == write_id else Replayed(claim)


def new_claim(
    request: ClaimRequest, settings: ItemSettings, taken: Mapping[int, int], now_ms: int, asked_at: int | None = None
) -> Claim:
    """Return the claim that a request is granted.

    Args:
        request: the request.
        settings: of its item.
        taken: units by shard number.
        now_ms: when the hold begins.
        asked_at: when it was asked for, where that was earlier.
    """
    hold_s = settings.hold_seconds
    return Claim(
        claim_id=request.claim_id,
        item=request.item,
        caller=request.caller,
        claimant=request.claimant,
        quantity=request.quantity,
        taken=taken,
        state=ClaimState.CLAIMED if hold_s is None else ClaimState.HELD,
        created_at=now_ms if asked_at is None else asked_at,
        hold_until=None if hold_s is None else now_ms + hold_s * 1000,
        fingerprint=request.fingerprint,
    )


def open_claim(request: ClaimRequest, state: ClaimState, now_ms: int, reason: str | None = None) -> Claim:
    """Return a claim to which nothing is granted: `QUEUED`, or `REJECTED` for a reason."""
    return Claim(
        claim_id=request.claim_id,
        item=request.item,
        caller=request.caller,
        claimant=request.claimant,
        quantity=request.quantity,
        taken={},
        state=state,
        created_at=now_ms,
        hold_until=None,
        fingerprint=request.fingerprint,
        reason=reason,
    )


def from_several(available: Mapping[int, int], quantity: int) -> dict[int, int] | None:
    """Return `quantity` units taken from as few shards as will do, None where all of them have fewer.

    Args:
        available: units by shard number.
        quantity: units.
    """
    taken: dict[int, int] = {}
    left = quantity
    for number, units in sorted(available.items(), key=lambda part: -part[1]):
        part = min(units, left)
        if part > 0:
            taken[number] = part
            left -= part
    return None if left else taken


class Backoff:
    """Waits between attempts: full jitter, longer each time, within a deadline."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._random = rng
        self._waits = 0

    def wait(self, deadline: Deadline) -> bool:
        """Sleep a while; return False, without sleeping, where the deadline leaves no room for it."""
        wait_ms = self._random.uniform(0, min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2**self._waits))
        if wait_ms >= deadline.left_ms():
            return False
        self._clock.sleep_ms(wait_ms)
        self._waits += 1
        return True
