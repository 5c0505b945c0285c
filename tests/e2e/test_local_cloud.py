"""The whole thing over HTTP, on a local cloud that the real `cdk deploy` filled: what a user's first hour meets."""

import asyncio
import json
import shlex
import shutil
import subprocess
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import boto3
import httpx
import pytest

from lab.client import Client, Request
from local import cloud, curl

pytestmark = pytest.mark.e2e


class Deployed(Protocol):
    """What the fixture gives."""

    folder: Any
    outputs: dict[str, str]
    http: httpx.Client
    api: str
    demo: str


def new_name() -> str:
    return f"e2e-{uuid.uuid4().hex[:12]}"


def cached(deployed: Deployed, paid_id: str, headers: dict[str, str] | None = None, **told: int) -> httpx.Response:
    params: dict[str, Any] = {"id": paid_id, "latency_ms": 0, "status": 200, "size": 120} | told
    return deployed.http.get(f"{deployed.api}/v1/cache/demo", params=params, headers=headers)


def paid_calls(deployed: Deployed, paid_id: str) -> int:
    return int(deployed.http.get(f"{deployed.demo}/paid/calls", params={"id": paid_id}).json()["calls"])


def make_item(deployed: Deployed, stock: int, **settings: int) -> str:
    name = new_name()
    answer = deployed.http.put(f"{deployed.api}/v1/items/{name}", json={"stock": stock, **settings})
    assert answer.status_code == 201
    return name


def claim(
    deployed: Deployed, item: str, key: str | None, *, caller: str = "e2e", body: dict[str, Any] | None = None
) -> httpx.Response:
    headers = {"X-Caller": caller, **({"Idempotency-Key": key} if key is not None else {})}
    return deployed.http.post(f"{deployed.api}/v1/items/{item}/claims", headers=headers, json=body or {})


def assert_problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["type"].endswith(f":{name}")
    return problem


def test_outputs_are_usable_as_they_are(deployed: Deployed) -> None:
    """The file has what the call returned, and its addresses answer."""
    assert json.loads(deployed.folder.outputs.read_text()) == deployed.outputs
    assert {"ApiUrl", "DemoUrl", "CacheTableName", "StockTableName", "OverflowBucketName"} <= set(deployed.outputs)
    assert deployed.http.get(f"{deployed.api}/v1/items/{new_name()}").status_code == 404
    assert paid_calls(deployed, new_name()) == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_every_curl_line_works(deployed: Deployed) -> None:
    """Copied as printed, each gets an answer that is no error."""
    for _, line in curl.lines(deployed.outputs):
        command = [*shlex.split(line), "--silent", "--show-error", "--fail", "--noproxy", "*"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own line
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def test_a_miss_is_paid_once_and_a_hit_is_not(deployed: Deployed) -> None:
    """The second answer is the first one's bytes, marked as a hit with its age."""
    paid_id = new_name()
    miss, hit = cached(deployed, paid_id), cached(deployed, paid_id)
    assert miss.status_code == hit.status_code == 200
    assert miss.headers["cache-status"] == "firstwrite; fwd=miss; stored"
    assert hit.headers["cache-status"].startswith("firstwrite; hit; ttl=")
    assert int(hit.headers["age"]) >= 0
    assert hit.content == miss.content
    assert hit.headers["content-type"] == "application/json"
    assert paid_calls(deployed, paid_id) == 1


def test_an_unchanged_value_is_not_sent_again(deployed: Deployed) -> None:
    """Its ETag in If-None-Match gets an empty 304."""
    paid_id = new_name()
    etag = cached(deployed, paid_id).headers["etag"]
    answer = cached(deployed, paid_id, {"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


def test_twenty_callers_share_one_call(deployed: Deployed) -> None:
    """One fetched, nineteen waited, all have the same bytes."""
    paid_id = new_name()
    with ThreadPoolExecutor(20) as callers:
        # Slow enough that the last caller has begun before the first has its answer.
        answers = list(callers.map(lambda _: cached(deployed, paid_id, latency_ms=3_000), range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    marks = Counter(answer.headers["cache-status"] for answer in answers)
    assert marks == {"firstwrite; fwd=miss; stored": 1, "firstwrite; fwd=miss; collapsed": 19}
    assert paid_calls(deployed, paid_id) == 1


def test_a_large_value_is_kept_whole(deployed: Deployed) -> None:
    """Past what an item holds, the bytes are the same the second time, and paid once."""
    paid_id = new_name()
    first, second = (cached(deployed, paid_id, size=450_000) for _ in range(2))
    assert len(first.content) == 450_000
    assert second.content == first.content
    assert paid_calls(deployed, paid_id) == 1


def test_upstreams_answers_and_failures_are_told_apart(deployed: Deployed) -> None:
    """A 404 is an answer and is kept; a 500 is a problem, and says when to try again."""
    missing, broken = new_name(), new_name()
    assert [cached(deployed, missing, status=404).status_code for _ in range(2)] == [404, 404]
    assert paid_calls(deployed, missing) == 1
    answer = cached(deployed, broken, status=500)
    assert_problem(answer, 502, "upstream-failed")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("id=a&latency_ms=0&status=200", "size"),
        ("id=a&latency_ms=0&status=200&size=9&colour=red", "colour"),
        ("id=a&id=b&latency_ms=0&status=200&size=9", "id"),
    ],
)
def test_a_bad_question_is_named(deployed: Deployed, query: str, field: str) -> None:
    """A parameter that is missing, unknown or repeated."""
    problem = assert_problem(deployed.http.get(f"{deployed.api}/v1/cache/demo?{query}"), 400, "invalid-request")
    assert problem["field"] == field


def test_an_unknown_source_is_404(deployed: Deployed) -> None:
    """Nothing of that name is declared."""
    assert_problem(deployed.http.get(f"{deployed.api}/v1/cache/nothing"), 404, "unknown-source")


def test_an_item_is_made_once(deployed: Deployed) -> None:
    """The same again is 200, other settings are refused, and its books add up."""
    item = make_item(deployed, 3)
    url = f"{deployed.api}/v1/items/{item}"
    assert deployed.http.put(url, json={"stock": 3}).status_code == 200
    assert_problem(deployed.http.put(url, json={"stock": 4}), 409, "item-exists")
    books = deployed.http.get(url).json()
    assert (books["total"], books["available"], books["held"], books["claimed"]) == (3, 3, 0, 0)


def test_a_claim_is_made_and_found(deployed: Deployed) -> None:
    """201 with its address, which leads its caller to it and nobody else."""
    item = make_item(deployed, 3)
    made = claim(deployed, item, "k", body={"claimant": "ann", "quantity": 2})
    assert made.status_code == 201
    body = made.json()
    assert (body["item"], body["claimant"], body["quantity"], body["state"]) == (item, "ann", 2, "claimed")
    address = made.url.join(made.headers["location"])
    assert deployed.http.get(address).json() == body
    assert deployed.http.get(address, headers={"X-Caller": "somebody"}).status_code == 404
    assert deployed.http.get(f"{deployed.api}/v1/items/{item}").json()["available"] == 1


def test_a_repeat_is_the_same_claim(deployed: Deployed) -> None:
    """Same status, same body, marked, and the stock is taken once; another caller's same key is another claim."""
    item = make_item(deployed, 5)
    first, again = claim(deployed, item, "k"), claim(deployed, item, "k")
    assert (again.status_code, again.json()) == (201, first.json())
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = claim(deployed, item, "k", caller="somebody")
    assert other.json()["claim_id"] != first.json()["claim_id"]
    assert deployed.http.get(f"{deployed.api}/v1/items/{item}").json()["available"] == 3


def test_a_key_is_for_one_request(deployed: Deployed) -> None:
    """Another quantity under the same key is refused, and takes nothing."""
    item = make_item(deployed, 5)
    claim(deployed, item, "k")
    assert_problem(claim(deployed, item, "k", body={"quantity": 2}), 422, "idempotency-key-reused")
    assert deployed.http.get(f"{deployed.api}/v1/items/{item}").json()["available"] == 4


def test_claims_that_cannot_be(deployed: Deployed) -> None:
    """Sold out, over the limit, unknown item, no key, nonsense: each has its own problem."""
    item = make_item(deployed, 2, limit_per_claimant=1)
    assert_problem(claim(deployed, item, "k1", body={"quantity": 3}), 409, "limit-reached")
    assert claim(deployed, item, "k2").status_code == 201
    assert_problem(claim(deployed, item, "k3"), 409, "limit-reached")
    assert claim(deployed, item, "k4", body={"claimant": "bob"}).status_code == 201
    assert_problem(claim(deployed, item, "k5", body={"claimant": "cyd"}), 409, "sold-out")
    assert_problem(claim(deployed, new_name(), "k"), 404, "unknown-item")
    assert_problem(claim(deployed, item, None), 400, "idempotency-key-missing")
    assert (
        assert_problem(claim(deployed, item, "k", body={"quantity": -1}), 400, "invalid-request")["field"] == "quantity"
    )
    assert (
        assert_problem(claim(deployed, item, "k", body={"colour": "red"}), 400, "invalid-request")["field"] == "colour"
    )


def test_a_thousand_claims_at_once_are_all_answered(deployed: Deployed) -> None:
    """Exactly the stock is granted; nobody is throttled and nothing breaks."""
    item = make_item(deployed, 50)
    url = f"{deployed.api}/v1/items/{item}/claims"
    requests = [Request("POST", url, headers={"Idempotency-Key": str(number)}, json={}) for number in range(1_000)]

    async def race() -> Counter[int]:
        async with Client(max_requests=1_000, headers={"X-Caller": "e2e"}) as client:
            return Counter(exchange.status for exchange in await client.send(requests))

    assert asyncio.run(race()) == {201: 50, 409: 950}
    books = deployed.http.get(f"{deployed.api}/v1/items/{item}").json()
    assert (books["available"], books["held"], books["claimed"]) == (0, 0, 50)


def test_the_twins_are_there_and_wrong(deployed: Deployed) -> None:
    """The naive claim takes an item made for the real one, and a repeat for a new claim."""
    item = make_item(deployed, 5)
    url = f"{deployed.demo}/naive/items/{item}/claims"
    first, again = (deployed.http.post(url, headers={"Idempotency-Key": "k"}, json={}) for _ in range(2))
    assert first.status_code == again.status_code == 201
    assert first.json()["claim_id"] != again.json()["claim_id"]


def test_tables_have_the_ttl_that_the_emulator_forgot(deployed: Deployed) -> None:
    """What the template asks for is set after the deployment."""
    note = deployed.folder.read_note()
    assert note is not None
    client = boto3.client("dynamodb", endpoint_url=note.url)
    for name in ("CacheTableName", "StockTableName"):
        described = client.describe_time_to_live(TableName=deployed.outputs[name])["TimeToLiveDescription"]
        assert described.get("AttributeName") == "expires_at"


def test_up_again_deploys_to_the_cloud_that_runs(deployed: Deployed) -> None:
    """The same addresses, and what was in the tables is still there."""
    item = make_item(deployed, 7)
    said: list[str] = []
    assert cloud.up(deployed.folder, say=said.append) == deployed.outputs
    assert "is up on port" in said[0]
    assert deployed.http.get(f"{deployed.api}/v1/items/{item}").json()["total"] == 7
    assert Path(deployed.folder.log).exists()
