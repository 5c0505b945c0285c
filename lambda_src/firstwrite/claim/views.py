"""Items, claims and audits as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstwrite.api import rfc3339
from firstwrite.claim.audit import counts, faults_shown, plan
from firstwrite.claim.model import ClaimState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firstwrite.claim.audit import Report
    from firstwrite.claim.model import Claim, ItemSettings, Shard


def item_view(settings: ItemSettings, shards: Sequence[Shard]) -> dict[str, Any]:
    """Return an item's totals: each shard is balanced in itself, so the sums are, whenever each was read."""
    view: dict[str, Any] = {"item": settings.item, **totals(shards), "shards": settings.shards}
    if settings.limit_per_claimant is not None:
        view["limit_per_claimant"] = settings.limit_per_claimant
    if settings.hold_seconds is not None:
        view["hold_seconds"] = settings.hold_seconds
    return view


def totals(shards: Sequence[Shard]) -> dict[str, int]:
    """Return the sums over an item's shards."""
    return {
        "total": sum(shard.total for shard in shards),
        "available": sum(shard.available for shard in shards),
        "held": sum(shard.held for shard in shards),
        "claimed": sum(shard.claimed for shard in shards),
    }


def claim_view(claim: Claim) -> dict[str, Any]:
    """Return a claim as its caller sees it."""
    view: dict[str, Any] = {
        "claim_id": claim.claim_id,
        "item": claim.item,
        "claimant": claim.claimant,
        "quantity": claim.quantity,
        "state": claim.state,
        "created_at": rfc3339(claim.created_at),
    }
    if claim.hold_until is not None:
        view["hold_until"] = rfc3339(claim.hold_until)
    if claim.reason is not None:
        view["reason"] = claim.reason
    return view


def listed_view(claim: Claim) -> dict[str, Any]:
    """Return a claim as an operator sees it."""
    return {**claim_view(claim), "caller": claim.caller}


def audit_view(report: Report) -> dict[str, Any]:
    """Return what an audit found, and the repair where there is one."""
    tally = report.tally
    view: dict[str, Any] = {
        "item": report.item,
        "outcome": report.outcome,
        **totals(report.shards),
        "counted": {
            "held": tally.held.total(),
            "claimed": tally.claimed.total(),
            "claims": {state.value: tally.claims[state] for state in ClaimState if tally.claims[state]},
        },
        "differences": [
            {"shard": each.stored.number, "stored": counts(each.stored), "counted": counts(each.right)}
            for each in report.differences
        ],
        "inconclusive_shards": list(report.unsure),
        "repair": plan(report),
        "repaired": report.repaired,
    }
    if tally.at_fault:
        view["claims_at_fault"] = {"count": len(tally.at_fault), "first": faults_shown(tally)}
    return view
