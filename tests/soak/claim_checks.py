"""What must hold of claims, judged by answers and by a scan of the stock table, never by what the code counts.

Checked: a request is one claim with one content, for whoever asks and however often; its states follow each other as
the design says and final ones stay; it is newly made for one answer only; no hold expires before its time and none is
confirmed after it; the records add up, shard by shard and claimant by claimant; adjustments are made once for each key;
a refusal is never given while the units were certainly there.

What cannot be checked from outside: a refusal in the grey zone, where requests that overlap it may or may not have had
the units at that instant. There the bound is one-sided: every claim ever granted to a request that began before the
refusal came counts as taken. `make proof` checks that exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.soak.history import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.soak.history import Asked, Attempt, Evidence, Item

GRANTED = frozenset({"held", "claimed", "released", "expired"})
OPEN = frozenset({"queued", "rejected"})
FOLLOWS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(OPEN, OPEN | GRANTED),
    "held": frozenset({"held", "claimed", "released", "expired"}),
    **{final: frozenset({final}) for final in ("claimed", "released", "expired")},
}
"""States in which a claim may be found, once it was found in another."""
CONTENT = ("claim_id", "item", "claimant", "quantity", "created_at", "hold_until")


def check_claims(evidence: Evidence) -> Iterator[Violation]:
    """Yield everything that is wrong with claims and stock."""
    stored = {record["claim_id"]: record for record in evidence.records if record["sk"].startswith("claim#")}
    yield from _one_claim_for_a_key(evidence)
    confirmed_at: dict[str, list[float]] = defaultdict(list)
    for asked in evidence.asked:
        if asked.request.kind == "confirm":
            confirmed_at[asked.request.claim_id].append(asked.began)
    for claim_id, seen in _seen(evidence).items():
        yield from _as_it_was(claim_id, seen, stored.get(claim_id))
        yield from _in_time(claim_id, seen, confirmed_at.get(claim_id, []))
    for claim_id, claim in stored.items():
        if claim["item"] in evidence.items and claim["state"] in {"queued", "held"}:
            yield Violation("all is decided in the end", f"it is still {claim['state']}", claim_id)
    for item in evidence.items.values():
        claims = [claim for claim in stored.values() if claim["item"] == item.name]
        yield from _adds_up(item, evidence.records, claims)
        if item.limit is not None:
            yield from _within_limits(item, evidence.records, claims)
        yield from _adjusted_once(item, evidence)
        yield from _refused_rightly(item, evidence, claims)
        yield from _shown_balanced(item, evidence)


def _one_claim_for_a_key(evidence: Evidence) -> Iterator[Violation]:
    claims: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    keys: dict[str, set[tuple[str, str, str, str]]] = defaultdict(set)
    for asked in evidence.asked:
        request = asked.request
        scope = request.caller, request.of, request.claimant, request.key
        for attempt in asked.attempts:
            claim_id = attempt.body.get("claim_id")
            if request.kind in {"claim", "queue"} and claim_id:
                claims[scope].add(claim_id)
                keys[claim_id].add(scope)
    for scope, found in claims.items():
        if len(found) > 1:
            yield Violation("one claim for a key", f"{scope} got {len(found)} claims: {sorted(found)}", scope[1])
    for claim_id, scopes in keys.items():
        if len(scopes) > 1:
            yield Violation("one key for a claim", f"it was given to {sorted(scopes)}", claim_id)


def _seen(evidence: Evidence) -> dict[str, list[tuple[Asked, Attempt]]]:
    """Return every answer that shows a claim, by claim, in the order in which they came."""
    seen: dict[str, list[tuple[Asked, Attempt]]] = defaultdict(list)
    for asked in evidence.asked:
        for attempt in asked.attempts:
            if "claim_id" in attempt.body:
                seen[attempt.body["claim_id"]].append((asked, attempt))
    for answers in seen.values():
        answers.sort(key=lambda answer: answer[1].ended)
    return seen


def _as_it_was(
    claim_id: str, seen: Sequence[tuple[Asked, Attempt]], stored: Mapping[str, Any] | None
) -> Iterator[Violation]:
    """A claim that was seen is there, with the same content, in a state that can follow those it was seen in."""
    if stored is None:
        yield Violation("what was acknowledged exists", "there is no such record", claim_id)
        return
    granted = [attempt.body for _, attempt in seen if attempt.body["state"] in GRANTED]
    contents = {tuple(_plain(name, body.get(name)) for name in CONTENT) for body in [*granted, stored] if granted}
    if len(contents) > 1:
        yield Violation("a claim's content stays", f"seen as {sorted(map(str, contents))}", claim_id)
    for index, (_, first) in enumerate(seen):
        state = first.body["state"]
        later = [after.body["state"] for _, after in seen[index + 1 :] if after.began >= first.ended]
        wrong = sorted({*later, stored["state"]} - FOLLOWS[state])
        if wrong:
            yield Violation("states follow each other", f"{state}, and then {', '.join(wrong)}", claim_id)
            break
    new = [attempt for asked, attempt in seen if asked.request.kind == "claim" and not attempt.repeated]
    if len(new) > 1:
        yield Violation("a claim is new once", f"{len(new)} answers say that it is newly made", claim_id)


def _in_time(claim_id: str, seen: Sequence[tuple[Asked, Attempt]], confirming: Sequence[float]) -> Iterator[Violation]:
    """A hold ends by itself at its deadline: not before, and after it nobody confirms it."""
    until = next((_epoch(attempt.body["hold_until"]) for _, attempt in seen if "hold_until" in attempt.body), None)
    if until is None:
        return
    if any(attempt.body["state"] == "expired" and attempt.ended < until for _, attempt in seen):
        yield Violation("a hold does not expire early", f"it was held until {until:.3f}", claim_id)
    confirmed = any(attempt.body["state"] == "claimed" for _, attempt in seen)
    if confirmed and min(confirming, default=until + 1) > until:
        yield Violation("a hold is not confirmed late", f"it was held until {until:.3f}", claim_id)


def _adds_up(
    item: Item, records: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]
) -> Iterator[Violation]:
    """Each shard is what its claims say, and their sum is the stock."""
    rule, name = "the records add up", item.name
    shards = {
        int(record["pk"].rpartition("#")[2]): record
        for record in records
        if record["sk"] == "stock" and record["pk"].startswith(f"item#{name}#shard#")
    }
    units: Counter[tuple[int, str]] = Counter()
    for claim in claims:
        if claim["state"] in {"held", "claimed"}:
            units.update({(int(number), claim["state"]): taken for number, taken in claim["taken"].items()})
            if sum(claim["taken"].values()) != claim["quantity"]:
                yield Violation(rule, f"{claim['claim_id']} took {claim['taken']}, not {claim['quantity']}", name)
    for number, shard in shards.items():
        available, held, claimed, total = (shard[part] for part in ("available", "held", "claimed", "total"))
        if available + held + claimed != total or min(available, held, claimed) < 0:
            yield Violation(rule, f"shard {number}: {available} + {held} + {claimed}, of {total}", name)
        counted = units[number, "held"], units[number, "claimed"]
        if (held, claimed) != counted:
            yield Violation(rule, f"shard {number} says {held} held, {claimed} claimed; its claims {counted}", name)
    added = sum(_adjustments(name, records))
    total = sum(shard["total"] for shard in shards.values())
    meta = next((record["total"] for record in records if (record["pk"], record["sk"]) == (f"item#{name}", "meta")), 0)
    if len(shards) != item.shards or not item.stock + added == total == meta:
        what = f"stock {item.stock} and {added} added; {len(shards)} shards have {total}, the item {meta}"
        yield Violation(rule, what, name)
    if item.sells_out and any(shard["available"] for shard in shards.values()):
        yield Violation("what is in demand sells out", "units are left, and the last who asked was refused", name)


def _within_limits(
    item: Item, records: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]
) -> Iterator[Violation]:
    """No claimant has more than one may have, and each is counted as having what it has."""
    has: Counter[str] = Counter()
    for claim in claims:
        if claim["state"] in {"held", "claimed"}:
            has[claim["claimant"]] += claim["quantity"]
    counts = Counter(
        record["units"]
        for record in records
        if record["sk"] == "count" and record["pk"].startswith(f"item#{item.name}#claimant#") and record["units"]
    )
    if counts != Counter(has.values()):
        yield Violation("the records add up", f"claimants are counted {counts}, and have {dict(has)}", item.name)
    if item.limit is not None and max(has.values(), default=0) > item.limit:
        yield Violation("nobody has more than the limit", f"{dict(has)}, of at most {item.limit}", item.name)


def _adjustments(item: str, records: Sequence[Mapping[str, Any]]) -> list[int]:
    return [
        record["add"] for record in records if record["pk"] == f"item#{item}" and record["sk"].startswith("adjust#")
    ]


def _adjusted_once(item: Item, evidence: Evidence) -> Iterator[Violation]:
    """What was acknowledged is recorded, once for each key, and nothing is that nobody asked for."""
    adds = {asked.request.key: asked.request.quantity for asked in evidence.asked if _adjusts(asked, item)}
    done = {asked.request.key for asked in evidence.asked if _adjusts(asked, item) and asked.last.status == 200}
    recorded = Counter(_adjustments(item.name, evidence.records))
    acknowledged, asked_for = Counter(adds[key] for key in done), Counter(adds.values())
    if not acknowledged <= recorded <= asked_for:
        what = f"acknowledged {acknowledged}, recorded {recorded}, asked for {asked_for}"
        yield Violation("an adjustment is made once", what, item.name)


def _adjusts(asked: Asked, item: Item) -> bool:
    return asked.request.kind == "adjust" and asked.request.of == item.name


def _refused_rightly(item: Item, evidence: Evidence, claims: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """Nobody is told that units are out, or a limit reached, while it certainly was not so."""
    of_item = [asked for asked in evidence.asked if asked.request.of == item.name]
    known = _Known(item, of_item, claims)
    for asked in of_item:
        for attempt in asked.attempts:
            wanted = abs(asked.request.quantity)
            if attempt.problem in {"sold-out", "not-enough-stock"}:
                least = known.least_left(attempt) + max(0, -asked.request.quantity)  # a withdrawal refused took none
                if least >= wanted:
                    what = f"{attempt.line}: at least {least} were left, and {wanted} wanted"
                    yield Violation("a refusal is true", what, item.name)
            elif attempt.problem == "limit-reached":
                most = known.most_had(attempt, asked.request.claimant)
                if item.limit is None or most + wanted <= item.limit:
                    what = f"{attempt.line}: {asked.request.claimant} had at most {most} of {item.limit}"
                    yield Violation("a refusal is true", what, item.name)


class _Known:
    """What is certain of an item's stock at an instant, from when requests began and ended."""

    def __init__(self, item: Item, asked: Sequence[Asked], claims: Sequence[Mapping[str, Any]]) -> None:
        self._stock = item.stock
        began: dict[str, float] = {}
        for one in asked:
            for claim_id in {attempt.body["claim_id"] for attempt in one.attempts if "claim_id" in attempt.body}:
                began[claim_id] = min(one.began, began.get(claim_id, one.began))
        # A claim that no answer shows may have been there from the beginning.
        self._grants = [(began.get(claim["claim_id"], 0.0), claim) for claim in claims if claim["state"] in GRANTED]
        self._added: dict[str, tuple[int, float, float]] = {}
        for one in asked:
            if one.request.kind == "adjust":
                done = one.last.ended if one.last.status == 200 else float("inf")
                add, first, last = self._added.get(one.request.key, (one.request.quantity, one.began, done))
                self._added[one.request.key] = add, min(first, one.began), min(last, done)

    def least_left(self, during: Attempt) -> int:
        """Return how many units were available at every instant of an attempt, at least."""
        more = sum(add for add, _, done in self._added.values() if add > 0 and done < during.began)
        less = sum(add for add, began, _ in self._added.values() if add < 0 and began < during.ended)
        return self._stock + more + less - sum(int(claim["quantity"]) for claim in self._granted(during))

    def most_had(self, during: Attempt, claimant: str) -> int:
        """Return how many units a claimant had at any instant of an attempt, at most."""
        return sum(int(claim["quantity"]) for claim in self._granted(during) if claim["claimant"] == claimant)

    def _granted(self, during: Attempt) -> list[Mapping[str, Any]]:
        return [claim for began, claim in self._grants if began < during.ended]


def _shown_balanced(item: Item, evidence: Evidence) -> Iterator[Violation]:
    """An item's totals add up whenever they are read, no audit finds a fault, and the last finds all in balance."""
    audits = []
    for asked in evidence.asked:
        body = asked.last.body
        if asked.request.of != item.name or asked.last.status != 200:
            continue
        if asked.request.kind == "audit":
            audits.append((asked.last.ended, body["outcome"]))
        elif asked.request.kind == "item" and body["available"] + body["held"] + body["claimed"] != body["total"]:
            yield Violation("an item's totals add up", f"{body}", item.name)
    outcomes = [outcome for _, outcome in sorted(audits)]
    if "mismatch" in outcomes or outcomes[-1:] != ["balanced"]:
        yield Violation("the audit balances", f"audits said {Counter(outcomes)}, the last {outcomes[-1:]}", item.name)


def _epoch(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _plain(name: str, value: Any) -> Any:
    """Return times as they are stored, in epoch milliseconds."""
    return round(_epoch(value) * 1000) if name in {"created_at", "hold_until"} and isinstance(value, str) else value
