from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from moto import mock_aws

from tests.support.engine import create_stock_table
from tests.support.faults import throttle
from tests.support.stock import ClaimFace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.http import Reply


@pytest.fixture
def function() -> Iterator[ClaimFace]:
    with mock_aws():
        client = boto3.client("dynamodb")
        yield ClaimFace(client, create_stock_table(client))


@pytest.fixture
def item(function: ClaimFace) -> str:
    name = f"item-{uuid4().hex}"
    assert function.send("PUT", f"/v1/items/{name}", {"stock": 10}).status == 201
    return name


def test_an_item_is_created_once_and_keeps_its_settings(function: ClaimFace) -> None:
    """201, the same again 200, other settings 409, and the item as it is."""
    settings = {"stock": 100, "limit_per_claimant": 2, "hold_seconds": 60, "shards": 4}

    replies = [function.send("PUT", "/v1/items/ticket", settings) for _ in range(2)]
    other = function.send("PUT", "/v1/items/ticket", {"stock": 101})

    assert [reply.status for reply in replies] == [201, 200]
    assert (other.status, other.problem) == (409, "item-exists")
    assert function.send("GET", "/v1/items/ticket").json == {
        "item": "ticket", "total": 100, "available": 100, "held": 0, "claimed": 0, "shards": 4,
        "limit_per_claimant": 2, "hold_seconds": 60,
    }  # fmt: skip


def test_a_claim_is_created_shown_and_replayed(function: ClaimFace, item: str) -> None:
    """201 with a Location that works; the repeat has the same status and body and says that it is one."""
    first = function.claim(item, {"claimant": "ann", "quantity": 3})
    again = function.claim(item, {"quantity": 3, "claimant": "ann"})
    shown = function.send("GET", first.headers["location"])

    assert (first.status, again.status, shown.status) == (201, 201, 200)
    assert first.body == again.body == shown.body
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert {name: first.json[name] for name in ("item", "claimant", "quantity", "state")} == {
        "item": item, "claimant": "ann", "quantity": 3, "state": "claimed",
    }  # fmt: skip
    assert function.available(item) == 7


def test_members_in_any_order_and_spacing_are_one_request(function: ClaimFace, item: str) -> None:
    """The fingerprint is of what the request says, not of how it is written."""
    bodies = [b'{"quantity":2,"claimant":"ann"}', b' {\n"claimant" : "ann", "quantity": 2 } ']

    assert [function.claim(item, body).status for body in bodies] == [201, 201]
    assert function.available(item) == 8


def test_each_rejection_has_its_own_problem(function: ClaimFace, item: str) -> None:
    """Sold out and limit are 409, a reused key 422, an unknown item 404, each with its type."""
    function.send("PUT", "/v1/items/limited", {"stock": 5, "limit_per_claimant": 1})
    function.claim(item, {"quantity": 10}, key="all")

    assert (function.claim(item).status, function.claim(item).problem) == (409, "sold-out")
    assert function.claim(item, {"quantity": 9}, key="all").problem == "idempotency-key-reused"
    assert function.claim(item, {"quantity": 9}, key="all").status == 422
    assert function.claim("limited", {"quantity": 2}).problem == "limit-reached"
    assert (function.claim("nothing").status, function.claim("nothing").problem) == (404, "unknown-item")
    assert function.send("GET", "/v1/items/nothing").problem == "unknown-item"


def test_a_rejection_stores_nothing_so_the_key_may_succeed_later(function: ClaimFace, item: str) -> None:
    """A key that was refused for want of stock is still unused."""
    assert function.claim(item, {"quantity": 11}).problem == "sold-out"
    assert function.claim(item, {"quantity": 10}).status == 201


@pytest.mark.parametrize("quantity", [-5, 0, 1.5, "2", True, 10**20, None, [], {}, 1e3], ids=json.dumps)
def test_a_quantity_that_is_no_positive_whole_number_is_refused(function: ClaimFace, item: str, quantity: Any) -> None:
    """A negative quantity would raise stock; nothing but 1, 2, 3… gets near a write."""
    reply = function.claim(item, {"quantity": quantity})

    assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", "quantity")
    assert function.available(item) == 10


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'"text"', "body"),
        (b'{"quantity": NaN}', "body"),
        (b'{"quantity": 1, "quantity": 2}', "body"),
        (b"\xff", "body"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "body"),
        (b'{"quantity": [[[[[[[[1]]]]]]]]}', "body"),
        (b'{"claimant": "' + b"[" * 300 + b'"}', "claimant"),
        (b" " * 70_000, "body"),
        (b'{"claimant": "' + b"\xe2\x82\xac" * 22_000 + b'"}', "body"),
        ({"quantity": 1, "price": 1}, "price"),
        ({"claimant": ""}, "claimant"),
        ({"claimant": 7}, "claimant"),
        ({"claimant": "a\x00b"}, "claimant"),
        ({"claimant": "é" * 129}, "claimant"),
        (b'{"claimant": "\\ud800"}', "claimant"),
    ],
)
def test_a_bad_body_is_refused_before_any_write(function: ClaimFace, item: str, body: Any, field: str) -> None:
    """Malformed JSON, wrong types, repeated and unknown members are a 400 that names the field."""
    reply = function.claim(item, body)

    assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", field)
    assert function.available(item) == 10


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "idempotency-key-missing"),
        ("", "idempotency-key-missing"),
        ("k" * 256, "invalid-request"),
        ("k\n", "invalid-request"),
        ("\U0001f600", "invalid-request"),
    ],
)
def test_a_claim_without_a_usable_key_is_refused(function: ClaimFace, item: str, key: str | None, problem: str) -> None:
    """No key, no claim: a repeat could not be recognised."""
    reply = function.claim(item, key=key)

    assert (reply.status, reply.problem, reply.json["field"]) == (400, problem, "Idempotency-Key")
    assert function.available(item) == 10


@pytest.mark.parametrize("name", ["a b", "é", "a#b", ".hidden", "x" * 129])
def test_an_item_name_that_is_no_name_is_refused(function: ClaimFace, name: str) -> None:
    """Names are plain, so that they can stand in a path, a key and a claim id."""
    reply = function.send("PUT", f"/v1/items/{name}", {"stock": 1})

    assert reply.status in {400, 404}
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "stock"),
        ({"stock": -1}, "stock"),
        ({"stock": 1, "shards": 65}, "shards"),
        ({"stock": 1, "shards": 0}, "shards"),
        ({"stock": 1, "hold_seconds": 0}, "hold_seconds"),
        ({"stock": 1, "limit_per_claimant": 0}, "limit_per_claimant"),
        ({"stock": 1, "colour": "red"}, "colour"),
    ],
)
def test_bad_item_settings_are_refused(function: ClaimFace, settings: dict[str, Any], field: str) -> None:
    """Nothing is created from settings that make no sense, and the field is named."""
    reply = function.send("PUT", "/v1/items/bad", settings)

    assert (reply.status, reply.json["field"]) == (400, field)
    assert function.send("GET", "/v1/items/bad").status == 404


def test_callers_do_not_see_each_others_claims(function: ClaimFace, item: str) -> None:
    """The same key of two callers is two claims, and each sees only its own."""
    ann = function.claim(item, X_Caller="ann")
    bob = function.claim(item, X_Caller="bob")

    assert ann.json["claim_id"] != bob.json["claim_id"]
    for caller, reply in (("ann", bob), ("bob", ann)):
        hidden = function.send("GET", reply.headers["location"], headers={"X-Caller": caller})
        assert (hidden.status, hidden.problem) == (404, "unknown-claim")
    assert function.available(item) == 8


@pytest.mark.parametrize("claim_id", ["nonsense", "0" * 40, f"{'0' * 40}.{'x' * 9}", f"{'0' * 40}."])
def test_a_claim_that_does_not_exist_is_404(function: ClaimFace, claim_id: str) -> None:
    """Whatever is no claim of this caller's is 404."""
    assert function.send("GET", f"/v1/claims/{claim_id}").status == 404


def test_a_table_that_does_not_answer_is_busy(function: ClaimFace, item: str) -> None:
    """Reads that are throttled to the end are a 503 with Retry-After, not a 500 and not sold out."""
    function.counter.client._often, function.counter.client._only = (throttle, 1.0), ("batch_get_item",)

    reply = function.claim(item)

    assert (reply.status, reply.problem, reply.headers["retry-after"]) == (503, "busy", "1")


def test_a_fault_is_a_500_that_tells_nothing(function: ClaimFace, item: str) -> None:
    """What is wrong is in the log and counted; the caller gets no stack and no names."""
    function.counter.store.look = None  # type: ignore[assignment, method-assign]

    reply = function.claim(item)

    assert (reply.status, reply.problem) == (500, "internal-error")
    assert "NoneType" not in reply.body.decode()
    assert function.counter.tally.of("Faults") == 1


def test_a_role_is_one_caller_over_all_its_sessions(function: ClaimFace, item: str) -> None:
    """A service that was restarted finds the claims of its last session."""
    function = ClaimFace(function.counter.client, function.counter.table, "iam")

    def claim(session: str) -> Reply:
        iam = {"iam": {"userArn": f"arn:aws:sts::1:assumed-role/shop/{session}"}}
        headers = {"Idempotency-Key": "k"}
        return function.send("POST", f"/v1/items/{item}/claims", {}, headers=headers, authorizer=iam)

    assert claim("a").json["claim_id"] == claim("b").json["claim_id"]
