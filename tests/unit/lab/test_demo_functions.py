"""The demo's functions: the stub does exactly as told, the twins answer in the real shapes."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from demo import naive, paid, web


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DEMO_TABLE", "demo")
    monkeypatch.setenv("STOCK_TABLE", "stock")
    monkeypatch.setenv("DEMO_URL", "https://demo.invalid")
    web.dynamodb.cache_clear()
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName="demo",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        )
        client.create_table(
            TableName="stock",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        )
        yield client
    web.dynamodb.cache_clear()


def ask(path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
    handler = naive.handle if "naive" in path else paid.handle
    return handler({"rawPath": path, "queryStringParameters": query}, None)


def claim(item: str, body: str | None = "{}", **more: Any) -> dict[str, Any]:
    event = {"rawPath": f"/naive/items/{item}/claims", "pathParameters": {"item": item}, "body": body, **more}
    return naive.handle(event, None)


def make_item(client: Any, item: str, total: int) -> None:
    key = {"pk": {"S": f"item#{item}"}, "sk": {"S": "meta"}}
    client.put_item(TableName="stock", Item={**key, "total": {"N": str(total)}})


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "id"),
        ({"id": ""}, "id"),
        ({"id": "x" * 257}, "id"),
        ({"id": "a\n"}, "id"),
        ({"id": "a", "latency_ms": "-1"}, "latency_ms"),
        ({"id": "a", "latency_ms": "25001"}, "latency_ms"),
        ({"id": "a", "latency_ms": "1.5"}, "latency_ms"),
        ({"id": "a", "latency_ms": "9" * 5000}, "latency_ms"),
        ({"id": "a", "status": "199"}, "status"),
        ({"id": "a", "status": "600"}, "status"),
        ({"id": "a", "status": "٢٠٠"}, "status"),
        ({"id": "a", "size": "5500001"}, "size"),
        ({"id": "a", "size": ""}, "size"),
        ({"id": "a", "colour": "red"}, "colour"),
    ],
)
def test_a_bad_parameter_is_named(tables: Any, query: dict[str, str], field: str) -> None:
    """The answer is a problem that names the field, and no call is counted."""
    answer = ask("/paid", query)
    assert answer["statusCode"] == 400
    assert answer["headers"]["content-type"] == "application/problem+json"
    assert json.loads(answer["body"])["field"] == field
    assert tables.scan(TableName="demo")["Count"] == 0


def test_calls_are_counted_and_never_alike(tables: Any) -> None:
    """Each call has its number in its bytes, so that equal bytes prove one call."""
    del tables
    first, second = (ask("/paid", {"id": "a", "size": "80"}) for _ in range(2))
    assert json.loads(first["body"])["call"] == 1
    assert json.loads(second["body"])["call"] == 2
    assert json.loads(ask("/paid/calls", {"id": "a"})["body"]) == {"calls": 2}
    assert json.loads(ask("/paid/calls", {"id": "never"})["body"]) == {"calls": 0}


def test_a_call_is_counted_before_it_waits(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that hangs up has paid all the same."""
    del tables
    seen: list[Any] = []

    def sleep(seconds: float) -> None:
        seen.append((seconds, json.loads(ask("/paid/calls", {"id": "a"})["body"])))

    monkeypatch.setattr("demo.paid.time.sleep", sleep)
    ask("/paid", {"id": "a", "latency_ms": "1500"})
    assert seen == [(1.5, {"calls": 1})]


@pytest.mark.parametrize("size", [0, 1, 2, 10, 33, 34, 35, 36, 80, 399_000, 5_500_000])
def test_a_body_has_exactly_the_size_asked_for(size: int) -> None:
    """To the byte, and JSON wherever it fits."""
    body, content_type = paid.make_body("id", 7, size)
    assert len(body.encode()) == size
    if content_type == "application/json":
        assert json.loads(body)["call"] == 7
    assert paid.make_body("id", 7, size) == (body, content_type)
    if size:
        assert paid.make_body("id", 8, size)[0] != body


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_has_none(tables: Any, status: int) -> None:
    """HTTP forbids one here."""
    del tables
    assert ask("/paid", {"id": "a", "status": str(status), "size": "50"})["body"] == ""


def test_the_naive_cache_serves_what_it_kept(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, and one after the other, it works: that is why nobody notices."""
    del tables
    calls: list[dict[str, Any]] = []

    def call_paid(params: dict[str, Any]) -> tuple[int, str, str]:
        calls.append(params)
        return 200, f"bytes {len(calls)}", "text/plain"

    monkeypatch.setattr(naive, "_call_paid", call_paid)
    query = {"id": "a", "latency_ms": "0", "status": "200", "size": "80"}
    first, second = (ask("/naive/cache", query) for _ in range(2))
    assert first["headers"]["cache-status"] == "naive; fwd=miss; stored"
    assert second["headers"]["cache-status"] == "naive; hit"
    assert first["body"] == second["body"] == "bytes 1"


def test_a_naive_claim_has_the_real_shapes(tables: Any) -> None:
    """201 with a claim, 409 and 404 as problems, and a repeat is a second claim."""
    make_item(tables, "ticket", 2)
    first, second, third = (claim("ticket", headers={"idempotency-key": "same"}) for _ in range(3))
    one, two = json.loads(first["body"]), json.loads(second["body"])
    assert (first["statusCode"], second["statusCode"], third["statusCode"]) == (201, 201, 409)
    assert set(one) == {"claim_id", "item", "claimant", "quantity", "state"}
    assert one["claim_id"] != two["claim_id"]
    assert json.loads(third["body"])["type"].endswith("sold-out")
    assert json.loads(claim("nothing")["body"])["type"].endswith("unknown-item")


@pytest.mark.parametrize("body", ["[]", "{", '{"quantity": 0}', '{"quantity": true}', '{"claimant": 3}'])
def test_a_bad_naive_claim_is_refused(tables: Any, body: str) -> None:
    """400, and nothing is sold."""
    make_item(tables, "ticket", 2)
    assert claim("ticket", body)["statusCode"] == 400


def test_a_body_that_the_gateway_encoded_is_read(tables: Any) -> None:
    """A bare `curl -d` arrives as base64."""
    make_item(tables, "ticket", 5)
    body = base64.b64encode(b'{"quantity": 2}').decode()
    assert json.loads(claim("ticket", body, isBase64Encoded=True)["body"])["quantity"] == 2
