"""Small experiments on whether a contender is right: in a race, on a repeat, when a winner dies or comes late.

Each returns what was seen, so that a table can say why something is wrong. A process that dies is one whose client
raises after a given number of its steps took effect, and at every step after that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import boto3
from botocore.config import Config

from bench.cache_contenders import Place, with_policy
from bench.claim_contenders import BusyError
from bench.paid import Paid
from tests.support.engine import create_cache_table, make_test_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

    from bench import cache_contenders, claim_contenders

LEASE_MS = 500
"""How long a dead winner keeps others out, in experiments; the alternatives are told the same."""
LATER_S = 0.9
MOST_WAIT_S = 15
MOST_RACERS = 1_000
MOST_STEPS = 12


class DiedError(BaseException):
    """The process is gone; no clean-up of its own may catch this and go on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether it was right, what was seen where not, and what is worth knowing where it was."""

    right: bool
    seen: str = ""
    note: str = ""

    def __str__(self) -> str:
        return f"yes{self.note}" if self.right else f"no: {self.seen}"


class Mortal:
    """A process that ends after `steps` steps; every step after that fails too."""

    def __init__(self, steps: int | None) -> None:
        self._left = steps
        self.done = 0

    def client(self, endpoint: str) -> DynamoDBClient:
        """Return a client that dies with it, each time just after a call took effect."""
        client = make_test_client(endpoint)
        client.meta.events.register("before-call.dynamodb", self._still_alive)
        client.meta.events.register("after-call.dynamodb", self.step)
        return client

    def _still_alive(self, **_: object) -> None:
        if self._left == 0:
            raise DiedError

    def step(self, **_: object) -> None:
        """Go on by one step, or end."""
        self._still_alive()
        self.done += 1
        if self._left is not None:
            self._left -= 1
            self._still_alive()


@dataclass(frozen=True, slots=True)
class RaceResult:
    """What came of many asking at once.

    Attributes:
        calls: paid calls.
        answered: callers that got an answer.
        distinct: different answers among them.
        errors: what the others got, by kind.
    """

    calls: int
    answered: int
    distinct: int
    errors: Counter[str]


def wide_client(endpoint: str) -> DynamoDBClient:
    """Return a client through which a thousand can talk at once, each over a connection that stays."""
    config = Config(
        retries={"total_max_attempts": 1}, max_pool_connections=MOST_RACERS, connect_timeout=30, read_timeout=30
    )
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - an emulator's
        config=config,
    )


def at_once(actions: list[Callable[[], Any]]) -> list[Any]:
    """Run all at once, each in a thread; return results or exceptions in order."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
        start.wait()
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - counted, whatever it is
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


class Crowd:
    """Those who race; knows when each has had the answer to its first call.

    Args:
        client: theirs; connections enough for all of them.
        size: how many they are.
    """

    def __init__(self, client: DynamoDBClient, size: int) -> None:
        self._client = client
        self._size = size
        self._asked: set[int] = set()
        self._all_asked = threading.Event()

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._client.meta.events.register("after-call.dynamodb", self._count)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._client.meta.events.unregister("after-call.dynamodb", self._count)

    def _count(self, **_: object) -> None:
        self._asked.add(threading.get_ident())
        if len(self._asked) == self._size:
            self._all_asked.set()

    def wait(self) -> None:
        """Wait until all have asked, within reason."""
        self._all_asked.wait(MOST_WAIT_S)


def cache_race(make: Callable[[Place], cache_contenders.Environment], endpoint: str, racers: int) -> RaceResult:
    """Let so many ask for one new key at once. The paid call ends 300 ms after the last of them has asked."""
    client = wide_client(endpoint)
    paid, key = Paid(takes_s=0.3), uuid4().hex
    with Crowd(client, racers) as crowd:

        def fetch() -> str:
            crowd.wait()
            return paid.call()

        place = Place(client, create_cache_table(client), fetch)
        place = with_policy(place, timeout_ms=20_000, lease_ms=25_000, wait_ms=28_000)
        return _cache_race(make, place, racers, paid, key)


def _cache_race(
    make: Callable[[Place], cache_contenders.Environment], place: Place, racers: int, paid: Paid, key: str
) -> RaceResult:
    environments = [make(place) for _ in range(racers)]
    results = at_once([partial(ask, key) for ask in environments])
    answers = [result for result in results if isinstance(result, str)]
    errors = Counter(type(result).__name__ for result in results if not isinstance(result, str))
    return RaceResult(paid.calls, len(answers), len(set(answers)), errors)


def cache_repeat(make: Callable[[Place], cache_contenders.Environment], place: Place) -> Finding:
    """Ask twice, one after the other."""
    paid = Paid()
    place = Place(place.client, place.table, paid.call)
    key = uuid4().hex
    first, second = make(place)(key), make(place)(key)
    return Finding(first == second and paid.calls == 1, f"{paid.calls} calls")


def cache_death(make: Callable[[Place], cache_contenders.Environment], endpoint: str) -> Finding:
    """Let the winner die after each of its steps, and let it come back late; the next caller must be right."""
    table = create_cache_table(make_test_client(endpoint))
    for steps in range(1, MOST_STEPS):
        paid, mortal = Paid(), Mortal(steps)

        def fetch(paid: Paid = paid, mortal: Mortal = mortal) -> str:
            answer = paid.call()
            mortal.step()
            return answer

        key = uuid4().hex
        try:
            make(_short(mortal.client(endpoint), table, fetch))(key)
        except DiedError:
            time.sleep(LATER_S)
            try:
                make(_short(make_test_client(endpoint), table, paid.call))(key)
            except Exception as error:  # noqa: BLE001 - what the next caller got
                return Finding(right=False, seen=f"after step {steps} the next caller got {type(error).__name__}")
        else:
            break
    return _late_winner(make, endpoint, table)


def _late_winner(make: Callable[[Place], cache_contenders.Environment], endpoint: str, table: str) -> Finding:
    """Let a winner be slower than its lease; what a newer one stored meanwhile must stay."""
    slow, quick = Paid(takes_s=2 * LATER_S), Paid(size=300)
    client, key = make_test_client(endpoint), uuid4().hex
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(make(_short(client, table, slow.call)), key)
        time.sleep(LATER_S)
        newer = make(_short(client, table, quick.call))(key)
        late.result()
    kept = make(_short(client, table, quick.call))(key)
    return Finding(kept == newer, "a late winner replaced a newer result")


def _short(client: DynamoDBClient, table: str, fetch: Callable[[], str]) -> Place:
    place = Place(client, table, fetch, time_left_ms=LEASE_MS)
    # Firstwrite is not told that it has so little time, for it would not begin; its lease is as short. Nor does it
    # begin where acquiring left less than the call's time-out, so that is far shorter, for machines under load.
    return with_policy(place, timeout_ms=LEASE_MS // 10, lease_ms=LEASE_MS, wait_ms=5_000)


def claim_race(shop: claim_contenders.Shop, endpoint: str, racers: int) -> tuple[Finding, int]:
    """Let so many claim a tenth as many units at once; return the finding and how many were granted."""
    item, stock = uuid4().hex, max(1, racers // 10)
    shop.create(item, stock)
    client = wide_client(endpoint)
    environments = [shop.environment(client) for _ in range(racers)]
    results = at_once([partial(claim, item, f"key-{n}") for n, claim in enumerate(environments)])
    # "Busy" decides nothing; a client repeats with the same key, and so do these, all who were told so at once.
    busy = [number for number, result in enumerate(results) if isinstance(result, BusyError)]
    if busy:
        again = at_once([partial(environments[number], item, f"key-{number}") for number in busy])
        results = [*(result for result in results if not isinstance(result, BusyError)), *again]
    granted = sum(isinstance(result, str) for result in results)
    errors = Counter(type(result).__name__ for result in results if isinstance(result, Exception))
    taken = shop.taken(item)
    right = granted == stock == taken and not errors
    seen = f"{granted} granted of {stock}" + "".join(f", {number} {name}" for name, number in errors.items())
    note = f"; of {racers:,}, {len(busy)} were told busy and decided on a repeat" if busy else ""
    return Finding(right, seen, note), granted


def claim_repeat(shop: claim_contenders.Shop, endpoint: str) -> Finding:
    """Claim twice with one key, one after the other."""
    item = uuid4().hex
    shop.create(item, 5)
    client = make_test_client(endpoint)
    first, second = shop.environment(client)(item, "key"), shop.environment(client)(item, "key")
    taken = shop.taken(item)
    return Finding(first == second and taken == 1, f"{taken} units taken")


def claim_twins(shop: claim_contenders.Shop, endpoint: str) -> Finding:
    """Claim again with the same key while the first is between two of its calls."""
    item = uuid4().hex
    shop.create(item, 5)
    slow = make_test_client(endpoint)
    slow.meta.events.register("after-call.dynamodb", lambda **_: time.sleep(0.2))
    first = shop.environment(slow)
    second = shop.environment(make_test_client(endpoint))

    def a_little_later() -> str | None:
        time.sleep(0.1)
        return second(item, "key")

    results = at_once([lambda: first(item, "key"), a_little_later])
    taken = shop.taken(item)
    wrong = [type(result).__name__ for result in results if not isinstance(result, str)]
    right = not wrong and results[0] == results[1] and taken == 1
    return Finding(right, f"one got {wrong[0]}" if wrong else f"{taken} units taken")


def claim_death(shop: claim_contenders.Shop, endpoint: str) -> Finding:
    """Let the claimer die after each of its calls, and repeat with the same key: one unit must be gone."""
    survivor = make_test_client(endpoint)
    for steps in range(1, MOST_STEPS):
        item = uuid4().hex
        shop.create(item, 5)
        try:
            shop.environment(Mortal(steps).client(endpoint), LEASE_MS)(item, "key")
        except DiedError:
            time.sleep(LATER_S)
            try:
                shop.environment(survivor)(item, "key")
            except Exception as error:  # noqa: BLE001 - what the repeat got
                return Finding(right=False, seen=f"after call {steps} the repeat got {type(error).__name__}")
            taken = shop.taken(item)
            if taken != 1:
                return Finding(right=False, seen=f"{taken} units taken after a death at call {steps}")
        else:
            break
    return Finding(right=True)
