"""Items, their shards of stock, and claims on them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from firstwrite.text import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_STOCK = 1_000_000_000_000
MAX_SHARDS = 64
DEFAULT_MAX_SHARDS = 16
UNITS_PER_SHARD = 4
MAX_HOLD_S = 2_592_000
MAX_CALLER_BYTES = 2_048
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_CLAIM_ID = re.compile(r"([0-9a-f]{40})\.(.+)")


class ClaimState(StrEnum):
    """The states of a claim.

    `CLAIMED`, `RELEASED` and `EXPIRED` are final. `QUEUED` and `REJECTED` mark a request that came through the queue
    and own no stock; a new request with the same key may still be granted.
    """

    QUEUED = "queued"
    REJECTED = "rejected"
    HELD = "held"
    CLAIMED = "claimed"
    RELEASED = "released"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class ItemSettings:
    """What an item was created with; never changes.

    Attributes:
        item: its name.
        stock: units it began with.
        shards: over how many partitions the stock is spread.
        limit_per_claimant: units one claimant may have at a time, None for no limit.
        hold_seconds: how long a claim waits for its confirmation, None where claims are final at once.
    """

    item: str
    stock: int
    shards: int
    limit_per_claimant: int | None = None
    hold_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of an item's stock; `available + held + claimed = total` in every version of it.

    Attributes:
        number: from 0.
        total: units that belong to it.
        available: units that can be claimed.
        held: units that wait for a confirmation.
        claimed: units that are gone.
        returns: how often `available` has risen. While it stands still, `available` only falls.
        write_id: the write that brought it to this version; while it stands still, nothing at all has changed.
    """

    number: int
    total: int
    available: int
    held: int
    claimed: int
    returns: int
    write_id: str = ""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a caller asks for. `idempotency_key` names the request within (caller, claimant, item)."""

    caller: str
    claimant: str
    item: str
    quantity: int
    idempotency_key: str

    @property
    def claim_id(self) -> str:
        """The claim this request makes, the same for every repeat and for nobody else's request.

        It carries the item's name, so that a claim is found in one read.
        """
        scope = json.dumps([self.caller, self.claimant, self.item, self.idempotency_key])
        return f"{hashlib.sha256(scope.encode()).hexdigest()[:40]}.{self.item}"

    @property
    def fingerprint(self) -> str:
        """What else the request says; a repeat that says something else is another request under a used key."""
        return hashlib.sha256(json.dumps({"quantity": self.quantity}).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: granted, or asked for through the queue.

    Attributes:
        claim_id: see `ClaimRequest.claim_id`.
        caller: who asked; nobody else sees it.
        claimant: whom the units are for.
        quantity: units.
        taken: units by shard number, empty where nothing was granted.
        state: where it is in its life.
        created_at: when it was asked for, epoch milliseconds.
        hold_until: epoch milliseconds until when a held claim can be confirmed, None where it is final at once.
        fingerprint: see `ClaimRequest.fingerprint`.
        reason: why it was rejected.
        write_id: the write that brought it to this state.
    """

    claim_id: str
    item: str
    caller: str
    claimant: str
    quantity: int
    taken: Mapping[int, int]
    state: ClaimState
    created_at: int
    hold_until: int | None
    fingerprint: str
    reason: str | None = None
    write_id: str = ""

    @property
    def is_open(self) -> bool:
        """Is nothing granted yet?"""
        return self.state in (ClaimState.QUEUED, ClaimState.REJECTED)

    def is_due(self, now_ms: int) -> bool:
        """Has this hold passed its deadline?"""
        return self.state is ClaimState.HELD and self.hold_until is not None and self.hold_until <= now_ms


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of an item's stock that an operator asks for, once for each idempotency key.

    Attributes:
        caller: who asks.
        item: the item.
        add: units; below zero takes unclaimed units back.
        idempotency_key: names the request within (caller, item).
    """

    caller: str
    item: str
    add: int
    idempotency_key: str

    @property
    def adjustment_id(self) -> str:
        """The same for every repeat and for nobody else's request."""
        scope = json.dumps([self.caller, self.item, self.idempotency_key])
        return hashlib.sha256(scope.encode()).hexdigest()[:40]


def default_shards(stock: int) -> int:
    """Return over how many partitions a stock is spread where nobody says: a quarter of it, 1 to 16.

    More shards mean fewer cancelled transactions; fewer mean that small stock is not scattered.
    """
    return max(1, min(DEFAULT_MAX_SHARDS, stock // UNITS_PER_SHARD))


def is_idempotency_key(key: str) -> bool:
    """Is this 1 to 255 printable ASCII characters?"""
    return _IDEMPOTENCY_KEY.fullmatch(key) is not None


def split_claim_id(claim_id: str) -> tuple[str, str] | None:
    """Return a claim id's digest and item, None where it is no claim id: an item's name is part of keys."""
    found = _CLAIM_ID.fullmatch(claim_id)
    return (found[1], found[2]) if found and is_name(found[2]) else None


def spread(units: int, shards: int) -> list[int]:
    """Return `units` spread as evenly as whole units allow."""
    each, left = divmod(units, shards)
    return [each + (number < left) for number in range(shards)]
