"""One paid call, with what may forbid it: the source's budget for the minute, and its circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstwrite.cache.single_flight import STORE_DEADLINE_MS, FetchError
from firstwrite.clock import Deadline
from firstwrite.observability import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.cache.circuit import Circuit
    from firstwrite.cache.record import Answer, Flight
    from firstwrite.cache.sources import Source
    from firstwrite.cache.spend import SpendGuard
    from firstwrite.cache.upstream import Upstream
    from firstwrite.clock import Clock
    from firstwrite.observability import Count


class PaidCall:
    """Makes calls that are allowed, and tells what became of them.

    Args:
        upstream: calls over HTTP.
        spend: the budget.
        circuit: whether the source is worth a try.
        clock: time.
        count: told of `UpstreamCalls`, `UpstreamFailures`, `SpendLimitReached` and `CircuitOpen`.
    """

    def __init__(self, upstream: Upstream, spend: SpendGuard, circuit: Circuit, clock: Clock, count: Count) -> None:
        self._upstream = upstream
        self._spend = spend
        self._circuit = circuit
        self._clock = clock
        self._count = count

    def make(self, source: Source, params: Mapping[str, Any], flight: Flight) -> Answer:
        """Call `source` for `params`.

        Raises:
            FetchError: the call was refused here, or did not produce an answer.
            Exception: what the source's own fetcher raised.
        """
        self._ask_to_call(source)
        left_ms = flight.lease_until - self._clock.now_ms()
        if left_ms < source.timeout_ms:
            # Acquiring took so long that somebody may take over during the call; better to let them.
            raise FetchError("failed", refused=True)
        self._count("UpstreamCalls", source=source.name)
        started_ms = self._clock.elapsed_ms()
        try:
            if source.fetcher:
                answer = source.fetcher.fetch(params, Deadline.after(self._clock, source.timeout_ms))
            else:
                answer = self._upstream.fetch(source, params, flight)
        except BaseException:
            self._log(source, "failed", started_ms)
            self._count("UpstreamFailures", source=source.name)
            if source.circuit_ms:
                self._circuit.failed(source.name, source.circuit_ms, self._deadline())
            raise
        self._log(source, "answered", started_ms)
        if source.circuit_ms:
            self._circuit.succeeded(source.name, self._deadline())
        return answer

    def _log(self, source: Source, result: str, started_ms: float) -> None:
        """Write what the saved query for slow upstreams reads."""
        took_ms = round(self._clock.elapsed_ms() - started_ms)
        logger.info("paid call", extra={"source": source.name, "result": result, "took_ms": took_ms})

    def _ask_to_call(self, source: Source) -> None:
        if source.circuit_ms:
            wait_ms = self._circuit.closed_in_ms(source.name, source.circuit_ms, self._deadline())
            if wait_ms:
                self._count("CircuitOpen", source=source.name)
                raise FetchError("failed", retry_after_ms=wait_ms, refused=True)
        if source.max_calls_per_minute is not None:
            wait_ms = self._spend.take(source.name, source.max_calls_per_minute, self._deadline())
            if wait_ms:
                self._count("SpendLimitReached", source=source.name)
                raise FetchError("spend-limit", retry_after_ms=wait_ms, refused=True)

    def _deadline(self) -> Deadline:
        return Deadline.after(self._clock, STORE_DEADLINE_MS)
