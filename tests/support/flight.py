"""Single flight without Lambda: a caller's process over a shared table, and a paid API that takes its time."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from firstwrite.cache.memory import Memory
from firstwrite.cache.overflow import Overflow
from firstwrite.cache.record import Answer, Policy
from firstwrite.cache.single_flight import Ask, SingleFlight
from firstwrite.cache.store import CacheStore
from firstwrite.clock import Deadline
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from tests.support.clocks import Tally
from tests.support.faults import FaultyClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstwrite.cache.record import Flight
    from tests.support.clocks import FakeClock

POLICY = Policy(name="rates", lease_ms=2_000, timeout_ms=1_000, wait_ms=10_000)


class Bucket:
    """An overflow bucket in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_object(self, *, Key: str, Body: bytes, **_: str) -> None:
        self.objects[Key] = Body

    def get_object(self, *, Key: str, **_: str) -> dict[str, Any]:
        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "injected"}}, "GetObject")
        return {"Body": BytesIO(self.objects[Key])}


class Machine:
    """One caller's process: its own clock, client and protocol objects over a shared table."""

    def __init__(self, client: Any, table: str, clock: Any) -> None:
        self.clock = clock
        self.tally = Tally()
        self.client = client if isinstance(client, FaultyClient) else FaultyClient(client)
        dynamo = Dynamo(self.client, clock, self.tally)  # type: ignore[arg-type]
        self.bucket = Bucket()
        overflow = Overflow(lambda: self.bucket, "bucket")  # type: ignore[arg-type, return-value]
        self.store = CacheStore(dynamo, Conditional(dynamo, self.tally), clock, table, overflow)
        self.flights = SingleFlight(self.store, clock, self.tally, Memory(clock))

    def get(self, key: str, fetch: Callable[[Flight], Answer], policy: Policy = POLICY, **options: Any) -> Any:
        deadline = Deadline.after(self.clock, options.pop("time_left_ms", 28_000))
        return self.flights.get(Ask(key, policy, fetch, deadline, **options))

    def acquire(self, key: str, owner: str, policy: Policy = POLICY) -> Any:
        return self.store.acquire(key, owner, policy, Deadline.after(self.clock, 1_000))


class Upstream:
    """The paid API: counts its calls, takes its time, answers or fails as told."""

    def __init__(self, clock: FakeClock, *answers: bytes | Exception, takes_ms: float = 300) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.takes_ms = takes_ms
        self.flights: list[Flight] = []

    def __call__(self, flight: Flight) -> Answer:
        self.flights.append(flight)
        self.clock.advance(self.takes_ms)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Answer(200, "text/plain", answer)
