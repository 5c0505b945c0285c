"""What must hold of claims, judged by what was written and answered, in the words of docs/design.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from firstwrite.claim.model import Adjustment, ClaimRequest
from firstwrite.claim.outcomes import (
    Adjusted,
    Claimed,
    KeyReused,
    LimitReached,
    NotEnoughStock,
    Refused,
    Replayed,
    Settled,
    SoldOut,
)
from firstwrite.claim.records import adjustment_key, claim_key
from tests.interleave.explorer import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.claim.model import Claim
    from tests.interleave.explorer import Event, Scene
    from tests.interleave.world import Change

TABLE = "stock"
GRANTED = frozenset({"held", "claimed", "released", "expired"})
_NEXT = {
    None: {"queued", "rejected", "held", "claimed"},
    "queued": {"queued", "rejected", "held", "claimed"},
    "rejected": {"rejected", "queued", "held", "claimed"},
    "held": {"claimed", "released", "expired"},
}
"""What may become of a claim; everything else is final."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that is not answered yet.

    Attributes:
        least: the least that was available at any instant since it was asked.
        most: the most that its claimant had.
    """

    racer: str
    request: ClaimRequest | Adjustment
    least: int
    most: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """What happened so far: open requests, and claims that somebody was told he was the one to make."""

    asking: tuple[Asking, ...] = ()
    told: frozenset[str] = frozenset()


class ClaimInvariants:
    """The rules.

    Args:
        limit: units that one claimant may have.
        all_decided: at the end no hold is left, and nothing is queued.
    """

    def __init__(self, limit: int | None = None, *, all_decided: bool = False) -> None:
        self._limit = limit
        self._all_decided = all_decided

    def begin(self, scene: Scene) -> Memory:
        """Return the memory at the start."""
        self._balance(scene)
        return Memory()

    def see(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        """Return the memory after an event."""
        match event.kind:
            case "wrote":
                for change in event.changes:
                    if change.slot[1][1].startswith("claim#"):
                        self._moved(memory, change, event.racer, scene)
                    elif change.slot[1][1].startswith("adjust#") and change.before:
                        raise Violation("one adjustment was made twice")
                self._balance(scene)
                available = _available(scene)
                asking = tuple(_updated(asked, available, scene) for asked in memory.asking)
                return memory if asking == memory.asking else replace(memory, asking=asking)
            case "noted":
                return self._noted(memory, event, scene)
            case "died":
                return replace(memory, asking=tuple(one for one in memory.asking if one.racer != event.racer))
            case "raised":
                raise Violation(f"{event.racer} raised {event.value!r}")
        return memory

    def _noted(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        note = event.note
        assert note is not None
        match note.name:
            case "asks":
                requests = note.value if isinstance(note.value, tuple) else (note.value,)
                available = _available(scene)
                new = tuple(_updated(Asking(event.racer, request, available), available, scene) for request in requests)
                return replace(memory, asking=memory.asking + new)
            case "is answered":
                return self._answered(memory, event, scene)
            case "audits" if note.value != "balanced":
                raise Violation(f"the audit says {note.value}")
            case "settles":
                claim_id, to, outcome = note.value
                _settled(event.racer, claim_id, to, outcome, scene)
        return memory

    def end(self, memory: Memory, scene: Scene) -> None:
        """Judge the end."""
        if memory.asking:
            raise Violation(f"{memory.asking[0].racer} was not answered")
        if self._all_decided:
            for (_, (_, sk)), item in scene.items().items():
                if sk.startswith("claim#") and item["state"] in {"held", "queued"}:
                    raise Violation(f"a claim is {item['state']} for ever")

    def _moved(self, memory: Memory, change: Change, racer: str, scene: Scene) -> None:
        """Judge a claim's change of state."""
        before, after = change.before, change.after
        was = before["state"] if before else None
        now = after["state"]
        if now not in _NEXT.get(was, ()):
            raise Violation(f"a claim that was {was} became {now}" + (", once more" if was == now else ""))
        if was == "held" and before and before["taken"] != after["taken"]:
            raise Violation("a claim's units changed")
        if now in GRANTED and sum(after["taken"].values()) != after["quantity"]:
            raise Violation("a claim has other units than it asks for")
        if now == "expired" and after["hold_until"] > scene.now_ms:
            raise Violation("a hold expired before its time")
        if now == "rejected":
            self._turned_away(memory, racer, after)

    def _turned_away(self, memory: Memory, racer: str, claim: Mapping[str, Any]) -> None:
        asked = next(
            (
                asked
                for asked in memory.asking
                if asked.racer == racer
                and isinstance(asked.request, ClaimRequest)
                and asked.request.claim_id == claim["claim_id"]
                and asked.request.quantity == claim["quantity"]
            ),
            None,
        )
        if asked is None:
            raise Violation("a claim was rejected that nobody was asked to decide")
        self._judge_refusal(asked, SoldOut() if claim["reason"] == "sold-out" else LimitReached(self._limit or 0))

    def _balance(self, scene: Scene) -> None:
        """Recount everything from the claims: no unit is lost, made or in two hands, in any state of the table."""
        stock = _Recount(scene)
        for number, shard in stock.shards.items():
            if min(shard["available"], shard["held"], shard["claimed"]) < 0:
                raise Violation(f"shard {number} is below zero")
            if shard["available"] + shard["held"] + shard["claimed"] != shard["total"]:
                raise Violation(f"shard {number}: available + held + claimed is not its total")
            held, claimed = stock.held[number], stock.claimed[number]
            if (shard["held"], shard["claimed"]) != (held, claimed):
                raise Violation(
                    f"shard {number} says {shard['held']} held and {shard['claimed']} claimed, "
                    f"its claims {held} and {claimed}"
                )
        if sum(shard["total"] for shard in stock.shards.values()) != stock.total:
            raise Violation("the shards are not the item's total")
        if self._limit is not None:
            if sorted(filter(None, stock.counts.values())) != sorted(filter(None, stock.units.values())):
                raise Violation(f"claimants are counted {stock.counts}, and have {dict(stock.units)}")
            if max(stock.units.values(), default=0) > self._limit:
                raise Violation("a claimant has more than one may have")

    def _answered(self, memory: Memory, event: Event, scene: Scene) -> Memory:
        assert event.note is not None
        request, outcome = event.note.value
        asked = next(one for one in memory.asking if one.racer == event.racer and one.request == request)
        memory = replace(memory, asking=tuple(one for one in memory.asking if one is not asked))
        match outcome:
            case Claimed(claim) | Replayed(claim):
                _granted(event.racer, request, claim, scene)
                if isinstance(outcome, Claimed):
                    if request.claim_id in memory.told:
                        raise Violation("two were told that the claim is newly theirs")
                    return replace(memory, told=memory.told | {request.claim_id})
            case SoldOut() | LimitReached() | NotEnoughStock():
                self._judge_refusal(asked, outcome)
            case KeyReused():
                stored = scene.item(TABLE, *claim_key(request.claim_id).values())
                if stored is None or stored["quantity"] == request.quantity:
                    raise Violation(f"{event.racer} was told that its key was used for something else")
            case Adjusted():
                key = adjustment_key(request.item, request.adjustment_id)
                _exists(event.racer, scene.item(TABLE, *key.values()))
            case "decided":
                stored = scene.item(TABLE, *claim_key(request.claim_id).values())
                if stored is None or stored["state"] == "queued":
                    raise Violation(f"{event.racer} is done with a message, and its claim is not decided")
            case _:
                raise Violation(f"{event.racer} was answered {outcome!r}")
        return memory

    def _judge_refusal(self, asked: Asking, outcome: object) -> None:
        """A refusal must have been true at some instant of the request."""
        request = asked.request
        match outcome, request:
            case SoldOut(), ClaimRequest(quantity=wanted):
                pass
            case NotEnoughStock(), Adjustment(add=add):
                wanted = -add
            case LimitReached(), ClaimRequest(quantity=quantity):
                if self._limit is None or asked.most + quantity <= self._limit:
                    raise Violation(f"{asked.racer} was told of a limit that was never reached")
                return
            case _:
                raise Violation(f"{asked.racer} was answered {outcome!r}")
        if asked.least >= wanted:
            raise Violation(f"{asked.racer} was told that stock is out, and there were always at least {asked.least}")


def _exists(racer: str, adjustment: object) -> None:
    if adjustment is None:
        raise Violation(f"{racer} was told of an adjustment that was not made")


def _granted(racer: str, request: ClaimRequest, claim: Claim, scene: Scene) -> None:
    stored = scene.item(TABLE, *claim_key(request.claim_id).values())
    if stored is None or stored["state"] not in GRANTED:
        raise Violation(f"{racer} was told of a claim that does not exist")
    told = (request.quantity, {str(number): units for number, units in claim.taken.items()}, claim.hold_until)
    if (stored["quantity"], stored["taken"], stored.get("hold_until")) != told:
        raise Violation(f"{racer} was told of another claim than it has")


class _Recount:
    """The stock as it is stored, and as the claims add up."""

    def __init__(self, scene: Scene) -> None:
        self.shards: dict[int, Mapping[str, Any]] = {}
        self.counts: dict[str, int] = {}
        self.held: Counter[int] = Counter()
        self.claimed: Counter[int] = Counter()
        self.units: Counter[str] = Counter()
        self.total = 0
        for (_, (pk, sk)), item in scene.items().items():
            if sk == "meta":
                self.total = item["total"]
            elif sk == "stock":
                self.shards[int(pk.rpartition("#")[2])] = item
            elif sk == "count":
                self.counts[pk.rpartition("#")[2]] = item["units"]
            elif sk.startswith("claim#") and item["state"] in {"held", "claimed"}:
                self._add(item)

    def _add(self, claim: Mapping[str, Any]) -> None:
        into = self.held if claim["state"] == "held" else self.claimed
        for number, taken in claim["taken"].items():
            into[int(number)] += taken
        self.units[claim["claimant"]] += claim["quantity"]


def _settled(racer: str, claim_id: str, to: str, outcome: object, scene: Scene) -> None:
    stored = scene.item(TABLE, *claim_key(claim_id).values())
    state = stored["state"] if stored else None
    match outcome:
        case Settled(claim):
            if state != to or claim.state != to:
                raise Violation(f"{racer} was told that its claim is {to}, and it is {state}")
        case Refused(claim):
            if state in {to, "held"} or claim.state != state:
                raise Violation(f"{racer} was told that its claim is {claim.state}, and it is {state}")
        case _:
            raise Violation(f"{racer} was answered {outcome!r}")


def _available(scene: Scene) -> int:
    """Return what can be had, with what would come back if holds that are due were expired."""
    items = [(sk, item) for (_, (_, sk)), item in scene.items().items()]
    due = [item for sk, item in items if sk.startswith("claim#") and _is_due(item, scene.now_ms)]
    at_hand = sum(int(item["available"]) for sk, item in items if sk == "stock")
    return at_hand + sum(int(item["quantity"]) for item in due)


def _is_due(claim: Mapping[str, Any], now_ms: int) -> bool:
    return bool(claim["state"] == "held" and claim["hold_until"] <= now_ms)


def _updated(asked: Asking, available: int, scene: Scene) -> Asking:
    most = asked.most
    if isinstance(asked.request, ClaimRequest):
        claimant = asked.request.claimant
        has = sum(
            item["quantity"]
            for (_, (_, sk)), item in scene.items().items()
            if sk.startswith("claim#") and item["claimant"] == claimant and item["state"] in {"held", "claimed"}
        )
        most = max(most, has)
    return replace(asked, least=min(asked.least, available), most=most)
