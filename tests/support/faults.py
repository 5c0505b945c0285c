"""Faults injected at the client: what no emulator produces, and DynamoDB does."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fault = Callable[[Callable[[], Any]], Any]


def conflict(_: Callable[[], Any]) -> Any:
    """Refuse as DynamoDB does when transactions meet on an item; nothing is written."""
    raise ClientError({"Error": {"Code": "TransactionConflictException", "Message": "injected"}}, "Injected")


def throttle(_: Callable[[], Any]) -> Any:
    """Refuse as DynamoDB does when a partition is hot; nothing is written."""
    raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException", "Message": "injected"}}, "Injected")


def lose_reply(call: Callable[[], Any]) -> Any:
    """Let the request take effect and lose the answer."""
    call()
    raise ReadTimeoutError(endpoint_url="injected")


def lose_request(_: Callable[[], Any]) -> Any:
    """Lose the request before it takes effect."""
    raise ReadTimeoutError(endpoint_url="injected")


def cancel(*codes: str) -> Fault:
    """Return a fault that cancels a transaction with one reason code a write."""

    def fault(_: Callable[[], Any]) -> Any:
        response: Any = {
            "Error": {"Code": "TransactionCanceledException", "Message": "injected"},
            "CancellationReasons": [{"Code": code, "Message": "injected"} for code in codes],
        }
        raise ClientError(response, "TransactWriteItems")

    return fault


class FaultyClient:
    """A client that fails as scripted: for each operation, the faults its next calls meet, then none.

    Args:
        client: what really answers.
        script: operation name to faults, None for a call that goes well.
        often: a fault and its share of all calls, drawn at random with a fixed seed.
    """

    def __init__(
        self,
        client: Any,
        script: dict[str, Iterable[Fault | None]] | None = None,
        often: tuple[Fault, float] | None = None,
        only: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._script = {operation: list(faults) for operation, faults in (script or {}).items()}
        self._often = often
        self._only = only
        self._random = random.Random(7)
        self._lock = threading.Lock()
        self.calls: list[str] = []

    def meet(self, script: Mapping[str, Iterable[Fault | None]]) -> None:
        """Replace the script: what the next calls meet; nothing where it is empty."""
        with self._lock:
            self._script = {operation: list(faults) for operation, faults in script.items()}

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)

        def call(**request: Any) -> Any:
            with self._lock:
                self.calls.append(operation)
                fault = self._next_fault(operation)
            return fault(lambda: method(**request)) if fault else method(**request)

        return call

    def _next_fault(self, operation: str) -> Any:
        scripted = self._script.get(operation)
        if scripted:
            return scripted.pop(0)
        if self._often and self._random.random() < self._often[1] and (not self._only or operation in self._only):
            return self._often[0]
        return None
