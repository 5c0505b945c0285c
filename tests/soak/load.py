"""The mixed load: what clients do, drawn from a seeded random."""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.soak.client import Client, History
from tests.soak.history import Item, Kind, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CLIENTS = 10
CLAIMANTS = 4
NEWCOMERS_S = 5.0
SLOT_S = 15.0
"""After so long the crowd moves on to the next item in demand."""
COMMON_S = 0.7
IN_DEMAND, FOR_QUEUE = 50, 60
HOLD_S = 2
REPEATED = frozenset({"claim", "queue", "adjust", "confirm", "release"})


@dataclass(frozen=True, slots=True)
class Value:
    """A cached value that is asked for again and again.

    Attributes:
        dropped: operators drop it now and then.
        renewed: clients ask for it with `no-cache` now and then.
    """

    source: str
    id: str
    latency_ms: int
    status: int = 200
    size: int = 200
    dropped: bool = False
    renewed: bool = False

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """What the source is asked with; the id first, as a log shows it."""
        told = {"id": self.id, "latency_ms": self.latency_ms, "status": self.status, "size": self.size}
        return tuple((name, str(value)) for name, value in told.items())


class Plan:
    """The items and values of one soak.

    Args:
        name: tells this soak's items from others'.
        seconds: how long the load lasts.
    """

    def __init__(self, name: str, seconds: float) -> None:
        slots = range(max(1, round(seconds / SLOT_S)))
        self.plenty = Item(f"{name}-plenty", 1_000_000, 8)
        self.held = Item(f"{name}-held", 30, 3, hold_s=HOLD_S)
        self.limited = Item(f"{name}-limited", 100_000, 4, limit=3)
        self.limited_held = Item(f"{name}-limited-held", 100_000, 4, limit=3, hold_s=HOLD_S)
        self.moving = Item(f"{name}-moving", 40, 4)
        self.in_demand = [Item(f"{name}-demand-{slot}", IN_DEMAND, 6, sells_out=True) for slot in slots]
        self.for_queue = [Item(f"{name}-queue-{slot}", FOR_QUEUE, 3) for slot in slots]
        self.values = [
            Value("quick", f"{name}-quick-a", 100),
            Value("quick", f"{name}-quick-b", 20),
            Value("quick", f"{name}-quick-dropped", 300, dropped=True),
            Value("quick", f"{name}-quick-renewed", 60, renewed=True),
            Value("quick", f"{name}-quick-missing", 20, status=404),
            Value("quick", f"{name}-quick-broken", 20, status=500),
            Value("quick", f"{name}-quick-large", 20, size=150_000),
            Value("stale", f"{name}-stale-a", 150),
            Value("stale", f"{name}-stale-dropped", 300, dropped=True),
            *(Value("lasting", f"{name}-lasting-{number}", 100) for number in range(4)),
            Value("careful", f"{name}-careful-a", 50),
            Value("careful", f"{name}-careful-dropped", 50, dropped=True),
        ]

    @property
    def items(self) -> Mapping[str, Item]:
        """All items, by name."""
        alone = (self.plenty, self.held, self.limited, self.limited_held, self.moving)
        return {item.name: item for item in (*alone, *self.in_demand, *self.for_queue)}


class Load:
    """Clients that do this and that until time is up.

    Args:
        url: of the API.
        plan: items and values.
        seconds: how long.
        seed: of every client's random.
    """

    def __init__(self, url: str, plan: Plan, seconds: float, seed: int) -> None:
        self._url = url
        self._plan = plan
        self._seconds = seconds
        self._seed = seed
        self._began = time.monotonic()
        self._holds: deque[Request] = deque(maxlen=40)
        self.history = History()

    def run(self) -> None:
        """Run all clients to their end."""
        self._began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as threads:
            for done in [threads.submit(self._run_client, number) for number in range(CLIENTS)]:
                done.result()

    def _run_client(self, number: int) -> None:
        rng = random.Random(f"{self._seed}/{number}")
        client = Client(self._url, self.history, rng)
        acts: Sequence[tuple[float, Callable[[Client, random.Random, str], None]]] = (
            (3, self._fetch),
            (1.5, self._claim_in_demand),
            (1, self._claim_plenty),
            (1.5, self._hold),
            (1, self._settle),
            (1.5, self._claim_limited),
            (1, self._queue),
            (0.5, self._claim_moving),
            (0.3, self._adjust),
            (0.3, self._look),
            (2, self._repeat),
        )
        turn = 0
        while time.monotonic() < self._began + self._seconds:
            turn += 1
            [act] = rng.choices([act for _, act in acts], [weight for weight, _ in acts])
            act(client, rng, f"{number}-{turn}")
        client.close()

    def _slot(self, items: Sequence[Item]) -> Item:
        return items[min(int((time.monotonic() - self._began) / SLOT_S), len(items) - 1)]

    def _fetch(self, client: Client, rng: random.Random, _: str) -> None:
        values = self._plan.values
        # Half of them ask for the same, so that there are races for it.
        common = values[int((time.monotonic() - self._began) / COMMON_S) % len(values)]
        value = rng.choice([common, rng.choice(values)])
        ask = Request("fetch", value.id, source=value.source, query=value.query)
        odds = rng.random()
        if value.dropped and odds < 0.2:
            client.ask(Request("drop", value.id, source=value.source, query=value.query))
        elif value.renewed and odds < 0.2:
            client.ask(Request("renew", value.id, source=value.source, query=value.query))
        elif client.ask(ask).problem == "outcome-unknown" and rng.random() < 0.3:
            client.ask(Request("drop", value.id, source=value.source, query=value.query))

    def _claim(self, client: Client, rng: random.Random, turn: str, item: Item, quantity: int = 1) -> None:
        # New ones come all the time, and race for what they may have.
        newcomers = int((time.monotonic() - self._began) / NEWCOMERS_S)
        caller, claimant = f"caller-{rng.randrange(3)}", f"claimant-{newcomers}-{rng.randrange(CLAIMANTS)}"
        request = Request("claim", item.name, caller, f"key-{turn}", claimant, quantity)
        claim = client.ask(request).body
        if claim.get("state") == "held":
            self._holds.append(Request("read", item.name, caller, claim_id=claim["claim_id"]))

    def _claim_in_demand(self, client: Client, rng: random.Random, turn: str) -> None:
        self._claim(client, rng, turn, self._slot(self._plan.in_demand))

    def _claim_plenty(self, client: Client, rng: random.Random, turn: str) -> None:
        self._claim(client, rng, turn, self._plan.plenty, rng.randint(1, 3))

    def _hold(self, client: Client, rng: random.Random, turn: str) -> None:
        self._claim(client, rng, turn, self._plan.held, rng.randint(1, 2))

    def _claim_limited(self, client: Client, rng: random.Random, turn: str) -> None:
        self._claim(client, rng, turn, rng.choice([self._plan.limited, self._plan.limited_held]), rng.randint(1, 2))

    def _claim_moving(self, client: Client, rng: random.Random, turn: str) -> None:
        self._claim(client, rng, turn, self._plan.moving, rng.randint(1, 4))

    def _settle(self, client: Client, rng: random.Random, _: str) -> None:
        """Confirm, release or read some hold, which others may be at too, or which may be over."""
        if self._holds:
            hold = rng.choice(list(self._holds))
            kinds: Sequence[Kind] = ("confirm", "release", "release", "release", "read")
            client.ask(Request(rng.choice(kinds), hold.of, hold.caller, claim_id=hold.claim_id))

    def _queue(self, client: Client, rng: random.Random, turn: str) -> None:
        item = self._slot(self._plan.for_queue)
        request = Request("queue", item.name, "caller-q", f"key-{turn}", f"claimant-{rng.randrange(CLAIMANTS)}")
        claim = client.ask(request).body
        odds = rng.random()
        if odds < 0.2:  # out of patience
            client.ask(replace(request, kind="claim"))
        elif claim and odds < 0.6:
            client.ask(Request("read", item.name, "caller-q", claim_id=claim["claim_id"]))

    def _adjust(self, client: Client, rng: random.Random, turn: str) -> None:
        item = rng.choice([self._plan.moving, self._plan.held])
        client.ask(Request("adjust", item.name, key=f"key-{turn}", quantity=rng.choice([-7, -3, 4, 9])))

    def _look(self, client: Client, rng: random.Random, _: str) -> None:
        kinds: Sequence[Kind] = ("item", "audit")
        client.ask(Request(rng.choice(kinds), rng.choice(list(self._plan.items))))

    def _repeat(self, client: Client, rng: random.Random, _: str) -> None:
        """Send what somebody is just asking, or asked long ago."""
        begun, asked = list(self.history.begun), self.history.asked
        request = rng.choice(asked).request if asked and rng.random() < 0.5 else rng.choice([*begun, None])
        if request and request.kind in REPEATED:
            client.ask(request)
