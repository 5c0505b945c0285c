"""What nobody should send: every call refuses it by name, writes nothing for it, and logs nothing of it.

Events are as API Gateway (payload 2.0) hands them on: paths decoded, repeated headers joined by commas, bodies that are
no text as base64.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.openapi import OPERATIONS
from firstwrite.api import MAX_BODY_BYTES, MAX_JSON_DEPTH
from firstwrite.claim.handler import ClaimFunction
from firstwrite.observability import Counters, logger
from firstwrite.settings import Settings
from tests.interleave.engine import Engine
from tests.support.cache import CacheFunction
from tests.support.clocks import FakeClock
from tests.support.contract import check_described
from tests.support.engine import create_cache_table, create_stock_table
from tests.support.hostile import BODIES, SECRET, TEXTS
from tests.support.http import LambdaContext, Reply, event, reply_of
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.upstream import PaidApi

Call = tuple[str, str]
NAMED_IN_PATH = {"{source}": "rates", "{item}": "seat"}
RATES_QUERY = "base=EUR&symbol=USD"
VALID_BODIES: dict[Call, Any] = {
    ("PUT", "/v1/items/{item}"): {"stock": 100},
    ("POST", "/v1/items/{item}/stock"): {"add": 1},
    ("POST", "/v1/items/{item}/claims"): {"quantity": 1, "claimant": "ann"},
    ("POST", "/v1/items/{item}/audit"): {"apply": False},
    ("POST", "/v1/claims/{claim_id}/confirm"): {},
    ("POST", "/v1/claims/{claim_id}/release"): {},
}
HEADERS = ("Idempotency-Key", "X-Caller", "Prefer", "Cache-Control", "If-None-Match", "Content-Type", "X-Unknown")
NAMES_A_FIELD = {"invalid-request", "idempotency-key-missing", "unknown-source", "unknown-item", "unknown-claim"}


class StrictKeys(Engine):
    """The engine, with DynamoDB's bounds on the size of keys."""

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in ("get_item", "put_item", "update_item", "batch_get_item", "transact_write_items", "query"):
            return method

        def call(**request: Any) -> Any:
            _check_keys(request)
            return method(**request)

        return call


def _check_keys(request: Any) -> None:
    if isinstance(request, dict):
        for name, value in request.items():
            most = {"pk": 2_048, "sk": 1_024, ":partition": 2_048}.get(name)
            if most and isinstance(value, dict) and len(value.get("S", "").encode()) > most:
                raise ClientError({"Error": {"Code": "ValidationException", "Message": "key too long"}}, "Strict")
            _check_keys(value)
    elif isinstance(request, list):
        for part in request:
            _check_keys(part)


@dataclass
class Sent:
    """A request before it is an event, valid until something in it is changed."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | bytes | None = None


class Desk:
    """Both functions over one engine, and what they log."""

    def __init__(self, upstream_url: str) -> None:
        self.engine, clock = StrictKeys(), FakeClock()
        client: Any = self.engine
        self.log = io.StringIO()
        stock = create_stock_table(client)
        stage = Settings.from_environ({"AUTH": "header", "STOCK_TABLE": stock})
        self.claims = ClaimFunction(stage, client, None, clock, Counters())
        self.cache = CacheFunction(client, create_cache_table(client), clock, upstream_url)
        self.deliver(Sent("PUT", "/v1/items/seat", body='{"stock": 1000000}'))
        made = self.deliver(self.valid(("POST", "/v1/items/{item}/claims")))
        self.claim_id = made.json["claim_id"]

    def valid(self, call: Call) -> Sent:
        """Return a request that the call takes."""
        method, template = call
        path = template.replace("{claim_id}", getattr(self, "claim_id", ""))
        for name, value in NAMED_IN_PATH.items():
            path = path.replace(name, value)
        body = VALID_BODIES.get(call)
        query = RATES_QUERY if "/cache/" in path else ""
        headers = {"Idempotency-Key": "k", "X-Caller": "ann", "Content-Type": "application/json"}
        return Sent(method, path, query, headers, None if body is None else json.dumps(body))

    def deliver(self, sent: Sent) -> Reply:
        """Return the answer to a request."""
        made = event(sent.method, sent.path, query=sent.query, headers=sent.headers)
        if sent.body is not None:
            made["isBase64Encoded"] = isinstance(sent.body, bytes)
            made["body"] = base64.b64encode(sent.body).decode() if isinstance(sent.body, bytes) else sent.body
        function = self.cache if sent.path.startswith(("/v1/cache", "/v1/sources")) else self.claims
        with contextlib.redirect_stdout(self.log):
            return reply_of(function.handle(made, LambdaContext()))  # type: ignore[arg-type]

    def stored(self) -> dict[Any, Any]:
        """Return all that is stored; items are replaced and never changed, so identity tells."""
        tables = self.engine.tables.items()
        return {(name, key): id(item) for name, table in tables for key, item in table.items.items()}

    def judge(self, call: Call, sent: Sent) -> Reply:
        """Send and assert what holds whatever was sent."""
        before = self.stored()
        self.log.seek(0)
        self.log.truncate()
        reply = self.deliver(sent)
        assert reply.status < 500, (sent, reply)
        check_described(*call, reply)
        if reply.status >= 400 and reply.headers["content-type"] == "application/problem+json":
            assert self.stored() == before, sent
            assert ("field" in reply.json) == (reply.problem in NAMES_A_FIELD), (sent, reply)
            assert len(reply.body) < 1_000
        written = self.log.getvalue()
        assert SECRET not in written, written
        assert max(map(len, written.splitlines()), default=0) < 2_000
        return reply


@pytest.fixture
def upstream() -> Iterator[PaidApi]:
    with running_paid_api() as api:
        yield api


@pytest.fixture
def desk(upstream: PaidApi, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(upstream.url)
    # As in a function, whatever other tests have made of the process's one logger.
    monkeypatch.setattr(logger._logger, "disabled", False)
    monkeypatch.setattr(logger._logger, "level", logging.INFO)
    logger._logger.manager._clear_cache()  # type: ignore[attr-defined]
    (handler,) = logger._logger.handlers
    monkeypatch.setattr(handler, "level", logging.NOTSET)
    monkeypatch.setattr(handler, "emit", lambda record: desk.log.write(handler.format(record) + "\n"))
    return desk


def places(call: Call, sent: Sent) -> dict[str, Callable[[str], None]]:
    """Return how to put a text into each part of a request."""

    def into_path(text: str) -> None:
        parts = call[1].split("/")
        named = next(index for index, part in enumerate(parts) if part.startswith("{"))
        path = sent.path.split("/")
        path[named] = text
        sent.path = "/".join(path)

    def into_query(value: str) -> None:
        sent.query = value

    def into_header(name: str) -> Callable[[str], None]:
        return lambda text: sent.headers.update({name: text})

    def into_member(name: str) -> Callable[[str], None]:
        def put(text: str) -> None:
            sent.body = json.dumps({**VALID_BODIES[call], name: text})

        return put

    def into_name(text: str) -> None:
        sent.body = json.dumps({**VALID_BODIES[call], text: 1})

    def into_body(text: str) -> None:
        sent.body = text

    ways: dict[str, Callable[[str], None]] = {"query": into_query, "body": into_body}
    ways |= {f"header {name}": into_header(name) for name in HEADERS}
    if "{" in call[1]:
        ways["path"] = into_path
    ways |= {f"member {name}": into_member(name) for name in VALID_BODIES.get(call, {})}
    if call in VALID_BODIES:
        ways["member's name"] = into_name
    return ways


BY_CALL = pytest.mark.parametrize("call", OPERATIONS, ids=" ".join)


@BY_CALL
def test_a_hostile_text_anywhere_is_refused_or_harmless(desk: Desk, call: Call) -> None:
    """In the path, the query, each header, each member and its name."""
    for place in places(call, desk.valid(call)):
        for text in TEXTS.values():
            sent = desk.valid(call)
            places(call, sent)[place](text)
            desk.judge(call, sent)


@BY_CALL
def test_a_hostile_query_is_refused_or_harmless(desk: Desk, call: Call) -> None:
    """Broken encodings, repeated, missing and unknown parameters, too many of them."""
    for query in (
        *(f"base={text}&symbol=USD" for text in TEXTS.values()),
        *(f"{text}=1&{RATES_QUERY}" for text in TEXTS.values()),
        *(f"limit={text}" for text in TEXTS.values()),
        *(f"cursor={text}" for text in TEXTS.values()),
        "base=%ff&symbol=%ed%a0%80",
        f"base={SECRET}&base={SECRET}&symbol=USD",
        f"{SECRET * 40}=1&{SECRET * 40}=2",
        "&".join(f"p{number}=1" for number in range(33)),
        "&" * 5_000,
    ):
        sent = desk.valid(call)
        sent.query = query
        desk.judge(call, sent)


@pytest.mark.parametrize("call", VALID_BODIES, ids=" ".join)
@pytest.mark.parametrize("kind", BODIES)
def test_a_hostile_body_is_refused_by_name(desk: Desk, call: Call, kind: str) -> None:
    """No JSON, no object, too large, too deep, no UTF-8, repeated members: a 400 that names the field, and no write."""
    sent = desk.valid(call)
    sent.body = BODIES[kind]
    reply = desk.judge(call, sent)
    assert (reply.status, reply.problem) == (400, "invalid-request"), reply


@BY_CALL
def test_a_path_that_goes_on_in_a_new_line_is_no_path(desk: Desk, call: Call) -> None:
    """It is refused and not taken for the one without, which would create an item of another name than was sent."""
    sent = desk.valid(call)
    sent.path += "\n"
    assert desk.judge(call, sent).problem == "not-found"


@pytest.mark.timeout(60)
def test_a_body_of_quotes_costs_no_more_than_another(desk: Desk) -> None:
    """Unclosed strings full of escapes, as large as a body may be, are read once and not once from each quote."""
    for call in VALID_BODIES:
        for text in ('"' + '\\"' * 32_000, '{"' + '\\"' * 32_000, '"\\\n' * 20_000):
            sent = desk.valid(call)
            sent.body = text
            assert desk.judge(call, sent).json["field"] == "body"


def test_no_base64_and_no_parts_of_an_event_are_no_fault(desk: Desk) -> None:
    """A body that says it is base64 and is not, and events without headers, query or body."""
    made = event("POST", "/v1/items/seat/claims", headers={"Idempotency-Key": "k"})
    broken = reply_of(desk.claims.handle({**made, "isBase64Encoded": True, "body": "!"}, LambdaContext()))  # type: ignore[arg-type]
    assert (broken.status, broken.json["field"]) == (400, "body")
    without: list[dict[str, Any]] = [{"headers": {}}, {"headers": None}, {"body": None}, {"rawQueryString": None}]
    for missing in without:
        reply = reply_of(desk.claims.handle({**made, **missing}, LambdaContext()))  # type: ignore[arg-type]
        assert reply.status in (201, 400), (missing, reply)


CLAIM: Call = ("POST", "/v1/items/{item}/claims")
ITEM: Call = ("GET", "/v1/items/{item}")
VALUE: Call = ("GET", "/v1/cache/{source}")
LIST: Call = ("GET", "/v1/items/{item}/claims")


@pytest.mark.parametrize(
    ("call", "part", "most", "more", "at_fault"),
    [
        (CLAIM, "header Idempotency-Key", "k" * 255, "k" * 256, "Idempotency-Key"),
        (CLAIM, "header X-Caller", "c" * 256, "c" * 257, "X-Caller"),
        (CLAIM, "member claimant", "é" * 128, "é" * 128 + "a", "claimant"),
        (ITEM, "path", "i" * 128, "i" * 129, "item"),
        (VALUE, "query", f"symbol=U&base={'%C3%A9' * 512}", f"symbol=U&base={'%C3%A9' * 512}a", "base"),
        (VALUE, "query", f"{RATES_QUERY}", "&".join(f"p{n}=" for n in range(33)), "query"),
        (LIST, "query", "limit=200", "limit=201", "limit"),
        (CLAIM, "body", "{}" + " " * (MAX_BODY_BYTES - 2), "{}" + " " * (MAX_BODY_BYTES - 1), "body"),
        (CLAIM, "body", "{}", '{"claimant": "' + "😀" * (MAX_BODY_BYTES // 4) + '"}', "body"),
    ],
)
def test_each_bound_is_where_the_answer_says(
    desk: Desk, call: Call, part: str, most: str, *, more: str, at_fault: str
) -> None:
    """The most that is taken is taken, and one more is refused by name."""
    for text, refused in ((most, False), (more, True)):
        sent = desk.valid(call)
        places(call, sent)[part](text)
        reply = desk.judge(call, sent)
        assert (reply.status == 400) == refused, reply
        if refused:
            assert reply.json["field"] == at_fault


def test_json_may_nest_as_deep_as_the_answer_says(desk: Desk) -> None:
    """At the bound it is the member that is wrong, above it the body; brackets in strings are no nesting."""
    for depth, at_fault in ((MAX_JSON_DEPTH, "claimant"), (MAX_JSON_DEPTH + 1, "body")):
        sent = desk.valid(CLAIM)
        sent.body = '{"claimant": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"
        assert desk.judge(CLAIM, sent).json["field"] == at_fault


@pytest.mark.parametrize("wait", ["\u00b2", "9" * 5_000, "-1", "1e9", "Mon, 99 Foo", "\xff"])
def test_an_upstreams_hostile_retry_after_is_a_failure_like_any_other(upstream: PaidApi, desk: Desk, wait: str) -> None:
    """What it says there may be no time at all."""
    upstream.status, upstream.headers = 503, {"Retry-After": wait}
    sent = desk.valid(VALUE)
    reply = reply_of(desk.cache.handle(event(sent.method, sent.path, query=sent.query), LambdaContext()))  # type: ignore[arg-type]
    assert (reply.status, reply.problem) == (502, "upstream-failed")


@st.composite
def mixes(draw: st.DrawFn) -> tuple[Call, Mapping[str, str]]:
    call = draw(st.sampled_from(list(OPERATIONS)))
    known = list(places(call, Sent(call[0], call[1])))
    texts = st.sampled_from(list(TEXTS.values())) | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
    return call, draw(st.dictionaries(st.sampled_from(known), texts, min_size=1, max_size=4))


@given(mix=mixes())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_mix_of_hostile_parts_is_refused_or_harmless(desk: Desk, mix: tuple[Call, Mapping[str, str]]) -> None:
    """Several parts at once, of the known kinds and of whatever text there is."""
    call, changes = mix
    sent = desk.valid(call)
    ways = places(call, sent)
    for place, text in changes.items():
        ways[place](text)
    desk.judge(call, sent)
