"""The four races, each run against the naive twin and against the real service."""

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lab import checks
from lab.checks import Verdict
from lab.client import Client, Exchange, Request

CALLERS = 20
PAID_LATENCY_MS = 1_000
TRIES = 5
STOCK, CLAIMS = 100, 1_000
REPEATED, REPEATED_STOCK = 20, 100
REPEAT_AFTER_S = 0.05
WARM_UP, WARM_UP_LATENCY_MS = 24, 100


class Progress(Protocol):
    """Told what happens, for somebody who watches."""

    def begin(self, what: str) -> None:
        """Something new begins."""

    def count(self, done: int, of: int) -> None:
        """So much of it is done."""


class SetupError(Exception):
    """A race could not begin: an item could not be made, or a count not read. The text says what was answered."""


@dataclass(frozen=True)
class Side:
    """What one of the two did in a race."""

    exchanges: Sequence[Exchange]
    """Of several tries, those of the one that is worth looking at."""
    verdict: Verdict
    callers: Sequence[str]
    """Who sent each."""
    wrong: Collection[int] = ()
    """Which of them got a claim that they should not have."""


@dataclass(frozen=True)
class Story:
    """A race: what it is, what is promised, how many requests it sends at most."""

    name: str
    title: str
    tells: str
    promise: str
    most_requests: int
    drawn: str
    """How the report draws it: `callers` (a bar each) or `sales` (claims over time)."""
    run: Callable[["Bench"], Awaitable[tuple[Side, Side]]]
    stock: int = 0


@dataclass(frozen=True)
class Result:
    """A story that was run."""

    story: Story
    naive: Side
    safe: Side

    @property
    def ok(self) -> bool:
        """Whether the promise was kept, and the twin showed why it has to be made."""
        return self.naive.verdict.ok and self.safe.verdict.ok


@dataclass(frozen=True)
class Bench:
    """What the stories run on."""

    client: Client
    api_url: str
    demo_url: str
    run_id: str
    """Part of every id, so that no run meets what another left."""
    progress: Progress

    def name(self, what: str) -> str:
        """Return an id of this run."""
        return f"lab-{self.run_id}-{what}"

    async def race(self, what: str, requests: Sequence[Request]) -> list[Exchange]:
        """Send requests at once."""
        self.progress.begin(what)
        return await self.client.send(requests, self.progress.count)

    async def ask(self, request: Request, *wanted: int) -> dict[str, Any]:
        """Send one request that is no part of a race; returns the object it is answered with."""
        (exchange,) = await self.client.send([request])
        if exchange.status not in wanted:
            said = exchange.error or f"{exchange.status} {exchange.body[:300].decode(errors='replace')}"
            raise SetupError(f"{request.method} {request.url}: {said}")
        answer: dict[str, Any] = exchange.json()
        return answer

    async def paid_calls(self, paid_id: str) -> int:
        """Return how many calls the paid API counted for an id."""
        answer = await self.ask(Request("GET", f"{self.demo_url}/paid/calls", params={"id": paid_id}), 200)
        return int(answer["calls"])

    async def make_item(self, item: str, stock: int) -> None:
        """Make an item to claim."""
        await self.ask(Request("PUT", f"{self.api_url}/v1/items/{item}", json={"stock": stock}), 200, 201)

    async def item(self, item: str) -> dict[str, Any]:
        """Return an item's books."""
        return await self.ask(Request("GET", f"{self.api_url}/v1/items/{item}"), 200)

    def naive_cache(self, paid_id: str, latency_ms: int) -> Request:
        """Ask the naive cache."""
        return Request("GET", f"{self.demo_url}/naive/cache", params=_paid(paid_id, latency_ms))

    def safe_cache(self, paid_id: str, latency_ms: int) -> Request:
        """Ask the cache."""
        return Request("GET", f"{self.api_url}/v1/cache/demo", params=_paid(paid_id, latency_ms))

    def naive_claim(self, item: str, key: str) -> Request:
        """Claim one unit from the naive twin."""
        return self._claim(f"{self.demo_url}/naive/items/{item}/claims", key)

    def safe_claim(self, item: str, key: str) -> Request:
        """Claim one unit."""
        return self._claim(f"{self.api_url}/v1/items/{item}/claims", key)

    def _claim(self, url: str, key: str) -> Request:
        return Request("POST", url, headers={"Idempotency-Key": f"{self.run_id}-{key}"}, json={})


def _paid(paid_id: str, latency_ms: int) -> dict[str, str | int]:
    return {"id": paid_id, "latency_ms": latency_ms, "status": 200, "size": 256}


async def warm_up(bench: Bench) -> None:
    """Start what a race needs, so that it measures the race and not cold starts: connections, functions, clients."""
    item = bench.name("warm")
    await bench.make_item(item, 1)
    numbers = range(WARM_UP)
    for batch in (
        [bench.naive_cache(bench.name(f"warm-naive-{number}"), WARM_UP_LATENCY_MS) for number in numbers],
        [bench.safe_cache(bench.name(f"warm-safe-{number}"), WARM_UP_LATENCY_MS) for number in numbers],
        [bench.naive_claim(item, f"warm-{number}") for number in numbers],
        [bench.safe_claim(item, f"warm-{number}") for number in numbers],
    ):
        await bench.race("warming up", batch)


WARM_UP_REQUESTS = 1 + 4 * WARM_UP


async def uncached_key(bench: Bench) -> tuple[Side, Side]:
    """Ask for one key that is not cached, all callers at once."""
    callers = _callers(CALLERS)
    key = bench.name("naive-key")
    naive = await bench.race(f"naive, {CALLERS} callers", [bench.naive_cache(key, PAID_LATENCY_MS)] * CALLERS)
    naive_side = Side(naive, checks.naive_cache(naive, await bench.paid_calls(key)), callers)
    key = bench.name("safe-key")
    safe = await bench.race(f"Firstwrite, {CALLERS} callers", [bench.safe_cache(key, PAID_LATENCY_MS)] * CALLERS)
    return naive_side, Side(safe, checks.safe_cache(safe, await bench.paid_calls(key)), callers)


async def last_unit(bench: Bench) -> tuple[Side, Side]:
    """Claim the last unit, two callers at once, a few times over: one try may miss the gap of the naive twin."""
    tried: dict[str, list[list[Exchange]]] = {"naive": [], "Firstwrite": []}
    for number in range(1, TRIES + 1):
        for side, claim in (("naive", bench.naive_claim), ("Firstwrite", bench.safe_claim)):
            item = bench.name(f"last-{side}-{number}")
            await bench.make_item(item, 1)
            requests = [claim(item, f"last-{side}-{number}-{caller}") for caller in "ab"]
            tried[side].append(await bench.race(f"{side}, 2 callers, try {number} of {TRIES}", requests))
    naive, safe = tried["naive"], tried["Firstwrite"]
    telling = max(naive, key=lambda exchanges: len(checks.claim_ids(exchanges)))
    return (
        Side(telling, checks.naive_last_unit(naive), _callers(2), checks.surplus(telling, 1)),
        Side(safe[-1], checks.safe_last_unit(safe), _callers(2), checks.surplus(safe[-1], 1)),
    )


async def hot_stock(bench: Bench) -> tuple[Side, Side]:
    """Claim ten times what there is, all at once."""
    item = bench.name("hot-naive")
    await bench.make_item(item, STOCK)
    requests = [bench.naive_claim(item, f"hot-naive-{number}") for number in range(CLAIMS)]
    naive = await bench.race(f"naive, {CLAIMS:,} claims on {STOCK}", requests)
    item = bench.name("hot-safe")
    await bench.make_item(item, STOCK)
    requests = [bench.safe_claim(item, f"hot-safe-{number}") for number in range(CLAIMS)]
    safe = await bench.race(f"Firstwrite, {CLAIMS:,} claims on {STOCK}", requests)
    return (
        Side(naive, checks.naive_stock(naive, STOCK), _callers(CLAIMS)),
        Side(safe, checks.safe_stock(safe, STOCK, await bench.item(item)), _callers(CLAIMS)),
    )


async def lost_answers(bench: Bench) -> tuple[Side, Side]:
    """Send each claim, and again a moment later, as a client does that got no answer; the first may still run."""
    raced: list[list[Exchange]] = []
    # Each claim stands beside its repeat, so that the drawing shows them together.
    keys = [f"claim {number // 2 + 1}" for number in range(2 * REPEATED)]
    callers = ["again" if number % 2 else key for number, key in enumerate(keys)]
    for side, claim in (("naive", bench.naive_claim), ("Firstwrite", bench.safe_claim)):
        item = bench.name(f"repeat-{side}")
        await bench.make_item(item, REPEATED_STOCK)
        requests = [
            dataclasses.replace(claim(item, f"repeat-{side}-{number // 2}"), after_s=REPEAT_AFTER_S * (number % 2))
            for number in range(2 * REPEATED)
        ]
        raced.append(await bench.race(f"{side}, {REPEATED} claims, each sent twice", requests))
    naive, safe = raced
    books = await bench.item(bench.name("repeat-Firstwrite"))
    return (
        Side(naive, checks.naive_repeats(naive, keys), callers, checks.second_claims(naive, keys)),
        Side(
            safe,
            checks.safe_repeats(safe, keys, REPEATED_STOCK, books),
            callers,
            checks.second_claims(safe, keys),
        ),
    )


def _callers(number: int) -> list[str]:
    return [f"caller {each}" for each in range(1, number + 1)]


STORIES = (
    Story(
        name="uncached-key",
        title="20 callers ask at once for one uncached key",
        tells="Every caller that comes before the first answer is stored finds nothing, and calls the paid API.",
        promise="1 paid call, 20 equal answers",
        most_requests=2 * CALLERS + 2,
        drawn="callers",
        run=uncached_key,
    ),
    Story(
        name="last-unit",
        title="2 callers claim the last unit at once",
        tells="Both read that one is left before either has saved that it took it.",
        promise="one 201, one 409 sold-out",
        most_requests=TRIES * 2 * 3,
        drawn="callers",
        run=last_unit,
    ),
    Story(
        name="hot-stock",
        title=f"{CLAIMS:,} claims at once on a stock of {STOCK}",
        tells="Units are counted by reading, adding and writing back, so claims in between are forgotten.",
        promise=f"{STOCK}x 201, {CLAIMS - STOCK}x 409, nothing left, never below",
        most_requests=2 * CLAIMS + 3,
        drawn="sales",
        run=hot_stock,
        stock=STOCK,
    ),
    Story(
        name="lost-answers",
        title=f"{REPEATED} claims, each repeated because the answer was lost",
        tells="The first request did its work; only its answer is missing. The repeat is taken for a new claim.",
        promise="the first claim again, stock taken once",
        most_requests=2 * (1 + 2 * REPEATED) + 1,
        drawn="callers",
        run=lost_answers,
    ),
)


async def run_all(bench: Bench, stories: Sequence[Story]) -> list[Result]:
    """Run stories one after the other."""
    await warm_up(bench)
    return [Result(story, *await story.run(bench)) for story in stories]
