"""Requests to the claims' HTTP face in any order, with a moving clock and faults, beside a model of what must come.

Only what a client can see is judged: status, headers and body.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.interleave.engine import Engine
from tests.support.clocks import FakeClock
from tests.support.contract import check_described
from tests.support.engine import create_stock_table
from tests.support.faults import conflict, lose_reply, lose_request, throttle
from tests.support.stock import ClaimFace, FakeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.support.faults import Fault
    from tests.support.http import Reply

HOLD_S = 60
ENVIRONMENTS = st.integers(0, 1)
CALLERS = st.sampled_from(["alice", "bert"])
CLAIMANTS = st.sampled_from([None, "ann"])
KEYS = st.sampled_from([f"key {number}" for number in range(4)])
QUANTITIES = st.integers(1, 3)
LONG = 300
"""More faults in a row than any deadline has room for."""
WRITES, READS = ("transact_write_items", "put_item", "update_item"), ("get_item", "batch_get_item", "query")
STANDS_IN_THE_WAY = {
    "claimed": "already-confirmed",
    "released": "already-released",
    "expired": "hold-expired",
    "queued": "claim-undecided",
    "rejected": "claim-rejected",
}
GRANTED, UNDECIDED = {"held", "claimed", "released", "expired"}, {"queued", "rejected"}


def _all(operations: Iterable[str], *faults: Fault | None) -> dict[str, list[Fault | None]]:
    return {operation: list(faults) for operation in operations}


FAULTS: dict[str, Mapping[str, list[Fault | None]]] = {
    "none": {},
    "lost reply": _all(WRITES, lose_reply),
    "lost request": _all(WRITES, lose_request),
    "conflicts": _all(["transact_write_items"], conflict, conflict),
    "throttled": _all([*WRITES, *READS], throttle, throttle),
    "conflicts without end": _all(["transact_write_items"], *[conflict] * LONG),
    "silence": _all([*WRITES, *READS], *[lose_request] * LONG),
    "done, and then silence": {
        **_all(WRITES, lose_reply, *[lose_request] * LONG),
        **_all(READS, None, *[throttle] * LONG),
    },
}
FAULT = st.sampled_from(["none"] * 6 + list(FAULTS))


def milliseconds(text: str) -> int:
    """Return a time of RFC 3339 as epoch milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@dataclass
class Known:
    """A claim as its caller last saw it."""

    caller: str
    claimant: str
    view: dict[str, Any]

    @property
    def state(self) -> str:
        return str(self.view["state"])

    @property
    def quantity(self) -> int:
        return int(self.view["quantity"])

    @property
    def path(self) -> str:
        return f"/v1/claims/{self.view['claim_id']}"


class ClaimMachine(RuleBasedStateMachine):
    """One item, two execution environments, two callers."""

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.clock, self.queue = Engine(), FakeClock(), FakeQueue()
        self.table = create_stock_table(self.engine)  # type: ignore[arg-type]
        self.faces = [self.new_face() for _ in range(2)]
        self.claims: dict[tuple[str, str, str], Known] = {}
        self.adjustments: dict[tuple[str, str], int] = {}
        self.created = False
        self.total = 0
        self.limit: int | None = None
        self.was_busy = False

    def new_face(self) -> ClaimFace:
        return ClaimFace(self.engine, self.table, queue=self.queue, clock=self.clock)

    # Sending

    def send(self, env: int, method: str, template: str, body: Any = None, **options: Any) -> Reply:
        path = template.replace("{item}", "item").replace("{claim_id}", options.pop("claim_id", ""))
        reply = self.faces[env].send(method, path, body, **options)
        check_described(method, template, reply)
        if reply.status in (200, 201, 202):
            assert reply.headers["content-type"] == "application/json"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.status < 500 or reply.problem == "busy", reply
        return reply

    def ask(self, env: int, fault: str, send: Callable[[], Reply], look: Callable[[], Any]) -> tuple[Reply, bool]:
        """Send with a fault; where the answer is busy, look what became of it and send again without.

        Returns:
            The answer, and whether it was busy at first and had taken effect nevertheless.
        """
        before = look()
        self.faces[env].counter.client.meet(FAULTS[fault])
        reply = send()
        self.faces[env].counter.client.meet({})
        self.was_busy = reply.status == 503
        if not self.was_busy:
            return reply, False
        assert len(FAULTS[fault].get("transact_write_items", ())) == LONG or "then" in fault, "busy for too little"
        assert int(reply.headers["retry-after"]) >= 1
        landed = look() != before
        reply = send()
        assert reply.status != 503
        return reply, landed

    # The model

    def now(self) -> int:
        return self.clock.now_ms()

    def is_due(self, known: Known) -> bool:
        return known.state == "held" and milliseconds(known.view["hold_until"]) <= self.now()

    def taken(self, claimant: str | None = None) -> int:
        """Return the units that are held or claimed, of one claimant or of all, without those of holds that are due."""
        return sum(
            known.quantity
            for known in self.claims.values()
            if claimant in (None, known.claimant) and known.state in ("held", "claimed") and not self.is_due(known)
        )

    def may_be(self, known: Known) -> set[str]:
        """Return the states that a claim may be in, as nobody is told when a hold expires."""
        return {"held", "expired"} if self.is_due(known) else {known.state}

    def saw(self, known: Known, view: dict[str, Any]) -> None:
        """Note what was shown of a claim, which may differ only by what time has done."""
        assert view["state"] in self.may_be(known), (view, known)
        assert view == {**known.view, "state": view["state"]}
        known.view = view

    def refusals(self, claimant: str, quantity: int) -> set[str]:
        """Return why a claim may be turned away now."""
        refused = set()
        if quantity > self.total - self.taken():
            refused.add("sold-out")
        if self.limit is not None and self.taken(claimant) + quantity > self.limit:
            refused.add("limit-reached")
        return refused

    def answers(self, who: tuple[str, str, str], quantity: int, *, later: bool) -> set[str]:
        """Return what may come of asking for units now."""
        if not self.created:
            return {"unknown-item"}
        known = self.claims.get(who)
        too_many = self.limit is not None and quantity > self.limit
        state = known.state if known else "none"
        if known and state != "rejected" and known.quantity != quantity:
            return {"idempotency-key-reused"} | ({"limit-reached"} if too_many else set())
        if state in GRANTED:
            return {"replayed"}
        if too_many:
            return {"limit-reached"}
        if later:
            return {"queued again" if state == "queued" else "queued"}
        return self.refusals(who[1], quantity) or {"granted"}

    # Items

    @initialize(
        stock=st.integers(0, 8), shards=st.integers(1, 3), holds=st.booleans(), limit=st.none() | st.integers(2, 4)
    )
    def settle_settings(self, stock: int, shards: int, limit: int | None, *, holds: bool) -> None:
        self.settings: dict[str, int] = {"stock": stock, "shards": shards}
        if holds:
            self.settings["hold_seconds"] = HOLD_S
        if limit:
            self.settings["limit_per_claimant"] = limit
        self.held_first = holds
        self.create(0, "none", other=False)

    @rule(env=ENVIRONMENTS, fault=FAULT, other=st.booleans())
    def create(self, env: int, fault: str, *, other: bool) -> None:
        body = {**self.settings, "shards": 4} if other and self.created else self.settings
        reply, landed = self.ask(env, fault, lambda: self.send(env, "PUT", "/v1/items/{item}", body), self.totals)
        if body != self.settings:
            assert (reply.status, reply.problem) == (409, "item-exists")
            return
        assert reply.status == (200 if self.created or landed else 201)
        if not self.created:
            self.created, self.total, self.limit = True, self.settings["stock"], self.settings.get("limit_per_claimant")
        self.check_item(reply.json)

    @rule(
        env=ENVIRONMENTS,
        caller=CALLERS,
        key=KEYS,
        add=st.integers(-5, 4).filter(bool),
        fault=FAULT,
    )
    def adjust(self, env: int, caller: str, key: str, add: int, fault: str) -> None:
        made = self.adjustments.get((caller, key))
        headers = {"X-Caller": caller, "Idempotency-Key": key}

        def expected() -> set[str]:
            if made is not None:
                return {"replayed"} if made == add else {"idempotency-key-reused"}
            return {"made"} if self.total - self.taken() + add >= 0 else {"not-enough-stock"}

        allowed = expected()
        reply, landed = self.ask(
            env,
            fault,
            lambda: self.send(env, "POST", "/v1/items/{item}/stock", {"add": add}, headers=headers),
            lambda: self.totals().get("total"),
        )
        allowed |= expected()
        replayed = "idempotency-replayed" in reply.headers
        answer = reply.problem if reply.status >= 400 else "replayed" if replayed and not landed else "made"
        assert answer in allowed, (answer, allowed)
        assert replayed == (answer == "replayed" or landed)
        if answer == "made":
            self.adjustments[caller, key] = add
            self.total += add
        if reply.status == 200:
            self.check_item(reply.json)
        else:
            assert reply.status == (422 if answer == "idempotency-key-reused" else 409)

    @rule(env=ENVIRONMENTS)
    def audit(self, env: int) -> None:
        report = self.send(env, "POST", "/v1/items/{item}/audit", {"apply": False}).json
        self.check_item(report)
        assert (report["outcome"], report["repaired"], report["differences"]) == ("balanced", False, [])
        counted = report["counted"]
        assert (counted["held"], counted["claimed"]) == (report["held"], report["claimed"])
        assert sum(counted["claims"].values()) == len(self.claims)

    @rule(env=ENVIRONMENTS, limit=st.integers(1, 3))
    def list_all(self, env: int, limit: int) -> None:
        listed = {view["claim_id"]: view for view in self.listed(env, limit)}
        assert len(listed) == len(self.claims)
        for known in self.claims.values():
            view = listed[known.view["claim_id"]]
            assert view.pop("caller") == f"header:{known.caller}"
            self.saw(known, view)

    def listed(self, env: int = 0, limit: int = 200) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        query = {"limit": str(limit)}
        while True:
            page = self.send(env, "GET", "/v1/items/{item}/claims", query=query).json
            assert len(page["claims"]) <= limit
            listed += page["claims"]
            if "cursor" not in page:
                return listed
            query["cursor"] = page["cursor"]

    def totals(self) -> Any:
        reply = self.send(0, "GET", "/v1/items/{item}")
        return reply.json if reply.status == 200 else {}

    # Claims

    @rule(
        env=ENVIRONMENTS,
        caller=CALLERS,
        claimant=CLAIMANTS,
        key=KEYS,
        quantity=QUANTITIES,
        later=st.booleans(),
        fault=FAULT,
    )
    def claim(
        self, *, env: int, caller: str, claimant: str | None, key: str, quantity: int, fault: str, later: bool
    ) -> None:
        who = (caller, claimant or f"header:{caller}", key)
        body = {"quantity": quantity, **({"claimant": claimant} if claimant else {})}
        headers = {"X-Caller": caller, "Idempotency-Key": key, **({"Prefer": "respond-async"} if later else {})}
        allowed = self.answers(who, quantity, later=later)
        start, sent = self.now(), len(self.queue.bodies)
        reply, landed = self.ask(
            env,
            fault,
            lambda: self.send(env, "POST", "/v1/items/{item}/claims", body, headers=headers),
            # What comes due meanwhile is no effect of the request.
            lambda: sorted((view["claim_id"], view["state"] in UNDECIDED and view["state"]) for view in self.listed()),
        )
        allowed |= self.answers(who, quantity, later=later)
        replayed = "idempotency-replayed" in reply.headers
        match reply.status:
            case 201:
                answer = "replayed" if replayed and not landed else "granted"
            case 202:
                answer = "queued again" if replayed and not landed else "queued"
            case _:
                answer = reply.problem
        assert answer in allowed, (answer, allowed)
        assert replayed == (answer in ("replayed", "queued again") or landed)
        assert (len(self.queue.bodies) > sent) == (reply.status == 202)
        if reply.status >= 400:
            assert reply.status == {"idempotency-key-reused": 422, "unknown-item": 404}.get(answer, 409)
            return
        view = reply.json
        assert reply.headers["location"] == f"/v1/claims/{view['claim_id']}"
        assert ("preference-applied" in reply.headers) == (reply.status == 202)
        if answer in ("replayed", "queued again"):
            self.saw(self.claims[who], view)
            return
        known = Known(caller, who[1], view)
        assert (view["item"], view["claimant"], view["quantity"]) == ("item", who[1], quantity)
        assert start <= milliseconds(view["created_at"]) <= self.now()
        assert who not in self.claims or self.claims[who].path == known.path
        assert known.path not in {other.path for key, other in self.claims.items() if key != who}
        if answer == "queued":
            assert view["state"] == "queued"
        else:
            self.check_granted(known, start)
        self.claims[who] = known

    def check_granted(self, known: Known, start: int) -> None:
        """Assert what a claim is right after it was granted."""
        view = known.view
        assert view["state"] == ("held" if self.held_first else "claimed") or self.is_due(known)
        assert ("hold_until" in view) == self.held_first
        if self.held_first:
            assert start <= milliseconds(view["hold_until"]) - HOLD_S * 1000 <= self.now()

    @precondition(lambda self: self.queue.bodies)
    @rule(data=st.data(), env=ENVIRONMENTS, fault=FAULT, keep=st.booleans())
    def deliver(self, data: st.DataObject, env: int, fault: str, *, keep: bool) -> None:
        """Deliver messages in any order, some of them twice, some of them later once more."""
        numbers = data.draw(st.lists(st.integers(0, len(self.queue.bodies) - 1), min_size=1, max_size=6))
        batch = [self.queue.bodies[number] for number in numbers]
        undecided = {who: known.state for who, known in self.claims.items() if known.state == "queued"}
        start = self.now()
        self.faces[env].counter.client.meet(FAULTS[fault])
        failed = self.faces[env].deliver(*batch)
        self.faces[env].counter.client.meet({})
        left = [batch[int(message_id[1:])] for message_id in failed]
        if left:
            assert "silence" in fault or "without end" in fault
            assert self.faces[env].deliver(*left) == []
        if not keep:
            gone = set(batch)
            self.queue.bodies = [body for body in self.queue.bodies if body not in gone]
        # Those granted first, for they are what the others may have been turned away for.
        fresh: list[Known] = []
        for who in undecided:
            known = self.claims[who]
            view = self.get(env, known, known.caller).json
            if view["state"] in GRANTED:
                fresh.append(known)
                assert view.pop("hold_until", None) is not None or not self.held_first
                view = self.get(env, known, known.caller).json
                assert {**view, "state": "queued"} == {**known.view, **self.hold_of(view)}
                known.view = view
                self.check_granted(known, start)
        assert self.taken() <= self.total
        assert all(self.limit is None or self.taken(known.claimant) <= self.limit for known in fresh)
        for who in undecided:
            known = self.claims[who]
            view = self.get(env, known, known.caller).json
            if known.state == "queued" and view["state"] == "rejected":
                assert view.pop("reason") in self.refusals(known.claimant, known.quantity)
                view = self.get(env, known, known.caller).json
                known.view = view

    @staticmethod
    def hold_of(view: dict[str, Any]) -> dict[str, Any]:
        return {"hold_until": view["hold_until"]} if "hold_until" in view else {}

    def get(self, env: int, known: Known, caller: str) -> Reply:
        claim_id = known.view["claim_id"]
        return self.send(env, "GET", "/v1/claims/{claim_id}", claim_id=claim_id, headers={"X-Caller": caller})

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), env=ENVIRONMENTS, caller=CALLERS)
    def show(self, data: st.DataObject, env: int, caller: str) -> None:
        known = self.claims[data.draw(st.sampled_from(sorted(self.claims)))]
        reply = self.get(env, known, caller)
        if caller != known.caller:
            assert (reply.status, reply.problem) == (404, "unknown-claim")
        else:
            assert reply.status == 200
            self.saw(known, reply.json)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), env=ENVIRONMENTS, caller=CALLERS, to=st.sampled_from(["confirm", "release"]), fault=FAULT)
    def end_hold(self, data: st.DataObject, env: int, caller: str, to: str, fault: str) -> None:
        known = self.claims[data.draw(st.sampled_from(sorted(self.claims)))]
        aim = "claimed" if to == "confirm" else "released"

        def expected() -> set[str]:
            if caller != known.caller:
                return {"unknown-claim"}
            if to == "release" and self.is_due(known):
                return {aim, "hold-expired"}
            if to == "confirm" and self.is_due(known):
                return {"hold-expired"}
            return {aim if known.state in ("held", aim) else STANDS_IN_THE_WAY[known.state]}

        allowed = expected()
        claim_id = known.view["claim_id"]
        reply, _ = self.ask(
            env,
            fault,
            lambda: self.send(
                env, "POST", "/v1/claims/{claim_id}/" + to, claim_id=claim_id, headers={"X-Caller": caller}
            ),
            lambda: None,
        )
        allowed |= expected()
        answer = reply.json["state"] if reply.status == 200 else reply.problem
        assert answer in allowed, (answer, allowed)
        if reply.status == 200:
            assert reply.json == {**known.view, "state": aim}
            known.view = reply.json
        else:
            assert reply.status == (404 if answer == "unknown-claim" else 409)
            assert ("retry-after" in reply.headers) == (answer == "claim-undecided")
            if answer == "hold-expired":
                known.view = {**known.view, "state": "expired"}

    # Time and processes

    @rule(by_ms=st.sampled_from([1_000, 20_000, HOLD_S * 1000]))
    def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @precondition(lambda self: any(known.state == "held" for known in self.claims.values()))
    @rule(early_ms=st.sampled_from([0, 1]))
    def come_to_a_deadline(self, early_ms: int) -> None:
        until = min(milliseconds(known.view["hold_until"]) for known in self.claims.values() if known.state == "held")
        self.clock.advance(max(0, until - early_ms - self.now()))

    @rule(env=ENVIRONMENTS)
    def sweep(self, env: int) -> None:
        assert self.faces[env].counter.expire()
        for known in self.claims.values():
            if self.is_due(known):
                known.view = {**known.view, "state": "expired"}

    @rule(env=ENVIRONMENTS)
    def start_anew(self, env: int) -> None:
        self.faces[env] = self.new_face()

    # What always holds

    def check_item(self, view: Mapping[str, Any]) -> None:
        """Assert that an item's totals are the model's; holds that are due may be back or not."""
        held = sum(known.quantity for known in self.claims.values() if known.state == "held" and not self.is_due(known))
        due = sum(known.quantity for known in self.claims.values() if self.is_due(known))
        assert view["total"] == self.total == view["available"] + view["held"] + view["claimed"]
        assert min(view["available"], view["held"], view["claimed"]) >= 0
        assert held <= view["held"] <= held + due
        assert view["claimed"] == sum(known.quantity for known in self.claims.values() if known.state == "claimed")

    @invariant()
    def load_is_no_fault(self) -> None:
        assert sum(face.counter.tally.of("Faults") for face in self.faces) == 0

    @invariant()
    def stock_is_what_the_answers_say(self) -> None:
        if self.created:
            view = self.totals()
            self.check_item(view)
            assert {name: view.get(name) for name in ("shards", "limit_per_claimant", "hold_seconds")} == {
                name: self.settings.get(name) for name in ("shards", "limit_per_claimant", "hold_seconds")
            }
