"""Single flight inside your own function, over the same protocol and table as the HTTP face.

    from firstwrite.cache import single_flight

    @single_flight("rates", fresh_seconds=60)
    def rates(base: str, symbol: str) -> dict[str, float]:
        return paid_api.latest(base, symbol)

Arguments must be JSON values; they and the name are the key. Results may be bytes, text or JSON values, falsy ones and
None included, and come back as JSON keeps them: a tuple as a list.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast

from firstwrite import aws
from firstwrite.cache.fetchers import as_answer
from firstwrite.cache.memory import Memory
from firstwrite.cache.overflow import Overflow
from firstwrite.cache.record import Policy
from firstwrite.cache.single_flight import Ask, Failed, InProgress, Outcome, SingleFlight
from firstwrite.cache.sources import record_key
from firstwrite.cache.store import CacheStore
from firstwrite.clock import Clock, Deadline, SystemClock
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from firstwrite.errors import FirstwriteError
from firstwrite.observability import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstwrite.cache.record import Answer, Flight

P = ParamSpec("P")
R = TypeVar("R")
HEADROOM_MS = 1_000


class FetchInProgressError(FirstwriteError):
    """Another caller is fetching, and the wait ended before it was done.

    Attributes:
        retry_after_ms: when trying again makes sense.
    """

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the value is being fetched; try again in {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms


class FetchFailedError(FirstwriteError):
    """Another caller's fetch failed a moment ago; its own caller saw the exception itself.

    Attributes:
        kind: what became of it: `failed` or `unknown`.
        retry_after_ms: when trying again makes sense, None where only an operator can help.
    """

    def __init__(self, kind: str, retry_after_ms: int | None) -> None:
        super().__init__(f"the fetch ended as {kind}")
        self.kind = kind
        self.retry_after_ms = retry_after_ms


def single_flight(
    name: str,
    *,
    fresh_seconds: float = 60,
    stale_seconds: float = 0,
    timeout_seconds: float = 5,
    lease_seconds: float = 8,
    wait_seconds: float = 10,
    cooldown_seconds: float = 2,
    on_unknown: Literal["retry", "fail"] = "retry",
    memory_seconds: float = 0,
    time_left_ms: Callable[[], float] | None = None,
    flights: Flights | None = None,
    clock: Clock | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let one of all who call the function at once with equal arguments run it, and give the others its result.

    Args:
        name: the source in keys and metrics; functions that share it share their results.
        fresh_seconds: how long a result is served without running the function.
        stale_seconds: how long after that it is served while one caller renews it, or when that fails.
        timeout_seconds: how long the function may take; it must keep to this by itself.
        lease_seconds: how long a caller that dies keeps the others waiting; more than `timeout_seconds`.
        wait_seconds: how long the others wait.
        cooldown_seconds: how long a failure is shared.
        on_unknown: what a caller that died means: `retry`, or `fail` until an operator clears the key.
        memory_seconds: how long a process may serve a result from its own memory.
        time_left_ms: how long the calling Lambda invocation has, such as the context's
            `get_remaining_time_in_millis`; without it, the time that wait and function may take.
        flights: the protocol to use; by default one over the table and bucket that the environment variables
            `CACHE_TABLE` and `OVERFLOW_BUCKET` name.
        clock: time, for tests.

    Raises:
        ValueError: `lease_seconds` is not more than `timeout_seconds`.
    """
    if lease_seconds <= timeout_seconds:
        raise ValueError("lease_seconds must be greater than timeout_seconds")
    clock = clock or SystemClock()
    policy = Policy(
        name=name,
        timeout_ms=round(timeout_seconds * 1000),
        lease_ms=round(lease_seconds * 1000),
        wait_ms=round(wait_seconds * 1000),
        fresh_ms=round(fresh_seconds * 1000),
        stale_ms=round(stale_seconds * 1000),
        cooldown_ms=round(cooldown_seconds * 1000),
        on_unknown=on_unknown,
        memory_ms=round(memory_seconds * 1000),
    )

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()

            def fetch(_: Flight) -> Answer:
                return as_answer(function(*args, **kwargs))

            left_ms = time_left_ms() if time_left_ms else policy.wait_ms + policy.timeout_ms + HEADROOM_MS
            key = record_key(name, bound.arguments)
            outcome = (flights or _own_flights()).get(Ask(key, policy, fetch, Deadline.after(clock, left_ms)))
            match outcome:
                case InProgress(retry_after_ms):
                    raise FetchInProgressError(retry_after_ms)
                case Failed(kind, retry_after_ms):
                    raise FetchFailedError(kind, retry_after_ms)
            return cast("R", _result(outcome.stored.answer))

        return call

    return decorate


class Flights(Protocol):
    """What answers."""

    def get(self, ask: Ask) -> Outcome:
        """Return the answer to `ask`."""
        ...


class _OwnFlights:
    """The protocol over the table of this function's environment; writes metrics if it has a namespace for them."""

    def __init__(self) -> None:
        self._counters, clock = Counters(), SystemClock()
        count = self._counters.count
        dynamo = Dynamo(aws.dynamodb(), clock, count)
        overflow = Overflow(aws.s3, os.environ.get("OVERFLOW_BUCKET", ""))
        store = CacheStore(dynamo, Conditional(dynamo, count), clock, os.environ["CACHE_TABLE"], overflow)
        self._flights = SingleFlight(store, clock, count, Memory(clock))

    def get(self, ask: Ask) -> Outcome:
        try:
            return self._flights.get(ask)
        finally:
            if "POWERTOOLS_METRICS_NAMESPACE" in os.environ:
                self._counters.flush()


@functools.cache
def _own_flights() -> _OwnFlights:
    return _OwnFlights()


def _result(answer: Answer) -> Any:  # noqa: ANN401 - whatever the function returned
    if answer.content_type == "application/octet-stream":
        return answer.body
    if answer.content_type.startswith("text/plain"):
        return answer.body.decode()
    return json.loads(answer.body)
