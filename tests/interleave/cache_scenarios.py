"""Races for the cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from firstwrite.cache.circuit import Circuit
from firstwrite.cache.memory import Memory
from firstwrite.cache.overflow import Overflow
from firstwrite.cache.paid_call import PaidCall
from firstwrite.cache.record import Answer, Flight, Policy
from firstwrite.cache.single_flight import Ask, FetchError, SingleFlight
from firstwrite.cache.sources import Source
from firstwrite.cache.spend import SpendGuard
from firstwrite.cache.store import CacheStore
from firstwrite.clock import Deadline
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from tests.interleave.cache_invariants import TABLE, CacheInvariants
from tests.interleave.explorer import ALL_FAULTS, DEATH, LOAD, NETWORK, STALL, Scenario
from tests.interleave.racer import Seat, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interleave.engine import Engine

KEY = "rates#key"
TIME_LEFT_MS = 600_000
TAKES_MS = 100
POLICY = Policy(name="rates", timeout_ms=150, lease_ms=300, wait_ms=200, cooldown_ms=1_000)
HASTY = replace(POLICY, wait_ms=90)
"""Looks once."""
STALES = replace(POLICY, stale_ms=3_600_000)
ASKS_AN_OPERATOR = replace(POLICY, on_unknown="fail")


class Machine:
    """One process of the cache function, at a seat."""

    def __init__(self, client: Any, seat: Seat) -> None:
        self.seat = seat
        dynamo = Dynamo(client, seat, nothing, _longest)
        self.conditional = Conditional(dynamo, nothing)
        self.dynamo = dynamo
        overflow = Overflow(lambda: None, "bucket")  # type: ignore[arg-type, return-value]
        self.store = CacheStore(dynamo, self.conditional, seat, TABLE, overflow)
        self.flights = SingleFlight(self.store, seat, nothing, Memory(seat), _longest)

    def fetch(self, flight: Flight) -> Answer:
        """Make the paid call."""
        number = self.seat.call("send", flight)
        match self.seat.call("receive", (number, TAKES_MS)):
            case "fails":
                raise FetchError("failed")
            case "times-out":
                raise FetchError("timeout", ambiguous=True)
        return Answer(200, "text/plain", str(number).encode())

    def ask(
        self, policy: Policy, key: str = KEY, fetch: Callable[[Flight], Answer] | None = None, **options: Any
    ) -> Any:
        """Ask for a key, telling the invariants."""
        self.seat.note("asks", (key, options.get("renew", False)))
        self.seat.slept_ms = 0
        deadline = Deadline.after(self.seat, TIME_LEFT_MS)
        outcome = self.flights.get(Ask(key, policy, fetch or self.fetch, deadline, **options))
        self.seat.note("is answered", (outcome, self.seat.slept_ms))
        return outcome


def _longest(_: float, most: float) -> float:
    return most


def asks(policy: Policy = POLICY, times: int = 1, **options: Any) -> Callable[[Seat], None]:
    """Return a racer that asks for the key."""

    def script(seat: Seat) -> None:
        machine = Machine(seat, seat)
        for _ in range(times):
            machine.ask(policy, **options)

    return script


def refreshes(policy: Policy) -> Callable[[Seat], None]:
    """Return a racer that is served what is stale and renews it afterwards, as the background does."""

    def script(seat: Seat) -> None:
        machine = Machine(seat, seat)
        later: list[int] = []
        machine.ask(policy, renew_later=lambda: later.append(1))
        if later:
            machine.ask(policy, in_background=True)

    return script


def invalidates(seat: Seat) -> None:
    """Drop the key."""
    Machine(seat, seat).store.invalidate(KEY, Deadline.after(seat, TIME_LEFT_MS))


def empty(engine: Engine, _: Seat) -> None:
    """Begin with an empty table."""
    engine.create_table(TableName=TABLE, KeySchema=[{"AttributeName": "pk"}])


def holding(policy: Policy, age_ms: int) -> Callable[[Engine, Seat], None]:
    """Begin with a result, fetched by call 0 some time ago."""

    def setup(engine: Engine, seat: Seat) -> None:
        empty(engine, seat)
        then = Seat("S", (), (), seat.now_ms() - age_ms)
        store = Machine(engine, then).store
        deadline = Deadline.after(then, TIME_LEFT_MS)
        flight = store.acquire(KEY, "S", policy, deadline)
        assert isinstance(flight, Flight)
        store.complete(flight, Answer(200, "text/plain", b"0"), policy, TAKES_MS, deadline)

    return setup


def _paid(machine: Machine, limit: int | None = None, circuit_ms: int = 0) -> Callable[[Flight], Answer]:
    """Return what makes the paid call if the budget and the circuit allow it."""

    class Upstream:
        @staticmethod
        def fetch(_: Source, __: object, flight: Flight) -> Answer:
            return machine.fetch(flight)

    circuit = Circuit(machine.dynamo, machine.conditional, machine.seat, TABLE)
    spend = SpendGuard(machine.conditional, machine.seat, TABLE)
    paid = PaidCall(Upstream(), spend, circuit, machine.seat, nothing)  # type: ignore[arg-type]
    source = Source(
        "rates", (), POLICY, timeout_ms=POLICY.timeout_ms, max_calls_per_minute=limit, circuit_ms=circuit_ms
    )
    return lambda flight: paid.make(source, {}, flight)


def spends(key: str) -> Callable[[Seat], None]:
    """Return a racer that asks for a key of a source with a budget of one call a minute."""

    def script(seat: Seat) -> None:
        machine = Machine(seat, seat)
        machine.ask(POLICY, key, _paid(machine, limit=1))

    return script


CIRCUIT_MS = 1_000


def probes(key: str) -> Callable[[Seat], None]:
    """Return a racer that asks for a key of a source whose circuit is open."""

    def script(seat: Seat) -> None:
        machine = Machine(seat, seat)
        machine.ask(POLICY, key, _paid(machine, circuit_ms=CIRCUIT_MS))

    return script


def open_circuit(engine: Engine, seat: Seat) -> None:
    """Begin with a circuit that was opened, and may be tried now."""
    empty(engine, seat)
    machine = Machine(engine, seat)
    circuit = Circuit(machine.dynamo, machine.conditional, seat, TABLE)
    for _ in range(5):
        circuit.failed("rates", 0, Deadline.after(seat, TIME_LEFT_MS))


def all_scenarios() -> list[Scenario]:
    """Return the races for the cache."""
    rules = CacheInvariants(POLICY)
    return [
        Scenario(
            "cache-two",
            "two ask for one key",
            {"A": asks(), "B": asks()},
            empty,
            rules,
            after=asks(),
        ),
        Scenario(
            "cache-two-faults",
            "two ask for one key, and two things go wrong",
            {"A": asks(HASTY), "B": asks(HASTY)},
            empty,
            CacheInvariants(HASTY),
            faults=frozenset({"dies", "clock", "fails", "lost-reply"}),
            budget=2,
            after=asks(),
        ),
        Scenario(
            "cache-three",
            "three ask for one key",
            {"A": asks(HASTY), "B": asks(HASTY), "C": asks(HASTY)},
            empty,
            CacheInvariants(HASTY),
            faults=frozenset({"dies", "clock", "fails"}),
            after=asks(),
        ),
        Scenario(
            "cache-invalidate",
            "two ask while an operator drops the key",
            {"A": asks(HASTY), "B": asks(HASTY), "C": invalidates},
            empty,
            CacheInvariants(HASTY),
            faults=frozenset({"dies", "clock", "lost-reply"}),
            after=asks(),
        ),
        Scenario(
            "cache-invalidate-result",
            "a result stands; one wants a new one, one asks, an operator drops the key",
            {"A": asks(HASTY, renew=True), "B": asks(HASTY), "C": invalidates},
            holding(HASTY, 1_000),
            CacheInvariants(HASTY),
            after=asks(),
        ),
        Scenario(
            "cache-renew",
            "two want a new result where a fresh one stands",
            {"A": asks(renew=True), "B": asks(renew=True)},
            holding(POLICY, 1_000),
            rules,
            after=asks(),
        ),
        Scenario(
            "cache-stale",
            "two find a stale result and renew it in the background",
            {"A": refreshes(STALES), "B": refreshes(STALES)},
            holding(STALES, 61_000),
            CacheInvariants(STALES),
            after=asks(STALES),
        ),
        Scenario(
            "cache-stale-fetch",
            "two find a stale result, one renews it in the background, one while it waits",
            {"A": refreshes(STALES), "B": asks(STALES)},
            holding(STALES, 61_000),
            CacheInvariants(STALES),
            after=asks(STALES),
        ),
        Scenario(
            "cache-unknown",
            "two ask for a key whose call is never to be repeated",
            {"A": asks(ASKS_AN_OPERATOR), "B": asks(ASKS_AN_OPERATOR)},
            empty,
            CacheInvariants(ASKS_AN_OPERATOR),
            after=asks(ASKS_AN_OPERATOR),
        ),
        Scenario(
            "cache-spend",
            "two keys, a budget of one call a minute",
            {"A": spends("rates#a"), "B": spends("rates#b")},
            empty,
            CacheInvariants(POLICY, limit=1),
            faults=NETWORK | LOAD | DEATH,
        ),
        Scenario(
            "cache-circuit",
            "two keys, a circuit that may be tried",
            {"A": probes("rates#a"), "B": probes("rates#b")},
            open_circuit,
            CacheInvariants(POLICY, circuit="circuit#rates"),
            # Without `clock`: whoever stalls before its call goes out makes it late, and no condition can see that.
            faults=ALL_FAULTS - STALL,
        ),
    ]
