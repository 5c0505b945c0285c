"""The soak's checks: silent about a sound history, and each of them loud about one that is wrong in its way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.soak.answer_checks import check_answers
from tests.soak.cache_checks import check_cache
from tests.soak.claim_checks import check_claims
from tests.soak.history import Asked, Attempt, Evidence, Item, PaidCall, Request, Source, Struck
from tests.soak.soak import Report, read_sources

if TYPE_CHECKING:
    from collections.abc import Callable

CREATED, HELD_UNTIL = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:02.000Z"
T0 = 1_767_225_600.0
ITEM = "ticket"


def claim_body(name: str = "c1", state: str = "claimed", **changes: Any) -> dict[str, Any]:
    content = {"claim_id": name, "item": ITEM, "claimant": "ann", "quantity": 1, "created_at": CREATED}
    return {**content, "state": state, **changes}


def claimed(at: float, name: str = "c1", key: str = "k1", *, repeated: bool = False, **changes: Any) -> Asked:
    body = claim_body(name, **changes)
    request = Request("claim", ITEM, key=key, claimant="ann", quantity=body["quantity"])
    return Asked(request, [Attempt(T0 + at, T0 + at + 0.1, 201, body=body, repeated=repeated)])


def refused(at: float, problem: str = "sold-out", quantity: int = 1, key: str = "k9") -> Asked:
    request = Request("claim", ITEM, key=key, claimant="ann", quantity=quantity)
    return Asked(request, [Attempt(T0 + at, T0 + at + 0.1, 409, problem)])


def adjusted(at: float, add: int, status: int = 200, key: str = "a1") -> Asked:
    attempt = Attempt(T0 + at, T0 + at + 0.1, status, "" if status == 200 else "not-enough-stock")
    return Asked(Request("adjust", ITEM, key=key, quantity=add), [attempt])


def settled(at: float, kind: Any, state: str) -> Asked:
    attempt = Attempt(T0 + at, T0 + at + 0.1, 200, body=claim_body(state=state, hold_until=HELD_UNTIL))
    return Asked(Request(kind, ITEM, claim_id="c1"), [attempt])


def audited(at: float = 9, outcome: str = "balanced") -> Asked:
    return Asked(Request("audit", ITEM), [Attempt(T0 + at, T0 + at, 200, body={"outcome": outcome})])


def shown(**totals: int) -> Asked:
    body = {"total": 3, "available": 1, "held": 0, "claimed": 2, **totals}
    return Asked(Request("item", ITEM), [Attempt(T0, T0, 200, body=body)])


def record(name: str = "c1", state: str = "claimed", **changes: Any) -> dict[str, Any]:
    keys = {"pk": f"item#{ITEM}#claims#0", "sk": f"claim#{name}", "taken": {"0": changes.get("quantity", 1)}}
    return {**claim_body(name, state), "created_at": round(T0 * 1000), **keys, **changes}


def stock(**changes: int) -> list[dict[str, Any]]:
    shard = {"total": 3, "available": 1, "held": 0, "claimed": 2, **changes}
    return [
        {"pk": f"item#{ITEM}", "sk": "meta", "total": shard["total"]},
        {"pk": f"item#{ITEM}#shard#0", "sk": "stock", **shard},
        {"pk": f"item#{ITEM}#claimant#h", "sk": "count", "units": 2},
    ]


def add_record(add: int) -> dict[str, Any]:
    return {"pk": f"item#{ITEM}", "sk": f"adjust#{add}", "add": add}


SOUND_CLAIMS = Evidence(
    asked=[
        claimed(0),
        claimed(1, repeated=True),
        claimed(1, "c2", "k2"),
        refused(2, quantity=2),
        shown(),
        audited(),
    ],
    items={ITEM: Item(ITEM, 3, 1, limit=2)},
    records=[*stock(), record(), record("c2")],
)


def asking(*more: Asked) -> Evidence:
    return replace(SOUND_CLAIMS, asked=[*more, *SOUND_CLAIMS.asked])


def recording(*records: dict[str, Any]) -> Evidence:
    return replace(SOUND_CLAIMS, records=records)


def holding(state: str, *asked: Asked) -> Evidence:
    """One held claim, its record now in `state`."""
    hold = claimed(0, state="held", hold_until=HELD_UNTIL)
    units = {"held": {"held": 1}, "claimed": {"claimed": 1}}.get(state, {})
    shard = {"total": 3, "claimed": 0, "available": 3 - sum(units.values()), **units}
    records = [*stock(**shard)[:2], record(state=state, hold_until=round(T0 * 1000) + 2000)]
    return Evidence([hold, *asked, audited()], {ITEM: Item(ITEM, 3, 1, hold_s=2)}, records)


WRONG_CLAIMS: list[tuple[str, Evidence]] = [
    ("one claim for a key", asking(claimed(1, "c2", "k1", repeated=True))),
    ("one key for a claim", asking(claimed(1, "c1", "k2", repeated=True))),
    ("what was acknowledged exists", recording(*stock(claimed=1, available=2), record("c2"))),
    ("a claim's content stays", asking(claimed(3, quantity=2, repeated=True))),
    ("a claim's content stays", recording(*stock(), record(claimant="bob"), record("c2"))),
    ("a claim is new once", asking(claimed(3))),
    ("states follow each other", asking(claimed(3, state="released", repeated=True))),
    ("states follow each other", recording(*stock(), record(state="rejected"), record("c2"))),
    ("all is decided in the end", recording(*stock(), record(state="queued"), record("c2"))),
    ("a hold does not expire early", holding("expired", settled(1, "read", "expired"))),
    ("a hold is not confirmed late", holding("claimed", settled(3, "confirm", "claimed"))),
    ("the records add up", recording(*stock(available=2), record(), record("c2"))),
    ("the records add up", recording(*stock(claimed=3, available=0), record(), record("c2"))),
    ("the records add up", recording(*stock(available=-1, claimed=4), record(quantity=4))),
    ("the records add up", recording(*stock(), record(), record("c2", taken={"0": 2}))),
    ("the records add up", recording(*stock(), record(), record("c2"), add_record(2))),
    ("the records add up", recording(*stock()[:2], record(), record("c2"))),
    ("nobody has more than the limit", replace(SOUND_CLAIMS, items={ITEM: Item(ITEM, 3, 1, limit=1)})),
    ("what is in demand sells out", replace(SOUND_CLAIMS, items={ITEM: Item(ITEM, 3, 1, limit=2, sells_out=True)})),
    ("an adjustment is made once", asking(adjusted(2, 4))),
    ("an adjustment is made once", recording(*stock(total=7, available=5), record(), record("c2"), add_record(4))),
    ("a refusal is true", asking(refused(2))),
    ("a refusal is true", asking(refused(0.5, quantity=1, problem="limit-reached", key="k3"))),
    ("a refusal is true", asking(adjusted(2, -1, 409))),
    ("an item's totals add up", asking(shown(claimed=3))),
    ("the audit balances", asking(audited(1, "mismatch"))),
    ("the audit balances", asking(audited(10, "inconclusive"))),
]


def rules(check: Callable[[Evidence], Any], evidence: Evidence) -> set[str]:
    return {violation.rule for violation in check(evidence)}


@pytest.mark.parametrize(
    "evidence",
    [
        SOUND_CLAIMS,
        asking(adjusted(2, -2, 409)),
        asking(refused(0.5, "limit-reached", 2)),
        holding("claimed", settled(1, "confirm", "claimed"), settled(3, "confirm", "claimed")),
        holding("expired", settled(2.5, "read", "expired")),
        holding("released", settled(1, "release", "released")),
    ],
)
def test_sound_claims_are_passed(evidence: Evidence) -> None:
    """Repeats, true refusals, and holds that end as they may."""
    assert rules(check_claims, evidence) == set()


@pytest.mark.parametrize(("rule", "evidence"), WRONG_CLAIMS)
def test_wrong_claims_are_caught(rule: str, evidence: Evidence) -> None:
    """Each rule is broken by a history that only it, or it among others, forbids."""
    assert rule in rules(check_claims, evidence)


VALUE, KEY = "value-1", "lasting#abc"


def paid(number: int, at: float, refresh: str | None = None, **changes: Any) -> PaidCall:
    call = PaidCall(VALUE, refresh or f"r{number}", number, T0 + at, T0 + at + 0.1, 200, digest=f"body-{number}")
    return replace(call, **changes)


def served(number: int, at: float, mark: str = "firstwrite; hit; ttl=1", **changes: Any) -> Asked:
    attempt = Attempt(T0 + at, T0 + at + 0.2, 200, digest=f"body-{number}", mark=mark)
    return Asked(Request("fetch", VALUE, source="lasting"), [replace(attempt, **changes)])


def dropped(at: float, kind: Any = "drop") -> Asked:
    return Asked(Request(kind, VALUE, source="lasting"), [Attempt(T0 + at, T0 + at + 0.1, 204)])


STORED = "firstwrite; fwd=miss; stored"
LASTING = Source(fresh_s=8, stale_s=0, timeout_s=1, lease_s=4, cooldown_s=0.2)
CAREFUL = replace(LASTING, fresh_s=1, lease_s=3, careful=True)


def cache(calls: list[PaidCall], asked: list[Asked], source: Source = LASTING, **changes: Any) -> Evidence:
    evidence = Evidence(
        asked=asked,
        sources={"lasting": source},
        values={VALUE: ("lasting", KEY)},
        paid=calls,
        counted={VALUE: len(calls)},
    )
    return replace(evidence, **changes)


def struck(kind: str, at: float, *of: str) -> list[Struck]:
    return [Struck(kind, T0 + at, of)]


KILLED = struck("kill", 0.05, "CacheFunction", f"/v1/cache/lasting?id={VALUE}")
SOUND_CACHE = [
    cache([paid(1, 0), paid(2, 9)], [served(1, 0, STORED), served(1, 3), served(2, 9, STORED)]),
    cache([paid(1, 0), paid(2, 5, "r1")], [served(2, 5, STORED)], struck=KILLED),
    cache([paid(1, 0), paid(2, 1)], [served(1, 0, STORED), dropped(0.5), served(2, 1, STORED)]),
    cache([paid(1, 0), paid(2, 1)], [served(1, 0, STORED), dropped(0.5, "renew"), served(2, 1, STORED)]),
    cache([paid(1, 0, status=503), paid(2, 0.4, "r1")], [served(2, 0.4, STORED)]),
    cache([paid(1, 0, heard=False), paid(2, 0.4, "r1")], [served(2, 0.4, STORED)]),
    # The call was on its way for so long that its caller had given up when it was answered.
    cache([paid(1, 0.5), paid(2, 1.5, "r1")], [served(0, 0, "", status=504, problem="upstream-timeout", ended=T0 + 1)]),
    cache([paid(1, 0, heard=False), paid(2, 5)], [dropped(4), served(2, 5, STORED)], CAREFUL),
    cache(
        [paid(1, 4.6), paid(2, 3.1, "r1")],
        [],
        CAREFUL,
        struck=struck("pause", 0.1, "CacheFunction", f"/v1/cache/lasting?id={VALUE}"),
    ),
    # Its owner's lease was over, and it is served what it paid for and could not store.
    cache([paid(1, 0), paid(2, 5, "r1")], [served(2, 5, STORED), served(1, 6, "firstwrite; fwd=miss")], struck=KILLED),
]
WRONG_CACHE: list[tuple[str, Evidence]] = [
    ("an answer is one that was paid for", cache([paid(1, 0)], [served(7, 1)])),
    ("an answer is one that was paid for", cache([paid(1, 5)], [served(1, 1)])),
    ("no answer is older than its source allows", cache([paid(1, 0)], [served(1, 19)])),
    ("answers never go back", cache([paid(1, 0), paid(2, 9)], [served(2, 9, STORED), served(1, 9.5)])),
    ("what was dropped is not served", cache([paid(1, 0)], [dropped(1), served(1, 2)])),
    ("each call has a fence of its own", cache([paid(1, 0), paid(1, 9, "r2")], [])),
    ("a refresh ends with a stored result", cache([paid(1, 0), paid(2, 9, "r1")], [served(1, 0, STORED)])),
    ("a refresh has one key", cache([paid(1, 0), paid(2, 9), paid(3, 18, "r1")], [])),
    ("a refresh has one key", cache([paid(1, 0, status=503), paid(2, 5)], [])),
    ("one call until the next is due", cache([paid(1, 0), paid(2, 0.05, "r1")], [])),
    ("one call until the next is due", cache([paid(1, 0), paid(2, 5, "r1")], [])),
    (
        "one call until the next is due",
        cache([paid(1, 0.5), paid(2, 5, "r1")], [served(0, 1, "", status=504, problem="upstream-timeout")]),
    ),
    ("one call until the next is due", cache([paid(1, 0), paid(2, 0.5, "r1")], [], struck=KILLED)),
    (
        "one call until the next is due",
        cache([paid(1, 0), paid(2, 5, "r1")], [], struck=struck("kill", 0.05, "f", "?")),
    ),
    ("one call until the next is due", cache([paid(1, 0), paid(2, 0.9, "r1")], [], CAREFUL, struck=KILLED)),
    ("one call until the next is due", cache([paid(1, 0, status=503), paid(2, 0.2, "r1")], [])),
    ("one call until the next is due", cache([paid(1, 4.6), paid(2, 3.1, "r1")], [], struck=KILLED)),
    (
        "one call until the next is due",
        cache([paid(1, 0), paid(2, 5, "r1")], [], struck=struck("lose-reply", 0.1, "GetItem", KEY)),
    ),
    ("what may have been paid is not paid again", cache([paid(1, 0, heard=False), paid(2, 9, "r1")], [], CAREFUL)),
    ("what may have been paid is not paid again", cache([paid(1, 0, ended=T0 + 2), paid(2, 9, "r1")], [], CAREFUL)),
    ("the paid API's count agrees with its log", cache([paid(1, 0)], [], counted={VALUE: 2})),
]


@pytest.mark.parametrize("evidence", SOUND_CACHE)
def test_sound_values_are_passed(evidence: Evidence) -> None:
    """Fetches when they are due, takeovers that a fault explains, operators' drops, failures that cooled down."""
    assert rules(check_cache, evidence) == set()


@pytest.mark.parametrize(("rule", "evidence"), WRONG_CACHE)
def test_wrong_values_are_caught(rule: str, evidence: Evidence) -> None:
    """Each rule is broken by a history that only it, or it among others, forbids."""
    assert rule in rules(check_cache, evidence)


def tried(*attempts: tuple[int, str], kind: Any = "claim") -> Evidence:
    tries = [Attempt(T0 + at, T0 + at + 0.5, status, problem) for at, (status, problem) in enumerate(attempts)]
    return Evidence(asked=[Asked(Request(kind, ITEM, key="k"), tries)])


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        ("every request is answered in the end", tried((503, "busy"), (503, "busy"))),
        ("an error is a known problem", tried((500, "internal-error"), (201, ""))),
        ("an error is a known problem", tried((404, "unknown-item"))),
        ("an error is a known problem", tried((500, ""), (201, ""))),
        (
            "an error is a known problem",
            replace(tried((500, ""), (201, "")), struck=struck("kill", 0.2, "CacheFunction")),
        ),
        (
            "an error is a known problem",
            replace(tried((500, ""), (201, "")), struck=struck("kill", 3, "ClaimFunction")),
        ),
    ],
)
def test_wrong_answers_are_caught(rule: str, evidence: Evidence) -> None:
    """No final answer, a fault of the functions' own, a strange problem, a bare 500 that no killed worker explains."""
    assert rule in rules(check_answers, evidence)


def test_passing_trouble_is_passed() -> None:
    """Busy, nothing at all, and a bare 500 of a worker that was killed, with an answer in the end."""
    evidence = replace(tried((503, "busy"), (0, ""), (502, ""), (201, "")), struck=struck("kill", 2.2, "ClaimFunction"))
    assert rules(check_answers, evidence) == set()


def test_a_report_ends_with_what_counts_and_shows_the_history_of_what_is_wrong() -> None:
    """A violation comes with the requests it is about; the last line has the figures."""
    evidence = cache([paid(1, 0)], [served(7, 1)], struck=KILLED)
    [violation, *_] = check_cache(evidence)
    lines = Report(30, evidence, [violation]).lines
    assert lines[-1] == "soak: 30 s, 1 requests, 1 faults (kill 1), 1 violations"
    assert any(line.startswith("VIOLATED, 1 times: an answer is one that was paid for. value-1") for line in lines)
    assert any("kill CacheFunction /v1/cache/lasting" in line for line in lines)
    assert any(line.lstrip().startswith("paid value-1") for line in lines)


def test_leases_are_on_the_side_of_freshness_that_the_checks_need() -> None:
    """Where the lease outlasts answer and call, nothing excuses a second call; in one source it does not."""
    sources = read_sources()
    strict = {name for name, source in sources.items() if source.lease_s > source.fresh_s + source.timeout_s}
    assert strict == {"quick", "stale", "careful"}
    assert sources["lasting"].lease_s + 2 * sources["lasting"].timeout_s < sources["lasting"].fresh_s
