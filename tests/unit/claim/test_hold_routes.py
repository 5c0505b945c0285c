from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from tests.support.stock import ClaimFace

if TYPE_CHECKING:
    from tests.support.http import Reply

ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
def item(face: ClaimFace) -> str:
    assert face.send("PUT", "/v1/items/seat", {"stock": 10, "hold_seconds": 60}).status == 201
    return "seat"


def settle(face: ClaimFace, reply: Reply, verb: str, **options: Any) -> Reply:
    return face.send("POST", f"{reply.headers['location']}/{verb}", **options)


def test_a_hold_is_confirmed_by_its_caller_and_shown_as_it_is(face: ClaimFace, item: str) -> None:
    """201 held with a deadline, 200 claimed however often, and the replay of the claim shows what became of it."""
    claim = face.claim(item)
    assert (claim.json["state"], claim.json["hold_until"]) == ("held", "2027-01-15T08:01:00.000Z")

    confirmed = [settle(face, claim, "confirm") for _ in range(2)]

    assert [(reply.status, reply.json["state"]) for reply in confirmed] == [(200, "claimed")] * 2
    assert face.claim(item).json["state"] == "claimed"
    assert face.send("GET", "/v1/items/seat").json["claimed"] == 1


def test_what_stands_in_the_way_has_its_own_problem(face: ClaimFace, item: str) -> None:
    """Released, confirmed and expired claims each say why not."""
    released, confirmed, expired = (face.claim(item, key=key) for key in "abc")
    assert settle(face, released, "release").status == 200
    assert settle(face, released, "release").status == 200
    settle(face, confirmed, "confirm")
    face.clock.advance(60_000)

    answers = [
        settle(face, released, "confirm"),
        settle(face, confirmed, "release"),
        settle(face, expired, "confirm"),
        settle(face, expired, "release"),
    ]

    assert [reply.status for reply in answers] == [409] * 4
    assert [reply.problem for reply in answers] == [
        "already-released", "already-confirmed", "hold-expired", "hold-expired",
    ]  # fmt: skip
    assert face.available(item) == 9


@pytest.mark.parametrize("verb", ["confirm", "release"])
def test_another_callers_claim_cannot_be_settled(face: ClaimFace, item: str, verb: str) -> None:
    """It is 404, as if there were none; nonsense ids too, and a body with members is refused."""
    claim = face.claim(item)

    assert settle(face, claim, verb, headers={"X-Caller": "bob"}).problem == "unknown-claim"
    assert face.send("POST", f"/v1/claims/nonsense/{verb}").status == 404
    assert settle(face, claim, verb, body={"force": True}).status == 400
    assert face.send("GET", claim.headers["location"]).json["state"] == "held"


def test_stock_is_added_and_taken_back(face: ClaimFace, item: str) -> None:
    """200 with the new totals; a repeat says that it is one; too much to take back is 409."""
    added, again = face.adjust(item, {"add": 5}), face.adjust(item, {"add": 5})

    assert (added.status, added.json["total"], added.json["available"]) == (200, 15, 15)
    assert (again.status, again.json, again.headers["idempotency-replayed"]) == (200, added.json, "true")
    assert face.adjust(item, {"add": 6}).problem == "idempotency-key-reused"
    assert face.adjust(item, {"add": -16}, key="x").problem == "not-enough-stock"
    assert face.adjust(item, {"add": -15}, key="x").json["total"] == 0
    assert face.adjust("nothing", {"add": 1}).problem == "unknown-item"


@pytest.mark.parametrize("add", [0, 1.5, "1", True, None, 10**13, -(10**13), [], 1e3], ids=json.dumps)
def test_an_amount_that_is_no_whole_number_is_refused(face: ClaimFace, item: str, add: Any) -> None:
    """Nothing but a whole number other than 0, within bounds, gets near a write."""
    reply = face.adjust(item, {"add": add})

    assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", "add")
    assert face.available(item) == 10


def test_an_adjustment_needs_a_key_and_an_amount(face: ClaimFace, item: str) -> None:
    """Without them nothing could be repeated safely."""
    assert face.adjust(item, {"add": 1}, key=None).problem == "idempotency-key-missing"
    assert face.adjust(item, {}).json["field"] == "add"
    assert face.adjust(item, {"add": 1, "to": 2}).json["field"] == "to"


def test_claims_are_listed_page_by_page_each_once(face: ClaimFace, item: str) -> None:
    """Every caller's claims in every state, none twice, on pages of any size."""
    made = {face.claim(item, key=f"k{n}", X_Caller=f"caller-{n % 3}").json["claim_id"] for n in range(10)}
    for limit in (1, 3, 10, 200):
        listed: list[Any] = []
        query = {"limit": str(limit)}
        while True:
            page = face.send("GET", f"/v1/items/{item}/claims", query=query)
            assert page.status == 200
            assert len(page.json["claims"]) <= limit
            listed += page.json["claims"]
            if "cursor" not in page.json:
                break
            query["cursor"] = page.json["cursor"]
        assert sorted(claim["claim_id"] for claim in listed) == sorted(made)
        assert {claim["caller"] for claim in listed} == {f"header:caller-{n}" for n in range(3)}


def test_an_item_without_claims_lists_none(face: ClaimFace, item: str) -> None:
    """An empty page, and 404 for an item that there is not."""
    assert face.send("GET", f"/v1/items/{item}/claims").json == {"claims": []}
    assert face.send("GET", "/v1/items/nothing/claims").problem == "unknown-item"


def _cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "garbage",
        "é",
        "=" * 8,
        "A" * 5_000,
        _cursor([]),
        _cursor({"item": "seat"}),
        _cursor(["other", 0, None]),
        _cursor(["seat", 16, None]),
        _cursor(["seat", -1, None]),
        _cursor(["seat", True, None]),
        _cursor(["seat", 0, "claim#" + "g" * 40]),
        _cursor(["seat", 0, "claim#" + "0" * 40, 1]),
        _cursor(["seat", 0, None]) + "=",
    ],
)
def test_a_cursor_that_this_listing_did_not_return_is_refused(face: ClaimFace, item: str, cursor: str) -> None:
    """Garbage, forgeries and another item's cursor are a 400 that names it, and never another item's claims."""
    reply = face.send("GET", f"/v1/items/{item}/claims", query={"cursor": cursor})

    assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", "cursor")


@pytest.mark.parametrize("limit", ["0", "201", "-1", "1.5", "x", "", "²", "1" * 30])
def test_a_page_size_that_makes_no_sense_is_refused(face: ClaimFace, item: str, limit: str) -> None:
    """From 1 to 200, and no other parameters."""
    assert face.send("GET", f"/v1/items/{item}/claims", query={"limit": limit}).json["field"] == "limit"
    assert face.send("GET", f"/v1/items/{item}/claims", query={"page": "2"}).json["field"] == "page"


def test_an_audit_recounts_from_the_claims(face: ClaimFace, item: str) -> None:
    """The report adds up, names what is wrong with its repair, and applies that only when told to."""
    settle(face, face.claim(item, {"quantity": 3}), "confirm")
    face.claim(item, key="held")
    good = face.send("POST", f"/v1/items/{item}/audit")
    assert good.json == {
        "item": "seat", "outcome": "balanced", "total": 10, "available": 6, "held": 1, "claimed": 3,
        "counted": {"held": 1, "claimed": 3, "claims": {"held": 1, "claimed": 1}},
        "differences": [], "inconclusive_shards": [], "repair": [], "repaired": False,
    }  # fmt: skip

    face.counter.client.update_item(
        TableName=face.counter.table,
        Key={"pk": {"S": "item#seat#shard#0"}, "sk": {"S": "stock"}},
        UpdateExpression="SET available = available + :n",
        ExpressionAttributeValues={":n": {"N": "2"}},
    )
    bad = face.send("POST", f"/v1/items/{item}/audit", {})
    assert (bad.json["outcome"], bad.json["repaired"]) == ("mismatch", False)
    (step,) = bad.json["repair"]
    assert step["from"]["available"] == step["to"]["available"] + 2

    assert face.send("POST", f"/v1/items/{item}/audit", {"apply": True}).json["repaired"]
    assert face.send("POST", f"/v1/items/{item}/audit").json["outcome"] == "balanced"
    assert face.send("POST", f"/v1/items/{item}/audit", {"apply": 1}).json["field"] == "apply"
    assert face.send("POST", "/v1/items/nothing/audit").problem == "unknown-item"


def test_a_queued_claims_fate_is_at_its_url(face: ClaimFace, item: str) -> None:
    """202 with a Location that says queued, then what became of it."""
    first = face.claim(item, {"quantity": 9}, **ASYNC)
    second = face.claim(item, {"quantity": 2}, key="second", **ASYNC)

    assert (first.status, first.json["state"], first.headers["preference-applied"]) == (202, "queued", "respond-async")
    assert face.send("GET", first.headers["location"]).json == first.json
    assert settle(face, first, "confirm").problem == "claim-undecided"
    assert face.available(item) == 10

    assert face.deliver() == []

    held, rejected = (face.send("GET", reply.headers["location"]).json for reply in (first, second))
    assert (held["state"], held["created_at"]) == ("held", first.json["created_at"])
    assert (rejected["state"], rejected["reason"]) == ("rejected", "sold-out")
    assert settle(face, second, "release").problem == "claim-rejected"
    assert settle(face, first, "confirm").json["state"] == "claimed"


def test_a_repeat_of_a_queued_claim_is_the_same_claim(face: ClaimFace, item: str) -> None:
    """202 again and marked, 422 for another quantity, and 201 once it was decided."""
    first = face.claim(item, **ASYNC)
    again = face.claim(item, Prefer='foo; bar="x", RESPOND-ASYNC; wait=10')

    assert (again.status, again.json, again.headers["idempotency-replayed"]) == (202, first.json, "true")
    assert face.claim(item, {"quantity": 2}, **ASYNC).problem == "idempotency-key-reused"
    face.deliver()
    assert (face.claim(item, **ASYNC).status, face.claim(item, **ASYNC).json["state"]) == (201, "held")
    assert face.available(item) == 9


def test_a_synchronous_repeat_of_a_queued_claim_is_decided_at_once(face: ClaimFace, item: str) -> None:
    """Whoever does not want to wait gets an answer, and the message that comes later changes nothing."""
    face.claim(item, **ASYNC)

    assert (face.claim(item).status, face.claim(item).json["state"]) == (201, "held")
    assert face.deliver() == []
    assert face.available(item) == 9


def test_a_queue_that_does_not_answer_is_busy(face: ClaimFace, item: str) -> None:
    """503 with Retry-After, to repeat with the same key."""
    assert face.queue
    face.queue.down = EndpointConnectionError(endpoint_url="queue")
    reply = face.claim(item, **ASYNC)
    assert (reply.status, reply.problem, reply.headers["retry-after"]) == (503, "busy", "1")


def test_without_a_queue_a_preference_is_only_a_preference(face: ClaimFace, item: str) -> None:
    """RFC 7240 lets it be ignored: the claim is decided at once."""
    alone = ClaimFace(boto3.client("dynamodb"), face.counter.table)
    assert alone.claim(item, **ASYNC).status == 201


def test_under_jwt_the_claimant_is_the_tokens_subject(face: ClaimFace, item: str) -> None:
    """A token's bearer claims for itself: by default, by name, and for nobody else."""
    jwt = ClaimFace(boto3.client("dynamodb"), face.counter.table, "jwt")

    def claim(key: str, body: Any) -> Reply:
        token = {"jwt": {"claims": {"iss": "https://issuer.example.com", "sub": "user-7"}}}
        headers = {"Idempotency-Key": key}
        return jwt.send("POST", f"/v1/items/{item}/claims", body, headers=headers, authorizer=token)

    assert claim("a", {}).json["claimant"] == "user-7"
    assert claim("b", {"claimant": "user-7"}).status == 201
    refused = claim("c", {"claimant": "user-8"})
    assert (refused.status, refused.problem, refused.json["field"]) == (403, "claimant-not-allowed", "claimant")
    assert face.available(item) == 8


def test_a_role_may_name_the_claimant(face: ClaimFace, item: str) -> None:
    """Under iam a service acts for its users."""
    iam = ClaimFace(boto3.client("dynamodb"), face.counter.table, "iam")
    authorizer = {"iam": {"userArn": "arn:aws:sts::1:assumed-role/shop/session"}}
    request = {"body": {"claimant": "user-8"}, "headers": {"Idempotency-Key": "k"}, "authorizer": authorizer}
    assert iam.send("POST", f"/v1/items/{item}/claims", **request).json["claimant"] == "user-8"
