"""The recount: what the claims say against what the stock says.

Guarantees: no false alarm on an item that is being sold. A shard is compared only where it did not change while the
claims were read, for whatever changes a claim's units changes its shard in the same transaction; and a difference
counts only when a second recount of the same version shows it too. A shard that never stands still is `inconclusive`.
A repair is planned, and made only where the caller says so and the shard is still the one that was counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from firstwrite.claim.model import Claim, ClaimState
from firstwrite.claim.records import CLAIM_BUCKETS, read_claim
from firstwrite.conditional import Applied
from firstwrite.errors import DataFaultError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from firstwrite.claim.lists import StockLists
    from firstwrite.claim.model import ItemSettings, Shard
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Deadline
    from firstwrite.observability import Count

RECOUNTS = 4
_FAULTS_SHOWN = 10


@dataclass(slots=True)
class Tally:
    """What an item's claims add up to.

    Attributes:
        claims: how many there are, by state.
        held: held units by shard number.
        claimed: claimed units by shard number.
        at_fault: claims that cannot be read, or that say one quantity and took another.
    """

    claims: Counter[str] = field(default_factory=Counter)
    held: Counter[int] = field(default_factory=Counter)
    claimed: Counter[int] = field(default_factory=Counter)
    at_fault: list[str] = field(default_factory=list)

    def add(self, claim: Claim) -> None:
        """Count a claim."""
        self.claims[claim.state] += 1
        match claim.state:
            case ClaimState.HELD:
                self.held.update(claim.taken)
            case ClaimState.CLAIMED:
                self.claimed.update(claim.taken)
        if sum(claim.taken.values()) != (0 if claim.is_open else claim.quantity):
            self.at_fault.append(claim.claim_id)


@dataclass(frozen=True, slots=True)
class Difference:
    """A shard whose counts are not what its claims add up to.

    Attributes:
        stored: the shard, in the version that was compared.
        right: the shard as the claims want it.
    """

    stored: Shard
    right: Shard


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit found.

    Attributes:
        item: whose stock.
        outcome: `mismatch` where anything is wrong for certain, else `inconclusive` where anything is not certain.
        shards: the stock as last seen.
        tally: the claims as last counted.
        differences: shards that are wrong.
        unsure: numbers of shards that changed whenever they were looked at.
        total: the item's total as stored and as it must be, where they differ.
        repaired: the differences were set right.
    """

    item: str
    outcome: Literal["balanced", "mismatch", "inconclusive"]
    shards: Sequence[Shard]
    tally: Tally
    differences: Sequence[Difference] = ()
    unsure: Sequence[int] = ()
    total: tuple[int, int] | None = None
    repaired: bool = False

    @property
    def repairable(self) -> bool:
        """Is there a repair? Not while claims are at fault: their units are somebody's, and nobody knows whose."""
        return bool(self.differences or self.total) and not self.tally.at_fault


class Audit:
    """The protocol, over a store of stock and claims.

    Args:
        store: reads and transitions.
        lists: pages of claims.
        count: told of every audit as `AuditMismatches` and `AuditsInconclusive`, 0 or 1.
    """

    def __init__(self, store: StockStore, lists: StockLists, count: Count) -> None:
        self._store = store
        self._lists = lists
        self._count = count

    def run(self, settings: ItemSettings, deadline: Deadline, *, repair: bool = False) -> Report:
        """Recount an item's claims and compare.

        Args:
            settings: of the item.
            deadline: what is not counted by then is not certain.
            repair: set right what is wrong, and say whether that was done.

        Raises:
            DataFaultError: the item's stock is not of the form this code writes.
            StoreUnavailableError: a read was not answered within the deadline.
        """
        report = self._compare(settings, deadline)
        self._count("AuditMismatches", int(report.outcome == "mismatch"))
        self._count("AuditsInconclusive", int(report.outcome == "inconclusive"))
        if repair and report.repairable:
            changes = [(difference.stored, difference.right) for difference in report.differences]
            outcome = self._store.repair(settings.item, changes, report.total, deadline)
            return replace(report, repaired=isinstance(outcome, Applied))
        return report

    def _compare(self, settings: ItemSettings, deadline: Deadline) -> Report:
        balanced: set[int] = set()
        wrong: dict[int, Difference] = {}
        suspected: dict[int, Difference] = {}
        totals: list[tuple[int, int]] = []
        shards, tally = self._store.shards(settings, deadline), Tally()
        for _ in range(RECOUNTS):
            before = shards
            counted = self._recount(settings.item, deadline)
            total = self._store.total(settings.item, deadline)
            shards = self._store.shards(settings, deadline)
            if counted is None:
                break
            tally = counted
            unchanged = _unchanged(before, shards)
            found = {number: _difference(shard, tally) for number, shard in unchanged.items()}
            balanced |= {number for number, difference in found.items() if difference is None}
            differences = {number: difference for number, difference in found.items() if difference}
            wrong |= {number: seen for number, seen in differences.items() if suspected.get(number) == seen}
            balanced -= wrong.keys()
            suspected = differences
            if len(unchanged) == len(shards):
                totals.append((total, sum(_right(shard, differences).total for shard in shards)))
            if len(balanced) + len(wrong) == len(shards) and _agree(totals):
                break
        unsure = sorted({shard.number for shard in shards} - balanced - wrong.keys())
        wrong_total = totals[-1] if totals and _agree(totals) and totals[-1][0] != totals[-1][1] else None
        mismatch = wrong or wrong_total or tally.at_fault
        return Report(
            item=settings.item,
            outcome="mismatch" if mismatch else "inconclusive" if unsure else "balanced",
            shards=sorted(shards, key=lambda shard: shard.number),
            tally=tally,
            differences=[wrong[number] for number in sorted(wrong)],
            unsure=unsure,
            total=wrong_total,
        )

    def _recount(self, item: str, deadline: Deadline) -> Tally | None:
        """Return what all claims of an item add up to, None where time ran out."""
        tally = Tally()
        for bucket in range(CLAIM_BUCKETS):
            after: str | None = None
            while True:
                page, after = self._lists.claims(item, bucket, after, None, deadline)
                for record in page:
                    try:
                        tally.add(read_claim(record))
                    except DataFaultError:
                        tally.at_fault.append(str(record["sk"]))
                if after is None:
                    break
                if not deadline.left_ms():
                    return None
        return tally


def plan(report: Report) -> list[dict[str, object]]:
    """Return the repair as an operator reads it."""
    if not report.repairable:
        return []
    steps: list[dict[str, object]] = [
        {"shard": difference.stored.number, "from": counts(difference.stored), "to": counts(difference.right)}
        for difference in report.differences
    ]
    if report.total:
        steps.append({"total": {"from": report.total[0], "to": report.total[1]}})
    return steps


def counts(shard: Shard) -> dict[str, int]:
    """Return a shard's counts by name."""
    return {
        "total": shard.total,
        "available": shard.available,
        "held": shard.held,
        "claimed": shard.claimed,
    }


def faults_shown(tally: Tally) -> list[str]:
    """Return the first claims at fault."""
    return tally.at_fault[:_FAULTS_SHOWN]


def _unchanged(before: Iterable[Shard], after: Iterable[Shard]) -> dict[int, Shard]:
    versions = {shard.number: shard.write_id for shard in before}
    return {shard.number: shard for shard in after if versions[shard.number] == shard.write_id}


def _difference(shard: Shard, tally: Tally) -> Difference | None:
    held, claimed = tally.held[shard.number], tally.claimed[shard.number]
    # Claims are promises. Where they are more than there is, the total gives way, for it cannot be taken from them.
    total = max(shard.total, held + claimed)
    right = replace(shard, total=total, available=total - held - claimed, held=held, claimed=claimed)
    return None if right == shard else Difference(shard, right)


def _right(shard: Shard, differences: Mapping[int, Difference]) -> Shard:
    return differences[shard.number].right if shard.number in differences else shard


def _agree(totals: Sequence[tuple[int, int]]) -> bool:
    """Is the item's total right, or wrong twice in the same way?"""
    if not totals or totals[-1][0] == totals[-1][1]:
        return True
    return len(totals) > 1 and totals[-1] == totals[-2]
