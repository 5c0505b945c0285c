from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen
from uuid import uuid4

import pytest

from firstwrite import aws
from firstwrite.cache.fetchers import Fetcher
from firstwrite.cache.sources import SecretHeader
from firstwrite.clock import Deadline, SystemClock
from tests.support.cache import RATES, CacheFunction, with_policy
from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table
from tests.support.http import LambdaContext, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.upstream import PaidApi

EUR_USD = {"base": "EUR", "symbol": "USD"}


@pytest.fixture
def table(engine: DynamoDBClient) -> str:
    return create_cache_table(engine)


@pytest.fixture
def function(engine: DynamoDBClient, table: str, paid_api: PaidApi) -> CacheFunction:
    return CacheFunction(engine, table, FakeClock(), paid_api.url)


@pytest.fixture
def make(engine: DynamoDBClient, table: str, paid_api: PaidApi) -> Callable[..., CacheFunction]:
    return lambda source, clock=None: CacheFunction(engine, table, clock or FakeClock(), paid_api.url, source)


def test_a_value_is_served_as_upstream_sent_it_and_says_where_it_came_from(
    function: CacheFunction, paid_api: PaidApi
) -> None:
    """First `fwd=miss; stored`, then `hit` with the same bytes, type and ETag, and its age."""
    paid_api.body, paid_api.content_type = b"\x00\xff binary", "application/x-rates"

    first = function.get(EUR_USD)
    function.clock.advance(5_000)  # type: ignore[attr-defined]
    second = function.get(EUR_USD)

    assert (first.status, first.headers["cache-status"]) == (200, "firstwrite; fwd=miss; stored")
    assert (second.headers["cache-status"], second.headers["age"]) == ("firstwrite; hit; ttl=55", "5")
    assert first.body == second.body == b"\x00\xff binary"
    assert first.headers["content-type"] == second.headers["content-type"] == "application/x-rates"
    assert first.headers["etag"] == second.headers["etag"]
    assert paid_api.paths == ["/latest?base=EUR&symbols=USD"]


def test_a_client_that_has_the_value_is_told_so(function: CacheFunction) -> None:
    """If-None-Match with the current ETag is answered 304 without a body."""
    etag = function.get(EUR_USD).headers["etag"]

    unchanged = function.get(EUR_USD, headers={"If-None-Match": f'"other", W/{etag}'})

    assert (unchanged.status, unchanged.body) == (304, b"")
    assert function.get(EUR_USD, headers={"If-None-Match": '"other"'}).status == 200


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_upstreams_no_is_an_answer(function: CacheFunction, paid_api: PaidApi, status: int) -> None:
    """Negative answers are passed on with their bytes and kept briefly."""
    paid_api.status, paid_api.body = status, b"no"

    assert [(got.status, got.body) for got in (function.get(EUR_USD), function.get(EUR_USD))] == [(status, b"no")] * 2
    assert len(paid_api.paths) == 1


@pytest.mark.parametrize(("status", "body"), [(201, b"made"), (203, b"changed"), (204, b"")])
def test_upstreams_other_ways_to_say_yes_are_answers(
    function: CacheFunction, paid_api: PaidApi, status: int, body: bytes
) -> None:
    """They are passed on as they are, and kept as long as any."""
    paid_api.status, paid_api.body = status, body

    first, second = function.get(EUR_USD), function.get(EUR_USD)

    assert [(got.status, got.body) for got in (first, second)] == [(status, body)] * 2
    assert second.headers["cache-status"] == "firstwrite; hit; ttl=60"
    assert len(paid_api.paths) == 1


@pytest.mark.parametrize("status", [202, 206])
def test_a_success_without_the_whole_answer_is_none_and_may_have_been_charged(
    make: Callable[..., CacheFunction], paid_api: PaidApi, status: int
) -> None:
    """An order that was taken, or a part of an answer, is nothing to serve to others."""
    paid_api.status = status

    assert make(with_policy(on_unknown="fail")).get(EUR_USD).problem == "upstream-failed"
    assert make(with_policy(on_unknown="fail")).get(EUR_USD).problem == "outcome-unknown"
    assert len(paid_api.paths) == 1


@pytest.mark.parametrize("status", [202, 206, 301, 401, 403, 429, 500, 503])
def test_an_upstream_that_fails_is_a_502_that_says_when_to_come_back(
    function: CacheFunction, paid_api: PaidApi, status: int
) -> None:
    """Failures are not answers: 502 with Retry-After, shared by who comes next, one call."""
    paid_api.status = status

    replies = [function.get(EUR_USD) for _ in range(3)]

    assert [reply.problem for reply in replies] == ["upstream-failed"] * 3
    assert [reply.status for reply in replies] == [502] * 3
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies)
    assert len(paid_api.paths) == 1


def test_an_upstreams_retry_after_is_passed_on(function: CacheFunction, paid_api: PaidApi) -> None:
    """A 429 that asks for half a minute is honoured."""
    paid_api.status, paid_api.headers = 429, {"Retry-After": "30"}

    assert function.get(EUR_USD).headers["retry-after"] == "30"


@pytest.mark.parametrize(("takes_s", "drip_s"), [(1.0, 0.0), (0.0, 0.1)])
def test_an_upstream_that_is_too_slow_is_a_504(
    make: Callable[..., CacheFunction], paid_api: PaidApi, takes_s: float, drip_s: float
) -> None:
    """Silence and a slow drip both end at the source's timeout."""
    paid_api.takes_s, paid_api.drip_s = takes_s, drip_s
    function = make(with_policy(timeout_ms=300), SystemClock())

    reply = function.get(EUR_USD)

    assert (reply.status, reply.problem) == (504, "upstream-timeout")


def test_an_answer_past_the_size_limit_is_refused(make: Callable[..., CacheFunction], paid_api: PaidApi) -> None:
    """One byte more than max_body_bytes is a failed call, and the limit itself is not."""
    function = make(replace(RATES, max_body_bytes=1_000))
    paid_api.body = b"x" * 1_001
    assert function.get(EUR_USD).problem == "upstream-failed"

    paid_api.body = b"x" * 1_000
    assert function.get({"base": "EUR", "symbol": "GBP"}).status == 200


def test_a_source_may_not_point_inside_the_network_unless_it_says_so(make: Callable[..., CacheFunction]) -> None:
    """A loopback address is refused without allow_private."""
    assert make(replace(RATES, allow_private=False)).get(EUR_USD).problem == "upstream-failed"


def test_values_are_encoded_into_the_address(function: CacheFunction, paid_api: PaidApi) -> None:
    """No value can add a parameter, a path or a fragment to the paid call."""
    function.get({"base": "../a b&x=1#y", "symbol": "é?/%"})

    assert paid_api.paths == ["/latest?base=..%2Fa%20b%26x%3D1%23y&symbols=%C3%A9%3F%2F%25"]


def test_the_paid_call_carries_an_idempotency_key_and_a_fence(function: CacheFunction, paid_api: PaidApi) -> None:
    """An upstream that knows them can refuse to charge twice or to serve an overtaken caller."""
    function.get(EUR_USD)

    assert paid_api.seen[0]["idempotency-key"]
    assert int(paid_api.seen[0]["firstwrite-fence"]) > 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("base=EUR", "symbol"),
        ("base=EUR&symbol=USD&extra=1", "extra"),
        ("base=EUR&base=EUR&symbol=USD", "base"),
        ("base=%FF&symbol=USD", "query"),
        (f"base={'x' * 1_025}&symbol=USD", "base"),
        ("&".join(f"p{n}=1" for n in range(99)), "query"),
        ("", "base"),
    ],
)
def test_a_bad_query_is_refused_before_anything_is_read_or_paid(
    function: CacheFunction, paid_api: PaidApi, query: str, field: str
) -> None:
    """Undeclared, missing, repeated, broken and oversized parameters are a 400 that names the field."""
    reply = function.get(query)

    assert (reply.status, reply.problem, reply.json["field"]) == (400, "invalid-request", field)
    assert paid_api.paths == []
    assert function.tally.of("ConditionalWrites") == 0


def test_an_empty_value_is_a_value(function: CacheFunction, paid_api: PaidApi) -> None:
    """`base=` is the empty string, not a missing parameter."""
    assert function.get("base=&symbol=USD").status == 200
    assert paid_api.paths == ["/latest?base=&symbols=USD"]


def test_an_unknown_source_is_404(function: CacheFunction) -> None:
    """A source that is not declared does not exist."""
    assert function.get(EUR_USD, source="nope").problem == "unknown-source"


def test_questions_that_read_alike_are_kept_apart(function: CacheFunction, paid_api: PaidApi) -> None:
    """("a:b","c") and ("a","b:c"), ("a","") and ("","a") are different keys."""
    for base, symbol in [("a:b", "c"), ("a", "b:c"), ("a", ""), ("", "a"), ("a&symbol=b", "c")]:
        assert function.get({"base": base, "symbol": symbol}).headers["cache-status"] == "firstwrite; fwd=miss; stored"
    assert len(paid_api.paths) == 5


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async, wait=0", 'wait="0"', "WAIT = 0"])
def test_a_caller_that_will_not_wait_is_told_to_come_back(
    make: Callable[..., CacheFunction], paid_api: PaidApi, prefer: str
) -> None:
    """With `Prefer: wait=0` a key that is being fetched is 503 at once, with Retry-After."""
    function, other = make(RATES), make(RATES)
    nested = []
    make_call = function.api.paid_call.make

    def ask_again_meanwhile(*args: object) -> object:
        nested.append(other.get(EUR_USD, headers={"Prefer": prefer}))
        return make_call(*args)  # type: ignore[arg-type]

    function.api.paid_call.make = ask_again_meanwhile  # type: ignore[method-assign, assignment]
    function.get(EUR_USD)

    assert [reply.problem for reply in nested] == ["fetch-in-progress"]
    assert int(nested[0].headers["retry-after"]) >= 1
    assert len(paid_api.paths) == 1


def test_a_function_without_time_left_does_not_start_a_paid_call(function: CacheFunction, paid_api: PaidApi) -> None:
    """A caller that would be cut off is told to come back instead."""
    assert function.get(EUR_USD, time_left_ms=900).problem == "fetch-in-progress"
    assert paid_api.paths == []


def test_no_cache_asks_for_a_new_value(function: CacheFunction, paid_api: PaidApi) -> None:
    """`Cache-Control: no-cache` pays again and says why."""
    function.get(EUR_USD)
    renewed = function.get(EUR_USD, headers={"Cache-Control": "max-age=60, no-cache"})

    assert renewed.headers["cache-status"] == "firstwrite; fwd=request; stored"
    assert len(paid_api.paths) == 2


def test_an_expired_value_is_fetched_and_says_so(function: CacheFunction) -> None:
    """`fwd=stale` tells an expired value from one that was never there."""
    function.get(EUR_USD)
    function.clock.advance(60_000)  # type: ignore[attr-defined]

    assert function.get(EUR_USD).headers["cache-status"] == "firstwrite; fwd=stale; stored"


def test_an_operator_sees_and_clears_a_key(function: CacheFunction, paid_api: PaidApi) -> None:
    """The entry shows state, fence and times without the body; after DELETE the value is gone."""
    entry = event("GET", "/v1/cache/rates/entry", query=EUR_USD)
    assert function.send(entry).status == 404
    function.get(EUR_USD)

    shown = function.send(entry).json
    assert (shown["state"], shown["status"], shown["age_seconds"]) == ("completed", 200, 0)
    assert "body" not in shown

    assert function.send(event("DELETE", "/v1/cache/rates", query=EUR_USD)).status == 204
    cleared = function.send(entry).json
    assert (cleared["state"], cleared["fence"]) == ("pending", shown["fence"] + 1)
    assert function.get(EUR_USD).headers["cache-status"] == "firstwrite; fwd=miss; stored"
    assert len(paid_api.paths) == 2


def test_clearing_what_was_never_asked_for_is_fine(function: CacheFunction) -> None:
    """An invalidation of nothing is done already; a bad query is still refused."""
    assert function.send(event("DELETE", "/v1/cache/rates", query=EUR_USD)).status == 204
    assert function.send(event("DELETE", "/v1/cache/rates", query="base=EUR")).status == 400


def test_an_operator_sees_what_a_source_costs_and_saves(function: CacheFunction) -> None:
    """Calls, hits and money of the day; hits are written every few seconds."""
    function.get(EUR_USD)
    for _ in range(3):
        function.get(EUR_USD)
    function.clock.advance(10_000)  # type: ignore[attr-defined]
    function.get(EUR_USD)

    (source,) = function.send(event("GET", "/v1/sources")).json["sources"]

    assert (source["source"], source["calls"], source["hits"], source["calls_avoided"]) == ("rates", 1, 4, 4)
    assert (source["money_spent"], source["money_saved"]) == (0.002, 0.008)


def test_an_unknown_outcome_is_a_409_without_a_retry_after(
    make: Callable[..., CacheFunction], paid_api: PaidApi
) -> None:
    """Where a call may have been paid, trying again is an operator's decision."""
    function = make(with_policy(timeout_ms=200, on_unknown="fail"), SystemClock())
    paid_api.takes_s = 0.5

    assert function.get(EUR_USD).problem == "upstream-timeout"
    refused = function.get(EUR_USD)
    assert (refused.status, refused.problem) == (409, "outcome-unknown")
    assert "retry-after" not in refused.headers
    assert len(paid_api.paths) == 1


def test_a_redirect_is_followed_on_the_same_host_and_refused_to_another(
    function: CacheFunction, paid_api: PaidApi
) -> None:
    """No secret and no paid call goes where the source's address did not say."""
    paid_api.redirects = {
        "/latest?base=EUR&symbols=USD": "/v2/latest",
        "/latest?base=EUR&symbols=GBP": "http://localhost:1/",
    }

    assert function.get(EUR_USD).status == 200
    assert paid_api.paths == ["/latest?base=EUR&symbols=USD", "/v2/latest"]
    assert function.get({"base": "EUR", "symbol": "GBP"}).problem == "upstream-failed"


def test_a_secret_is_sent_is_read_once_and_read_again_after_it_was_refused(
    make: Callable[..., CacheFunction], paid_api: PaidApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets are read once per environment; a rotated one is found after upstream refused the old."""
    reads = []

    class Client:
        def get_secret_value(self, *, SecretId: str) -> dict[str, str]:
            reads.append(SecretId)
            return {"SecretString": f"secret-{len(reads)}"}

    monkeypatch.setattr("firstwrite.aws.secrets_manager", Client)
    function = make(replace(RATES, secret_header=SecretHeader("Authorization", "rates/key")))

    for symbol in ("USD", "GBP"):
        function.get({"base": "EUR", "symbol": symbol})
    paid_api.status = 401
    function.get({"base": "EUR", "symbol": "CHF"})
    paid_api.status = 200
    function.get({"base": "EUR", "symbol": "JPY"})

    assert [seen["authorization"] for seen in paid_api.seen] == ["secret-1"] * 3 + ["secret-2"]
    assert reads == ["rates/key"] * 2


def test_a_source_may_be_a_function(make: Callable[..., CacheFunction]) -> None:
    """Typed parameters in, a deadline if it wants one, JSON out; a value of the wrong type is a 400."""
    seen = []

    def convert(amount: int, symbol: str, *, deadline: Deadline) -> dict[str, Any]:
        seen.append(deadline.left_ms())
        return {"amount": amount * 2, "symbol": symbol}

    function = make(replace(RATES, params=("amount", "symbol"), url="", fetcher=Fetcher(convert)))

    reply = function.get({"amount": "21", "symbol": "EUR"})
    assert (reply.json, reply.headers["content-type"]) == ({"amount": 42, "symbol": "EUR"}, "application/json")
    assert 0 < seen[0] <= RATES.timeout_ms
    assert function.get({"amount": "21", "symbol": "EUR"}).headers["cache-status"].startswith("firstwrite; hit")
    refused = function.get({"amount": "x", "symbol": "EUR"})
    assert (refused.status, refused.json["field"]) == (400, "amount")


def test_a_stale_value_is_renewed_by_the_refresh_function(
    engine: DynamoDBClient, table: str, paid_api: PaidApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One asynchronous invocation per environment and lease; the refresh function renews, once for two events."""
    invoked: list[dict[str, Any]] = []

    class Client:
        def invoke(self, **request: Any) -> None:
            invoked.append(request)

    monkeypatch.setattr("firstwrite.aws.lambda_", Client)
    clock = FakeClock()
    source = with_policy(stale_ms=600_000)
    function = CacheFunction(engine, table, clock, paid_api.url, source, REFRESH_FUNCTION="refresh")
    refresher = CacheFunction(engine, table, clock, paid_api.url, source)
    function.get(EUR_USD)
    clock.advance(61_000)

    stale = [function.get(EUR_USD) for _ in range(3)]
    assert {reply.headers["cache-status"] for reply in stale} == {"firstwrite; hit; ttl=-1; detail=stale"}
    assert [(request["FunctionName"], request["InvocationType"]) for request in invoked] == [("refresh", "Event")]

    for _ in range(2):
        refresher.refresh(json.loads(invoked[0]["Payload"]), LambdaContext())  # type: ignore[arg-type]
    assert function.get(EUR_USD).headers["cache-status"] == "firstwrite; hit; ttl=60"
    assert len(paid_api.paths) == 2


def test_a_body_too_large_for_a_function_is_read_from_where_it_is_stored(
    engine: DynamoDBClient, table: str, paid_api: PaidApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five megabytes of noise do not fit into a function's reply; a redirect leads to the bytes."""
    bucket = f"overflow-{uuid4().hex}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", engine.meta.endpoint_url)
    aws.s3().create_bucket(Bucket=bucket)
    function = CacheFunction(engine, table, FakeClock(), paid_api.url, OVERFLOW_BUCKET=bucket)
    paid_api.body, paid_api.content_type = random.Random(1).randbytes(5_000_000), "application/x-noise"

    for _ in range(2):
        reply = function.get(EUR_USD)
        assert (reply.status, reply.body) == (303, b"")
        with urlopen(reply.headers["location"]) as direct:  # noqa: S310 - our own engine
            assert (direct.read(), direct.headers["Content-Type"]) == (paid_api.body, "application/x-noise")
    assert len(paid_api.paths) == 1
