"""Where the time goes, for what misses its aim and for what only just meets it."""

from __future__ import annotations

import cProfile
import pstats
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench import cache_contenders, claim_contenders
from bench.cache_contenders import Place
from bench.paid import Paid
from tests.support.engine import create_cache_table, make_test_client

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 200
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Profile:
    """What one call spends its time on.

    Attributes:
        name: the call.
        shares: percent of the time by package, largest first.
        functions: the functions of Firstwrite and Powertools that take most by themselves, in percent.
    """

    name: str
    shares: list[tuple[str, float]]
    functions: list[tuple[str, float]]


def profiles(endpoint: str) -> list[Profile]:
    """Profile a hit and a claim through the whole handler."""
    client = make_test_client(endpoint)
    cache = cache_contenders.Firstwrite(Place(client, create_cache_table(client), Paid(size=1_024).call))
    cache("key")
    shop = claim_contenders.Firstwrite(client)
    shop.create("item", 1_000_000)
    claim = claim_contenders.ClaimEnvironment(shop.function(client))
    return [
        profile("cache hit, handler", lambda _: cache.request("key")()),
        profile("claim, handler", lambda _: claim.request("item", uuid4().hex)()),
    ]


def profile(name: str, call: Callable[[int], object]) -> Profile:
    """Profile `call` made often."""
    call(0)
    profiler = cProfile.Profile()
    profiler.enable()
    for number in range(CALLS):
        call(number)
    profiler.disable()
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    own_s = {place: times[2] for place, times in stats.items()}
    total_s = sum(own_s.values())
    shares: dict[str, float] = {}
    functions: list[tuple[str, float]] = []
    for (file, _, function), seconds in own_s.items():
        package = package_of(file, function)
        shares[package] = shares.get(package, 0) + 100 * seconds / total_s
        if package.startswith(("firstwrite", "aws_lambda_powertools")):
            functions.append((f"{package}: {file.rpartition('/')[2]} {function}", 100 * seconds / total_s))
    largest = sorted(shares.items(), key=lambda entry: -entry[1])[:SHOWN]
    return Profile(name, largest, sorted(functions, key=lambda entry: -entry[1])[:SHOWN])


def package_of(file: str, function: str) -> str:
    """Return which package a profiled function belongs to."""
    if file == "~":
        return "the socket" if "socket" in function else "built in"
    for package in ("firstwrite", "aws_lambda_powertools", "botocore", "boto3", "urllib3", "bench", "tests"):
        if f"/{package}/" in file:
            return package
    return "standard library"
