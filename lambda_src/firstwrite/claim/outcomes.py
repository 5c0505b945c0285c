"""What can become of a request. All of them are values; only faults are exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstwrite.conditional import Busy

if TYPE_CHECKING:
    from firstwrite.claim.model import Claim


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim was granted by this request."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Replayed:
    """An earlier request with the same key was granted; the claim as it is now."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Queued:
    """The request will be decided by the queue.

    Attributes:
        claim: the claim, nothing granted yet.
        repeated: it was queued before.
    """

    claim: Claim
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class SoldOut:
    """At some instant of this request fewer units were left than it asked for."""


@dataclass(frozen=True, slots=True)
class UnknownItem:
    """There is no such item."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The claimant has, or asks for, more than one claimant may have."""

    limit: int


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The idempotency key belongs to a request that said something else."""


Outcome = Claimed | Replayed | SoldOut | UnknownItem | LimitReached | KeyReused | Busy

OUTCOME_NAMES: dict[type, str] = {
    Claimed: "claimed",
    Replayed: "replayed",
    Queued: "queued",
    SoldOut: "sold-out",
    UnknownItem: "unknown-item",
    LimitReached: "limit-reached",
    KeyReused: "key-reused",
    Busy: "busy",
}
"""As metrics and rejected claims name them."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A hold has ended as asked, now or by an earlier request."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class UnknownClaim:
    """There is no such claim of this caller's."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The claim is in a state from which what was asked does not lead on.

    Attributes:
        claim: the claim as it is.
    """

    claim: Claim


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The stock was changed.

    Attributes:
        replayed: by an earlier request with the same key.
    """

    replayed: bool = False


@dataclass(frozen=True, slots=True)
class NotEnoughStock:
    """At some instant of this request fewer units were unclaimed than it takes back."""


@dataclass(frozen=True, slots=True)
class TooMuch:
    """The total would be above the most that a total may be."""
