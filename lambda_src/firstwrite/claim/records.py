"""The stock table's keys and records: where each thing is, and what it looks like there.

item#<item>               meta          what the item was created with, and its total
item#<item>               adjust#<id>   a restock or withdrawal that was made, so that a repeat is recognised
item#<item>#shard#<n>     stock         a part of the stock, in a partition of its own
item#<item>#claims#<b>    claim#<id>    the claims, in buckets, so that they can be listed consistently
item#<item>#claimant#<h>  count         units a claimant has, where there is a limit
items#<b>                 item#<item>   every item, so that an audit finds them without a scan
audit                     progress      where the scheduled audit goes on
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from firstwrite.claim.model import Claim, ClaimState, ItemSettings, Shard, split_claim_id
from firstwrite.errors import DataFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.dynamodb import Item

CLAIM_BUCKETS = 16
"""Partitions an item's claims are spread over; one takes about 500 transactional writes a second."""
ITEM_BUCKETS = 16
DUE_GROUPS = 16
DUE_SPREAD = 4
"""Holds that come due are indexed in 16 groups of 4 partitions: an item's are in one group, so that they are found by
four queries, and in four partitions, so that one item takes thousands of holds a second; the schedule reads all 64."""
AUDIT_PROGRESS_KEY = {"pk": "audit", "sk": "progress"}


def meta_key(item: str) -> dict[str, str]:
    """Return the key of an item."""
    return {"pk": f"item#{item}", "sk": "meta"}


def adjustment_key(item: str, adjustment_id: str) -> dict[str, str]:
    """Return the key of a restock or withdrawal."""
    return {"pk": f"item#{item}", "sk": f"adjust#{adjustment_id}"}


def shard_key(item: str, number: int) -> dict[str, str]:
    """Return the key of a part of an item's stock."""
    return {"pk": f"item#{item}#shard#{number}", "sk": "stock"}


def claims_partition(item: str, bucket: int) -> str:
    """Return the partition of one bucket of an item's claims."""
    return f"item#{item}#claims#{bucket}"


def claim_key(claim_id: str) -> dict[str, str]:
    """Return the key of a claim.

    Raises:
        ValueError: this is no claim id.
    """
    digest, item = _parts(claim_id)
    return {"pk": claims_partition(item, int(digest[:8], 16) % CLAIM_BUCKETS), "sk": f"claim#{digest}"}


def claimant_key(item: str, claimant: str) -> dict[str, str]:
    """Return the key of the count of what a claimant has."""
    return {"pk": f"item#{item}#claimant#{hashlib.sha256(claimant.encode()).hexdigest()}", "sk": "count"}


def directory_key(item: str) -> dict[str, str]:
    """Return the key under which an item is found by those who look for all."""
    return {"pk": items_partition(_hash(item) % ITEM_BUCKETS), "sk": f"item#{item}"}


def items_partition(bucket: int) -> str:
    """Return the partition of one bucket of the list of items."""
    return f"items#{bucket}"


def due_partitions(item: str) -> list[str]:
    """Return the index partitions in which an item's holds come due."""
    return [f"{_hash(item) % DUE_GROUPS}.{spread}" for spread in range(DUE_SPREAD)]


def all_due_partitions() -> list[str]:
    """Return the index partitions in which holds come due."""
    return [f"{group}.{spread}" for group in range(DUE_GROUPS) for spread in range(DUE_SPREAD)]


def _due_partition(claim_id: str) -> str:
    digest, item = _parts(claim_id)
    return due_partitions(item)[int(digest[:8], 16) % DUE_SPREAD]


def _hash(item: str) -> int:
    return int(hashlib.sha256(item.encode()).hexdigest()[:8], 16)


def _parts(claim_id: str) -> tuple[str, str]:
    parts = split_claim_id(claim_id)
    if parts is None:
        raise ValueError("not a claim id")
    return parts


def item_of_partition(claims_pk: str) -> str:
    """Return the item whose claims are in a partition."""
    return claims_pk.removeprefix("item#").rpartition("#claims#")[0]


def meta_record(settings: ItemSettings) -> Item:
    """Return a new item as it is stored."""
    return {
        **meta_key(settings.item),
        "item": settings.item,
        "total": settings.stock,
        "stock": settings.stock,
        "shards": settings.shards,
        "limit_per_claimant": settings.limit_per_claimant,
        "hold_seconds": settings.hold_seconds,
    }


def shard_record(item: str, number: int, units: int) -> Item:
    """Return a new part of the stock as it is stored."""
    counts = {"total": units, "available": units, "held": 0, "claimed": 0, "returns": 0}
    return {**shard_key(item, number), **counts}


def claim_record(claim: Claim) -> Item:
    """Return a claim as it is stored."""
    record: Item = {
        **claim_key(claim.claim_id),
        "claim_id": claim.claim_id,
        "item": claim.item,
        "caller": claim.caller,
        "claimant": claim.claimant,
        "quantity": claim.quantity,
        "taken": {str(number): units for number, units in claim.taken.items()},
        "state": claim.state,
        "created_at": claim.created_at,
        "fingerprint": claim.fingerprint,
    }
    if claim.reason is not None:
        record["reason"] = claim.reason
    if claim.hold_until is not None:
        # Both attributes together put a claim into the index of holds that come due.
        record["hold_until"] = claim.hold_until
        record["due_bucket"] = _due_partition(claim.claim_id)
    return record


def read_settings(record: Item | None) -> ItemSettings:
    """Return an item's settings.

    Raises:
        DataFaultError: the record is not of the form this code writes; so for the functions below.
    """
    record = record or {}
    try:
        return ItemSettings(
            record["item"],
            whole(record, "stock"),
            whole(record, "shards"),
            record.get("limit_per_claimant"),
            record.get("hold_seconds"),
        )
    except KeyError as error:
        raise DataFaultError("an item is not of the form this code writes") from error


def read_shard(record: Item) -> Shard:
    """Return a part of the stock."""
    try:
        return Shard(
            number=int(record["pk"].rpartition("#")[2]),
            total=whole(record, "total"),
            available=whole(record, "available"),
            held=whole(record, "held"),
            claimed=whole(record, "claimed"),
            returns=whole(record, "returns"),
            write_id=record["write_id"],
        )
    except (KeyError, ValueError) as error:
        raise DataFaultError("a shard is not of the form this code writes") from error


def read_claim(record: Item) -> Claim:
    """Return a claim."""
    try:
        return Claim(
            claim_id=record["claim_id"],
            item=record["item"],
            caller=record["caller"],
            claimant=record["claimant"],
            quantity=whole(record, "quantity"),
            taken={int(number): whole(record["taken"], number) for number in record["taken"]},
            state=ClaimState(record["state"]),
            created_at=whole(record, "created_at"),
            hold_until=whole(record, "hold_until") if "hold_until" in record else None,
            fingerprint=record["fingerprint"],
            reason=record.get("reason"),
            write_id=record["write_id"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DataFaultError("a claim is not of the form this code writes") from error


def whole(record: Mapping[str, Any], name: str) -> int:
    """Return a whole number out of a record."""
    value = record[name]
    if type(value) is not int:
        raise DataFaultError(f"attribute {name} is not a whole number")
    return value
