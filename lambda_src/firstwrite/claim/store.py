"""The stock table: items, shards of stock, claims and claimants' counts, each transition one transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstwrite.claim import records
from firstwrite.claim.model import ClaimState, spread
from firstwrite.claim.remembered import Remembered
from firstwrite.claim.writes import Writes
from firstwrite.conditional import Applied, Busy, Rejected, RejectedTransaction
from firstwrite.dynamodb import Table
from firstwrite.errors import DataFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstwrite.claim.model import Adjustment, Claim, ItemSettings, Shard
    from firstwrite.clock import Deadline
    from firstwrite.conditional import Conditional, Write
    from firstwrite.dynamodb import Dynamo, Key

MOST_WRITES = 100
"""What one transaction takes."""
_MOST_READS = 100


@dataclass(frozen=True, slots=True)
class Look:
    """What was read of an item, each part as it was at some instant of the call.

    Attributes:
        shards: the parts of the stock asked for.
        claims: those that exist among the claims asked for, by id.
        units: what each claimant asked for has.
    """

    shards: Sequence[Shard]
    claims: Mapping[str, Claim]
    units: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Granted:
    """Claims were granted; `claims` are as they are recorded, in the order they were given."""

    claims: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class NotGranted:
    """A condition of a grant did not hold. Nothing was taken.

    Attributes:
        existing: claims that stood in the way, by id.
        over_limit: a claimant would have had more than one may have.
    """

    existing: Mapping[str, Claim]
    over_limit: bool


class Overtaken:
    """What was to be changed is not, or no longer, as it must be; a new look tells."""


class StockStore:
    """Reads and transitions of stock and claims.

    Args:
        dynamo: reads.
        conditional: writes.
        table_name: the stock table.
    """

    def __init__(self, dynamo: Dynamo, conditional: Conditional, table_name: str) -> None:
        self._dynamo = dynamo
        self._conditional = conditional
        self._table = Table(table_name, "stock", ("pk", "sk"))
        self._writes = Writes(self._table)
        self._settings: Remembered[ItemSettings] = Remembered()

    def create(self, settings: ItemSettings, deadline: Deadline) -> ItemSettings | Busy | None:
        """Create an item and its shards, all or nothing.

        Returns:
            None where it was created, else the settings of the item that exists.
        """
        units = enumerate(spread(settings.stock, settings.shards))
        writes: list[Write] = [
            self._writes.create_item(settings),
            self._writes.list_item(settings.item),
            *(self._writes.create_shard(settings.item, number, part) for number, part in units),
        ]
        outcome = self._conditional.transact(writes, "create-item", deadline)
        match outcome:
            case Applied():
                return None
            case RejectedTransaction(current) if current.get(0):
                return records.read_settings(current[0])
            case RejectedTransaction():
                raise DataFaultError("shards exist without their item")
            case _:
                return outcome

    def settings(self, item: str, deadline: Deadline) -> ItemSettings | None:
        """Return what an item was created with, None where there is no such item.

        From memory where it was read before, for it never changes.
        """
        known = self._settings.get(item)
        if known is None:
            found = self._dynamo.get(self._table, records.meta_key(item), deadline, consistent=True)
            if found is None:
                return None
            known = records.read_settings(found)
            self._settings.put(item, known)
        return known

    def total(self, item: str, deadline: Deadline) -> int:
        """Return how many units an item has, claimed ones included."""
        found = self._dynamo.get(self._table, records.meta_key(item), deadline, consistent=True)
        return records.whole(found or {}, "total")

    def shards(self, settings: ItemSettings, deadline: Deadline) -> Sequence[Shard]:
        """Return an item's shards, each as it was at some instant of the call."""
        return self.look(settings, deadline).shards

    def look(
        self,
        settings: ItemSettings,
        deadline: Deadline,
        *,
        shards: Sequence[int] | None = None,
        claim_ids: Sequence[str] = (),
        claimants: Sequence[str] = (),
    ) -> Look:
        """Return an item's shards, some claims and claimants' counts, by strongly consistent reads.

        One round trip for up to 100 records, the shards in the first.

        Args:
            settings: of the item.
            deadline: the reads end here.
            shards: numbers of the shards to read, None for all.
            claim_ids: claims to read.
            claimants: whose counts to read.

        Raises:
            DataFaultError: a shard is missing, or something is not of the form this code writes.
        """
        numbers = range(settings.shards) if shards is None else shards
        keys: list[Key] = [records.shard_key(settings.item, number) for number in numbers]
        keys += [records.claim_key(claim_id) for claim_id in claim_ids]
        by_count_key = {records.claimant_key(settings.item, claimant)["pk"]: claimant for claimant in claimants}
        keys += [{"pk": pk, "sk": "count"} for pk in by_count_key]
        found: list[Shard] = []
        claims: dict[str, Claim] = {}
        units = dict.fromkeys(claimants, 0)
        for start in range(0, len(keys), _MOST_READS):
            for record in self._dynamo.get_many(self._table, keys[start : start + _MOST_READS], deadline):
                match record["sk"]:
                    case "stock":
                        found.append(records.read_shard(record))
                    case "count":
                        units[by_count_key[record["pk"]]] = records.whole(record, "units")
                    case _:
                        claim = records.read_claim(record)
                        claims[claim.claim_id] = claim
        if len(found) != len(numbers):
            raise DataFaultError("an item lacks shards of its stock")
        return Look(found, claims, units)

    def claim(self, claim_id: str, deadline: Deadline) -> Claim | None:
        """Return a claim, None where there is none."""
        found = self._dynamo.get(self._table, records.claim_key(claim_id), deadline, consistent=True)
        return None if found is None else records.read_claim(found)

    def claims(self, keys: Sequence[Key], deadline: Deadline) -> list[Claim]:
        """Return the claims that exist at `keys`, at most 100."""
        return [records.read_claim(record) for record in self._dynamo.get_many(self._table, keys, deadline)]

    def grant(
        self,
        claims: Sequence[Claim],
        limit: int | None,
        deadline: Deadline,
        write_id: str,
        *,
        though_rejected: bool = True,
    ) -> Granted | NotGranted | Busy:
        """Take the units of claims on one item and record them, all or nothing.

        Args:
            claims: one, or as many as fit with a write for each shard used and, under a limit, for each claimant.
            limit: units one claimant may have.
            deadline: as for `Conditional.transact`.
            write_id: names this logical write, which is these very claims.
            though_rejected: see `Writes.grant_claim`.
        """
        item = claims[0].item
        held = claims[0].state is ClaimState.HELD
        puts = [self._writes.grant_claim(claim, though_rejected=though_rejected) for claim in claims]
        takes = [self._writes.take(item, number, units, held=held) for number, units in taken_by(claims).items()]
        counts = [] if limit is None else [
            self._writes.count(item, claimant, units, limit) for claimant, units in units_by_claimant(claims).items()
        ]  # fmt: skip
        outcome = self._conditional.transact([*puts, *takes, *counts], "claim", deadline, write_id=write_id)
        if isinstance(outcome, Applied):
            # What an earlier attempt recorded, whose reply was lost, may have come from other shards.
            recorded = {index: records.read_claim(item) for index, item in outcome.current.items() if index < len(puts)}
            return Granted([recorded.get(index, claim) for index, claim in enumerate(claims)])
        if isinstance(outcome, Busy):
            return outcome
        existing: dict[str, Claim] = {}
        for index, record in outcome.current.items():
            if index < len(puts):
                if record is None:
                    continue  # deleted since, by nobody we know: a new look tells
                existing[claims[index].claim_id] = records.read_claim(record)
            elif index < len(puts) + len(takes):
                if record is None:
                    raise DataFaultError("an item lacks shards of its stock")
                records.read_shard(record)  # a condition on a missing or misshapen attribute fails too
        return NotGranted(existing, over_limit=any(index >= len(puts) + len(takes) for index in outcome.current))

    def settle(
        self, claims: Sequence[Claim], to: ClaimState, now_ms: int, deadline: Deadline, *, limited: bool
    ) -> Applied | Overtaken | Busy:
        """End holds on one item, all or none of them, and move their units where they belong.

        Args:
            claims: one, or as many as fit with a write for each shard and, where `limited`, for each claimant.
            to: `CLAIMED`, `RELEASED` or `EXPIRED`.
            now_ms: wall time, against which the deadlines are held.
            deadline: retries end here.
            limited: the item has a limit, so what does not stay claimed is counted off its claimant.
        """
        item = claims[0].item
        move = self._writes.keep if to is ClaimState.CLAIMED else self._writes.give_back
        writes: list[Write] = [self._writes.settle_claim(claim, to, now_ms) for claim in claims]
        writes += [move(item, number, units) for number, units in taken_by(claims).items()]
        if limited and to is not ClaimState.CLAIMED:
            writes += [
                self._writes.uncount(item, claimant, units) for claimant, units in units_by_claimant(claims).items()
            ]
        outcome = self._conditional.transact(writes, _SETTLING[to], deadline)
        return Overtaken() if isinstance(outcome, RejectedTransaction) else outcome

    def queue(self, claim: Claim, deadline: Deadline) -> Applied | Claim | Busy:
        """Note that a claim was asked for, or return what is known of it."""
        return self._note(self._writes.queue_claim(claim), "queue", deadline)

    def reject(self, claim: Claim, deadline: Deadline) -> Applied | Claim | Busy:
        """Note that a queued claim was not granted, and why, or return how it was decided otherwise."""
        return self._note(self._writes.reject_claim(claim), "reject", deadline)

    def _note(self, write: Write, operation: str, deadline: Deadline) -> Applied | Claim | Busy:
        outcome = self._conditional.write(write, operation, deadline)
        if not isinstance(outcome, Rejected):
            return outcome
        return Busy("conflict") if outcome.current is None else records.read_claim(outcome.current)

    def adjusted(self, adjustment: Adjustment, deadline: Deadline) -> tuple[int, str] | None:
        """Return what an adjustment added that was made under this id, and by which write; None where none was."""
        key = records.adjustment_key(adjustment.item, adjustment.adjustment_id)
        found = self._dynamo.get(self._table, key, deadline, consistent=True)
        return None if found is None else (records.whole(found, "add"), str(found["write_id"]))

    def adjust(
        self, adjustment: Adjustment, parts: Mapping[int, int], now_ms: int, deadline: Deadline, write_id: str
    ) -> Applied | Overtaken | Busy:
        """Add units to shards or take them out, and record that it was done, all or nothing.

        Returns:
            `Overtaken` where it was made before, a shard has too few, or the total would be above the most it may be.
        """
        item = adjustment.item
        change = self._writes.add if adjustment.add > 0 else self._writes.withdraw
        writes: list[Write] = [
            self._writes.adjustment(adjustment, now_ms),
            self._writes.adjust_total(item, adjustment.add),
            *(change(item, number, units) for number, units in parts.items()),
        ]
        outcome = self._conditional.transact(writes, "adjust", deadline, write_id=write_id)
        return Overtaken() if isinstance(outcome, RejectedTransaction) else outcome

    def repair(
        self, item: str, changes: Sequence[tuple[Shard, Shard]], total: tuple[int, int] | None, deadline: Deadline
    ) -> Applied | Overtaken | Busy:
        """Set shards and the total right, all or nothing, unless one has changed since it was seen.

        Args:
            item: whose they are.
            changes: each shard as it was seen and as it must be.
            total: the item's total as it was seen and as it must be, None where it is right.
            deadline: retries end here.
        """
        writes: list[Write] = [self._writes.repair(item, seen, right) for seen, right in changes]
        if total:
            writes.append(self._writes.repair_total(item, *total))
        outcome = self._conditional.transact(writes, "repair", deadline)
        return Overtaken() if isinstance(outcome, RejectedTransaction) else outcome

    def audit_progress(self, deadline: Deadline) -> tuple[int, str]:
        """Return the bucket and the item at which the scheduled audit stopped."""
        found = self._dynamo.get(self._table, records.AUDIT_PROGRESS_KEY, deadline, consistent=True)
        return (records.whole(found, "bucket"), found["item"]) if found else (0, "")

    def save_audit_progress(self, seen: tuple[int, str], last: tuple[int, str], deadline: Deadline) -> None:
        """Note where the scheduled audit stopped, unless another run has done so meanwhile."""
        self._conditional.write(self._writes.audit_progress(seen, last), "audit-progress", deadline)


_SETTLING = {ClaimState.CLAIMED: "confirm", ClaimState.RELEASED: "release", ClaimState.EXPIRED: "expire"}


def taken_by(claims: Sequence[Claim]) -> Counter[int]:
    """Return the units that claims have taken, by shard number."""
    taken: Counter[int] = Counter()
    for claim in claims:
        taken.update(claim.taken)
    return taken


def units_by_claimant(claims: Sequence[Claim]) -> Counter[str]:
    """Return the units of claims, by claimant."""
    units: Counter[str] = Counter()
    for claim in claims:
        units[claim.claimant] += claim.quantity
    return units
