"""Every conditional write on the stock table, each with the rule that it carries.

A transaction's parts are all or nothing, so it is enough that one of them, the claim's or the adjustment's, has a
condition that is false once it took effect. The others state what must never be broken, such as `available >= units`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstwrite.claim import records
from firstwrite.claim.model import MAX_STOCK, ClaimState
from firstwrite.conditional import Put, Update

if TYPE_CHECKING:
    from firstwrite.claim.model import Adjustment, Claim, ItemSettings, Shard
    from firstwrite.dynamodb import Table

_ABSENT = "attribute_not_exists(pk)"
_STATE = {"#state": "state"}
_TOTAL = {"#total": "total"}


@dataclass(frozen=True, slots=True)
class Writes:
    """Makes writes for `table`."""

    table: Table

    def create_item(self, settings: ItemSettings) -> Put:
        """Create an item."""
        return Put(self.table, records.meta_record(settings), _ABSENT)

    def create_shard(self, item: str, number: int, units: int) -> Put:
        """Create a part of an item's stock."""
        return Put(self.table, records.shard_record(item, number, units), _ABSENT)

    def list_item(self, item: str) -> Put:
        """Enter an item into the list of all."""
        return Put(self.table, {**records.directory_key(item), "item": item}, _ABSENT)

    def queue_claim(self, claim: Claim) -> Put:
        """Note that a claim was asked for, unless something is known of it; a rejection may be tried again."""
        condition = f"{_ABSENT} OR #state = :rejected"
        return Put(self.table, records.claim_record(claim), condition, _STATE, {":rejected": ClaimState.REJECTED})

    def reject_claim(self, claim: Claim) -> Put:
        """Note why a queued claim was not granted, unless it was decided meanwhile."""
        return Put(self.table, records.claim_record(claim), *_undecided(claim))

    def grant_claim(self, claim: Claim, *, though_rejected: bool) -> Put:
        """Record a granted claim, unless it was granted before.

        Args:
            claim: the claim.
            though_rejected: the caller asks anew. A message of the queue does not: its rejection may have been read.
        """
        condition, names, values = _undecided(claim)
        if though_rejected:
            condition, values = f"{condition} OR #state = :rejected", {**values, ":rejected": ClaimState.REJECTED}
        return Put(self.table, records.claim_record(claim), condition, names, values)

    def take(self, item: str, number: int, units: int, *, held: bool) -> Update:
        """Take units where enough are left, so that stock cannot fall below zero."""
        return Update(
            self.table,
            records.shard_key(item, number),
            update="SET available = available - :units, #to = #to + :units, write_id = :write_id",
            condition="available >= :units",
            names={"#to": "held" if held else "claimed"},
            values={":units": units},
        )

    def count(self, item: str, claimant: str, units: int, limit: int) -> Update:
        """Count a claimant's units where that stays within the limit."""
        return Update(
            self.table,
            records.claimant_key(item, claimant),
            update="SET units = if_not_exists(units, :zero) + :units, write_id = :write_id",
            condition="attribute_not_exists(units) OR units <= :most_before",
            values={":zero": 0, ":units": units, ":most_before": limit - units},
        )

    def settle_claim(self, claim: Claim, to: ClaimState, now_ms: int) -> Update:
        """End a hold, unless it has ended: claimed before its deadline, expired from then on, released at any time.

        The deadline stands in the condition, so that of a confirmation and an expiry only one can ever win.
        """
        in_time = {ClaimState.CLAIMED: " AND hold_until > :now", ClaimState.EXPIRED: " AND hold_until <= :now"}
        return Update(
            self.table,
            records.claim_key(claim.claim_id),
            # Without its partition the claim leaves the index of holds that come due.
            update="SET #state = :to, settled_at = :now, write_id = :write_id REMOVE due_bucket",
            condition=f"#state = :held{in_time.get(to, '')}",
            names=_STATE,
            values={":to": to, ":held": ClaimState.HELD, ":now": now_ms},
        )

    def keep(self, item: str, number: int, units: int) -> Update:
        """Turn held units into claimed ones."""
        return Update(
            self.table,
            records.shard_key(item, number),
            update="SET held = held - :units, claimed = claimed + :units, write_id = :write_id",
            condition="held >= :units",
            values={":units": units},
        )

    def give_back(self, item: str, number: int, units: int) -> Update:
        """Turn held units into available ones. `returns` tells those who prove that nothing came back."""
        return Update(
            self.table,
            records.shard_key(item, number),
            update="SET held = held - :units, available = available + :units, #returns = #returns + :one, "
            "write_id = :write_id",
            condition="held >= :units",
            names={"#returns": "returns"},
            values={":units": units, ":one": 1},
        )

    def uncount(self, item: str, claimant: str, units: int) -> Update:
        """Count units off a claimant, who may claim others."""
        return Update(
            self.table,
            records.claimant_key(item, claimant),
            update="SET units = units - :units, write_id = :write_id",
            condition="units >= :units",
            values={":units": units},
        )

    def adjustment(self, adjustment: Adjustment, now_ms: int) -> Put:
        """Record a restock or withdrawal, unless it was made before."""
        record = {
            **records.adjustment_key(adjustment.item, adjustment.adjustment_id),
            "caller": adjustment.caller,
            "add": adjustment.add,
            "made_at": now_ms,
        }
        return Put(self.table, record, _ABSENT)

    def adjust_total(self, item: str, add: int) -> Update:
        """Change an item's total, up to the most that a total may be."""
        return Update(
            self.table,
            records.meta_key(item),
            update="SET #total = #total + :add, write_id = :write_id",
            condition="#total <= :most_before",
            names=_TOTAL,
            values={":add": add, ":most_before": MAX_STOCK - max(0, add)},
        )

    def add(self, item: str, number: int, units: int) -> Update:
        """Add units to a part of the stock."""
        return Update(
            self.table,
            records.shard_key(item, number),
            update="SET available = available + :units, #total = #total + :units, #returns = #returns + :one, "
            "write_id = :write_id",
            condition=f"NOT {_ABSENT}",
            names={**_TOTAL, "#returns": "returns"},
            values={":units": units, ":one": 1},
        )

    def withdraw(self, item: str, number: int, units: int) -> Update:
        """Take unclaimed units out of a part of the stock, where enough are left."""
        return Update(
            self.table,
            records.shard_key(item, number),
            update="SET available = available - :units, #total = #total - :units, write_id = :write_id",
            condition="available >= :units",
            names=_TOTAL,
            values={":units": units},
        )

    def repair(self, item: str, seen: Shard, right: Shard) -> Update:
        """Set a part of the stock right, unless it has changed since it was seen."""
        return Update(
            self.table,
            records.shard_key(item, seen.number),
            update="SET #total = :total, available = :available, held = :held, claimed = :claimed, "
            "#returns = #returns + :one, write_id = :write_id",
            condition="write_id = :seen",
            names={**_TOTAL, "#returns": "returns"},
            values={
                ":total": right.total,
                ":available": right.available,
                ":held": right.held,
                ":claimed": right.claimed,
                ":one": 1,
                ":seen": seen.write_id,
            },
        )

    def repair_total(self, item: str, seen: int, right: int) -> Update:
        """Set an item's total right, unless it has changed since it was seen."""
        return Update(
            self.table,
            records.meta_key(item),
            update="SET #total = :right, write_id = :write_id",
            condition="#total = :seen",
            names=_TOTAL,
            values={":seen": seen, ":right": right},
        )

    def audit_progress(self, seen: tuple[int, str], last: tuple[int, str]) -> Put:
        """Note where the scheduled audit stopped, unless another run has moved on from what was seen."""
        return Put(
            self.table,
            {**records.AUDIT_PROGRESS_KEY, "bucket": last[0], "item": last[1]},
            condition=f"{_ABSENT} OR (#bucket = :bucket AND #item = :item)",
            names={"#bucket": "bucket", "#item": "item"},
            values={":bucket": seen[0], ":item": seen[1]},
        )


def _undecided(claim: Claim) -> tuple[str, dict[str, str], dict[str, str]]:
    condition = f"{_ABSENT} OR (#state = :queued AND fingerprint = :fingerprint)"
    return condition, _STATE, {":queued": ClaimState.QUEUED, ":fingerprint": claim.fingerprint}
