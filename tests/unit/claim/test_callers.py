"""Whose claim is whose, for every way to tell callers apart and every call on a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.api import ANONYMOUS
from tests.support.stock import ClaimFace, FakeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.http import Reply

ASYNC = {"Prefer": "respond-async"}
ISSUER = "https://issuer.example.com"


@dataclass(frozen=True)
class Caller:
    """Somebody, as the gateway tells the function."""

    auth: str
    authorizer: Mapping[str, Any] | None = None
    name: str | None = None
    claimant: str | None = None
    """Whom a claim is for where the request does not say; None for anybody."""


def by_header(name: str | None) -> Caller:
    return Caller("header", name=name, claimant=f"header:{name or ANONYMOUS}")


def by_iam(arn: str) -> Caller:
    return Caller("iam", {"iam": {"userArn": arn, "accessKey": "AKIA", "callerId": "id"}})


def by_jwt(subject: str, issuer: str = ISSUER, **claims: str) -> Caller:
    return Caller("jwt", {"jwt": {"claims": {"iss": issuer, "sub": subject, **claims}}}, claimant=subject)


STRANGERS = {
    "two names": (by_header("ann"), by_header("bob")),
    "a name in capitals": (by_header("ann"), by_header("Ann")),
    "a name and none": (by_header("ann"), by_header(None)),
    "two users": (by_iam("arn:aws:iam::1:user/ann"), by_iam("arn:aws:iam::1:user/bob")),
    "two accounts": (by_iam("arn:aws:iam::1:user/ann"), by_iam("arn:aws:iam::2:user/ann")),
    "two roles": (by_iam("arn:aws:sts::1:assumed-role/shop/s"), by_iam("arn:aws:sts::1:assumed-role/till/s")),
    "a session called like a role": (
        by_iam("arn:aws:sts::1:assumed-role/shop/s"),
        by_iam("arn:aws:sts::1:assumed-role/till/shop"),
    ),
    "a user and a role": (by_iam("arn:aws:iam::1:user/shop"), by_iam("arn:aws:sts::1:assumed-role/shop/s")),
    "an account's root": (by_iam("arn:aws:iam::1:root"), by_iam("arn:aws:iam::1:user/root")),
    "two subjects": (by_jwt("ann"), by_jwt("bob")),
    "two issuers": (by_jwt("ann"), by_jwt("ann", "https://other.example.com")),
    "an issuer that ends with a slash": (by_jwt("ann"), by_jwt("ann", f"{ISSUER}/")),
    "an issuer that takes from the subject": (by_jwt("1-ann"), by_jwt("-ann", f"{ISSUER}1")),
    "a subject that writes like two": (by_jwt('b", "c', "a"), by_jwt("c", 'a", "b')),
}
SESSIONS = {
    "a name": (by_header("ann"), by_header("ann")),
    "nobody": (by_header(None), by_header(ANONYMOUS)),
    "a user's keys": (by_iam("arn:aws:iam::1:user/ann"), by_iam("arn:aws:iam::1:user/ann")),
    "a role's sessions": (by_iam("arn:aws:sts::1:assumed-role/shop/a"), by_iam("arn:aws:sts::1:assumed-role/shop/b")),
    "a subject's tokens": (by_jwt("ann", jti="1", scope="a"), by_jwt("ann", jti="2", scope="b", name="Ann")),
}


@pytest.fixture
def table(face: ClaimFace) -> str:
    """A stock table with an item whose claims are held, and one where they are final."""
    for item, more in (("seat", {"hold_seconds": 60}), ("shirt", {})):
        assert face.send("PUT", f"/v1/items/{item}", {"stock": 10, **more}).status == 201
    return face.counter.table


class Desk:
    """The claim function of a stage that tells callers apart in one way."""

    def __init__(self, face: ClaimFace, auth: str) -> None:
        self.face = ClaimFace(face.counter.client, face.counter.table, auth, queue=FakeQueue())

    def send(self, caller: Caller, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        named = headers | ({} if caller.name is None else {"X-Caller": caller.name})
        return self.face.send(method, path, body, headers=named, authorizer=caller.authorizer)

    def claim(self, caller: Caller, item: str, body: Any = None, **headers: str) -> Reply:
        sent = {"Idempotency-Key": "k"} | headers
        return self.send(caller, "POST", f"/v1/items/{item}/claims", body or {}, **sent)


def of(reply: Reply) -> str:
    return str(reply.headers["location"])


VERBS: dict[str, Callable[[Desk, Caller, Reply], Reply]] = {
    "read": lambda desk, caller, claim: desk.send(caller, "GET", of(claim)),
    "confirm": lambda desk, caller, claim: desk.send(caller, "POST", f"{of(claim)}/confirm"),
    "release": lambda desk, caller, claim: desk.send(caller, "POST", f"{of(claim)}/release"),
}
CLAIMS: dict[str, Callable[[Desk, Caller], Reply]] = {
    "held": lambda desk, caller: desk.claim(caller, "seat"),
    "claimed": lambda desk, caller: desk.claim(caller, "shirt"),
    "queued": lambda desk, caller: desk.claim(caller, "seat", **ASYNC, **{"Idempotency-Key": "queued"}),
}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("who", STRANGERS)
def test_a_strangers_claim_is_not_there(face: ClaimFace, who: str) -> None:
    """Held, final or queued, read, confirmed or released: as if nobody had made it, and it stays what it is."""
    owner, stranger = STRANGERS[who]
    desk = Desk(face, owner.auth)
    nothing = desk.send(stranger, "GET", f"/v1/claims/{'0' * 40}.seat")
    for state, make in CLAIMS.items():
        claim = make(desk, owner)
        assert claim.json["state"] == state
        for verb, ask in VERBS.items():
            refused = ask(desk, stranger, claim)
            assert (refused.status, refused.problem) == (404, "unknown-claim"), (state, verb)
            assert refused.body == nothing.body
        assert VERBS["read"](desk, owner, claim).json == claim.json


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("headers", [{}, ASYNC], ids=["at once", "queued"])
@pytest.mark.parametrize("who", STRANGERS)
def test_a_strangers_repeat_is_a_claim_of_its_own(face: ClaimFace, who: str, headers: dict[str, str]) -> None:
    """The same key and body from two callers are two claims, and each repeat answers with its caller's."""
    desk = Desk(face, STRANGERS[who][0].auth)

    first, again = (
        [desk.claim(caller, "seat", {"quantity": 2}, **headers) for caller in STRANGERS[who]] for _ in range(2)
    )

    assert first[0].json["claim_id"] != first[1].json["claim_id"]
    assert [reply.json for reply in again] == [reply.json for reply in first]
    assert ["idempotency-replayed" in reply.headers for reply in first + again] == [False, False, True, True]
    for caller, reply in zip(STRANGERS[who], first, strict=True):
        assert caller.claimant in {None, reply.json["claimant"]}
    if headers:
        assert desk.face.deliver() == []
    assert face.available("seat") == 6


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("who", STRANGERS)
def test_a_strangers_key_may_say_something_else(face: ClaimFace, who: str) -> None:
    """A key that another caller has used is a fresh one: neither refused as reused nor bound to the other's body."""
    owner, stranger = STRANGERS[who]
    desk = Desk(face, owner.auth)

    assert desk.claim(owner, "seat", {"quantity": 1}).status == 201
    assert desk.claim(stranger, "seat", {"quantity": 2}).json["quantity"] == 2
    assert desk.claim(owner, "seat", {"quantity": 2}).problem == "idempotency-key-reused"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("who", STRANGERS)
def test_two_operators_keys_are_apart_too(face: ClaimFace, who: str) -> None:
    """The same key and amount from two operators are two adjustments, and each repeat is none."""
    desk = Desk(face, STRANGERS[who][0].auth)

    replies = [
        desk.send(operator, "POST", "/v1/items/seat/stock", {"add": 5}, **{"Idempotency-Key": "k"})
        for operator in STRANGERS[who] * 2
    ]

    assert [reply.json["total"] for reply in replies] == [15, 20, 20, 20]
    assert ["idempotency-replayed" in reply.headers for reply in replies] == [False, False, True, True]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", SESSIONS)
def test_a_callers_next_session_finds_its_claims(face: ClaimFace, who: str, verb: str) -> None:
    """New keys, sessions and tokens of one caller reach what the last ones made, and repeat it."""
    before, after = SESSIONS[who]
    desk = Desk(face, before.auth)
    claim = desk.claim(before, "seat")

    assert desk.claim(after, "seat").json == claim.json
    assert VERBS[verb](desk, after, claim).status == 200
    assert face.available("seat") == (10 if verb == "release" else 9)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("caller", [by_header("ann"), by_iam("arn:aws:iam::1:user/ann"), by_jwt("ann")])
def test_the_same_key_on_another_item_is_another_claim(face: ClaimFace, caller: Caller) -> None:
    """One caller's key on two items never answers with the other item's claim."""
    desk = Desk(face, caller.auth)

    seat, shirt = desk.claim(caller, "seat"), desk.claim(caller, "shirt")

    assert (seat.json["item"], shirt.json["item"]) == ("seat", "shirt")
    assert seat.json["claim_id"] != shirt.json["claim_id"]
    assert "idempotency-replayed" not in shirt.headers


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("stranger", [by_iam("arn:aws:iam::1:user/bob"), by_jwt("bob")], ids=lambda each: each.auth)
def test_a_header_makes_nobody_somebody_else(face: ClaimFace, stranger: Caller) -> None:
    """Where grants or tokens tell callers apart, `X-Caller` says nothing, whatever it is."""
    owner = by_iam("arn:aws:iam::1:user/ann") if stranger.auth == "iam" else by_jwt("ann")
    desk = Desk(face, stranger.auth)
    claim = desk.claim(owner, "seat")
    for name in ("ann", "iam:arn:aws:iam::1:user/ann", f'jwt:["{ISSUER}", "ann"]'):
        disguised = Caller(stranger.auth, stranger.authorizer, name)
        assert {ask(desk, disguised, claim).problem for ask in VERBS.values()} == {"unknown-claim"}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (by_iam("arn:aws:iam::1:user/ann"), "iam:arn:aws:iam::1:user/ann"),
        (by_jwt("ann"), f'jwt:["{ISSUER}","ann"]'),
        (by_header("ann"), "header:ann"),
    ],
    ids=["iam", "jwt", "header"],
)
def test_no_name_of_one_way_is_a_name_of_another(face: ClaimFace, owner: Caller, name: str) -> None:
    """A stage that changes how it tells callers apart hands nobody's claims to a caller that is called like them."""
    claim = Desk(face, owner.auth).claim(owner, "seat")
    assert VERBS["read"](Desk(face, "header"), by_header(name), claim).problem == "unknown-claim"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("claims", [{"iss": ISSUER}, {"iss": ISSUER, "sub": ""}], ids=["none", "empty"])
def test_a_token_without_a_subject_is_nobodys(face: ClaimFace, claims: dict[str, str]) -> None:
    """All its bearers would be one caller, so that it is refused by name, without a fault and without a write."""
    desk = Desk(face, "jwt")
    owner, nobody = by_jwt("ann"), Caller("jwt", {"jwt": {"claims": claims}})
    claim = desk.claim(owner, "seat")

    refused = [desk.claim(nobody, "seat"), *(verb(desk, nobody, claim) for verb in VERBS.values())]

    for reply in refused:
        assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", "Authorization")
    assert desk.face.counter.tally.of("Faults") == 0
    assert face.available("seat") == 9


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("auth", ["iam", "jwt"])
@pytest.mark.parametrize("authorizer", [None, {}, {"lambda": {"sub": "ann"}}], ids=["none", "empty", "of another kind"])
def test_a_call_that_no_gateway_has_checked_is_a_fault(face: ClaimFace, auth: str, authorizer: Any) -> None:
    """A route that lost its authorizer lets nobody in: 500, counted, and nothing is taken."""
    desk = Desk(face, auth)

    assert desk.claim(Caller(auth, authorizer, "ann"), "seat").status == 500
    assert desk.face.counter.tally.of("Faults") == 1
    assert face.available("seat") == 10
