"""How long outcomes take, as ratios to the bare calls of the engine that they are made of, pair by pair."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench import cache_contenders, claim_contenders
from bench.cache_contenders import Place
from bench.costs import sell_out
from bench.measure import Contender, Spread, interleaved, percentile, ratio
from bench.paid import Paid
from firstwrite.cache.single_flight import Ask
from firstwrite.cache.sources import record_key
from firstwrite.claim.model import ClaimRequest
from firstwrite.clock import Deadline, SystemClock
from tests.support.engine import create_cache_table, make_test_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BODY_BYTES = 1_024
STOCK = 1_000_000
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Timing:
    """One contender's times beside a bare call.

    Attributes:
        outcome: what was timed.
        base: beside which bare calls.
        ms: its times.
        ratio: pair by pair.
        p99_ratio: of the slowest in a hundred.
    """

    outcome: str
    base: str
    ms: Spread
    ratio: Spread
    p99_ratio: float


def hits(endpoint: str, rounds: int) -> list[Timing]:
    """Time cached answers of 1 KB."""
    client = make_test_client(endpoint)
    place = Place(client, create_cache_table(client), Paid(size=BODY_BYTES).call)
    key = uuid4().hex
    own = cache_contenders.Firstwrite(place)
    remembering = cache_contenders.Firstwrite(cache_contenders.with_policy(place, memory_ms=3_600_000))
    replaying = cache_contenders.powertools(replace(place, table=create_cache_table(client)))
    naive = cache_contenders.naive(replace(place, table=create_cache_table(client)))
    for ask in (own, remembering, replaying, naive):
        ask(key)
    wire_key = {"pk": {"S": record_key("bench", {"key": key})}}
    contenders: dict[str, Contender] = {
        "bare GetItem": always(lambda: client.get_item(TableName=place.table, Key=wire_key)),
        "naive hit": always(lambda: naive(key)),
        "Powertools replay": always(lambda: replaying(key)),
        "Firstwrite hit, protocol": always(asks(own, key)),
        "Firstwrite hit, handler": always(own.request(key)),
        "Firstwrite hit, memory, protocol": always(asks(remembering, key)),
        "Firstwrite hit, memory, handler": always(remembering.request(key)),
    }
    times = interleaved(contenders, rounds)
    return [timing(name, "bare GetItem", times) for name in contenders]


def always(call: Callable[[], object]) -> Contender:
    """Return a contender that makes the same call each time."""
    return lambda _: call


def asks(environment: cache_contenders.Firstwrite, key: str) -> Callable[[], object]:
    """Return the question as the protocol takes it."""
    flights, policy = environment.function.api.single_flight, environment.source.policy
    record = record_key("bench", {"key": key})
    return lambda: flights.get(Ask(record, policy, _never, Deadline.after(CLOCK, 5_000)))


def _never(_: object) -> Any:  # noqa: ANN401 - it does not return
    raise AssertionError("a hit does not call")


def claims(endpoint: str, rounds: int) -> list[Timing]:
    """Time claims granted, replayed and refused."""
    client = make_test_client(endpoint)
    shops = claim_contenders.shops(client)
    shop, plain = shops["Firstwrite"], shops["plain conditional update"]
    assert isinstance(shop, claim_contenders.Firstwrite)  # noqa: S101 - for the type checker
    assert isinstance(plain, claim_contenders.Plain)  # noqa: S101 - for the type checker
    for each in shops.values():
        each.create("item", STOCK)
    own = claim_contenders.ClaimEnvironment(shop.function(client))
    claiming = own.function.claims.claiming
    own("item", "again")
    sell_out(shop, "gone", own)
    look, commit = recorded(shop, endpoint)
    around_plain = shops["Powertools around plain"].environment(client)
    around_naive = shops["Powertools around naive"].environment(client)
    around_plain("item", "again")

    def bare(_: int) -> Callable[[], object]:
        reads, writes = renamed(look), renamed(commit)

        def call() -> None:
            client.batch_get_item(**reads)
            client.transact_write_items(**writes)

        return call

    def claim(item: str, key: str) -> Callable[[], object]:
        return lambda: claiming.claim(ClaimRequest("header:bench", "header:bench", item, 1, key), soon())

    update = plain.request("item")
    contenders: dict[str, Contender] = {
        "bare UpdateItem": always(lambda: client.update_item(**update)),
        "Powertools around plain, claimed": lambda n: lambda: around_plain("item", f"key-{n}"),
        "Powertools around naive, claimed": lambda n: lambda: around_naive("item", f"key-{n}"),
        "Powertools around plain, replayed": always(lambda: around_plain("item", "again")),
        "bare BatchGetItem + TransactWriteItems": bare,
        "Firstwrite claimed, protocol": lambda n: claim("item", f"protocol-{n}"),
        "Firstwrite claimed, handler": lambda n: own.request("item", f"handler-{n}"),
        "bare BatchGetItem": always(lambda: client.batch_get_item(**look)),
        "Firstwrite replayed, protocol": always(claim("item", "again")),
        "Firstwrite replayed, handler": always(own.request("item", "again")),
        "Firstwrite sold out, protocol": lambda n: claim("gone", f"late-{n}"),
        "Firstwrite sold out, handler": lambda n: own.request("gone", f"late-{n}"),
    }
    times = interleaved(contenders, rounds)
    bases = list(contenders)
    base, rows = bases[0], []
    for name in bases:
        base = name if name.startswith("bare") else base
        rows.append(timing(name, base, times))
    rows.append(timing("bare BatchGetItem + TransactWriteItems", "bare UpdateItem", times))
    return rows


def soon() -> Deadline:
    """Return a deadline that nothing here meets."""
    return Deadline.after(CLOCK, 10_000)


def recorded(shop: claim_contenders.Firstwrite, endpoint: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two requests that a real claim makes."""
    client = make_test_client(endpoint)
    seen: dict[str, dict[str, Any]] = {}

    def note(params: dict[str, Any], model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        seen[model.name] = copy.deepcopy(params)

    client.meta.events.register("provide-client-params.dynamodb", note)
    shop.environment(client)("item", "recorded")
    return seen["BatchGetItem"], seen["TransactWriteItems"]


def renamed(request: dict[str, Any]) -> dict[str, Any]:
    """Return the same request for another claim of the same length of name."""
    fresh = copy.deepcopy(request)
    name = uuid4().hex
    for table in fresh.get("RequestItems", {}).values():
        for key in table["Keys"]:
            if key["sk"]["S"] != "stock":
                key["sk"]["S"] = name
    for entry in fresh.get("TransactItems", []):
        if "Put" in entry:
            entry["Put"]["Item"]["sk"]["S"] = name
    return fresh


def timing(name: str, base: str, times: Mapping[str, list[float]]) -> Timing:
    """Return how a contender did beside a bare call."""
    p99 = percentile(times[name], 0.99) / percentile(times[base], 0.99)
    return Timing(name, base, Spread.of(times[name]), ratio(times[name], times[base]), p99)
