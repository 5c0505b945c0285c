"""The DynamoDB client, plain Python values, and reads, under one retry policy.

The client itself never retries (`firstwrite.aws`); retries happen here, inside the caller's deadline, so that
`conditional` sees every reply. Backoff is full jitter ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer
from botocore.exceptions import ChecksumError, ClientError, HTTPClientError, IncompleteReadError
from botocore.parsers import ResponseParserError

from firstwrite.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from firstwrite.clock import Clock, Deadline
    from firstwrite.observability import Count

Item = dict[str, Any]
"""An item as plain values: str, int, bytes, bool, None, list, dict."""

Key = Mapping[str, str]

BACKOFF_BASE_MS = 20
BACKOFF_CAP_MS = 500

UNHEARD = (HTTPClientError, ChecksumError, IncompleteReadError, ResponseParserError)
"""No reply, or one that came in part: what became of the request is not known."""
_CONFLICT = {
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
    "ReplicatedWriteConflictException",
}
_THROTTLED = {
    "ThrottlingError",
    "ThrottlingException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
}
_UNREACHABLE = {"InternalServerError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException"}
_FIRST_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the protocols name it.

    Attributes:
        name: the physical name.
        label: the logical name, used in metrics.
        key_names: the key attributes.
    """

    name: str
    label: str
    key_names: tuple[str, ...]

    def key_of(self, item: Mapping[str, Any]) -> Key:
        """Return the key attributes of `item`."""
        return {name: item[name] for name in self.key_names}


class _PlainDeserializer(TypeDeserializer):
    """Integers and bytes as themselves instead of Decimal and Binary."""

    def _deserialize_n(self, value: str) -> Any:  # noqa: ANN401 - the base class is untyped
        return int(value) if value.lstrip("-").isdigit() else Decimal(value)

    def _deserialize_b(self, value: bytes) -> Any:  # noqa: ANN401 - the base class is untyped
        return bytes(value)


_serializer = TypeSerializer()
_deserializer = _PlainDeserializer()


def to_wire(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` as DynamoDB attribute values."""
    return {
        name: _serializer.serialize(Binary(value) if isinstance(value, bytes) else value)
        for name, value in values.items()
    }


def from_wire(attributes: Mapping[str, Any]) -> Item:
    """Return DynamoDB attribute values as plain values."""
    return {name: _deserializer.deserialize(value) for name, value in attributes.items()}


def cancellation_codes(error: ClientError) -> list[str]:
    """Return a cancelled transaction's reason codes, one a write, `None` where that write was not the cause."""
    reasons = cast("Any", error.response).get("CancellationReasons") or []
    return [str(reason.get("Code") or "None") for reason in reasons]


def transient_reason(error: Exception) -> str | None:
    """Return why trying again may help, or None where the answer is final.

    A transaction that names a conflict or a throttle beside a failed condition is not final: DynamoDB stops at the
    first cause it meets, and the failed condition may have been read beside a write that was then undone.
    """
    if isinstance(error, UNHEARD):
        return "unreachable"
    if not isinstance(error, ClientError):
        return None
    code = error.response["Error"].get("Code", "")
    codes = set(cancellation_codes(error)) if code == "TransactionCanceledException" else {code}
    if codes & _CONFLICT:
        return "conflict"
    if codes & _THROTTLED:
        return "throttled"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if codes & _UNREACHABLE or status >= _FIRST_SERVER_ERROR:
        return "unreachable"
    return None


class Dynamo:
    """Calls and reads of DynamoDB with bounded, jittered retries.

    Args:
        client: a client as `aws.dynamodb` makes it.
        clock: time for backoff.
        count: where retries are reported, by reason.
        uniform: source of jitter, `random.uniform` unless a test says otherwise.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        clock: Clock,
        count: Count,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client = client
        self._clock = clock
        self._count = count
        self._uniform = uniform

    def call(self, operation: str, deadline: Deadline, **request: Any) -> Any:  # noqa: ANN401 - a service reply
        """Call `operation` until it is answered or `deadline` leaves no room for another attempt.

        Args:
            operation: a client method's name, such as `update_item`.
            deadline: the first attempt is always made; no wait goes past this.
            request: the method's arguments.

        Raises:
            StoreUnavailableError: every attempt met a conflict, a throttle or silence. After silence
                (`unreachable`) a write may still have landed.
            ClientError: the answer was final, such as a failed condition.
        """
        method = getattr(self._client, operation)
        attempt = 0
        while True:
            try:
                return method(**request)
            except (ClientError, *UNHEARD) as error:
                reason = transient_reason(error)
                if reason is None:
                    raise
                if not self._wait(reason, attempt, deadline):
                    raise StoreUnavailableError(reason) from error
            attempt += 1

    def _wait(self, reason: str, attempt: int, deadline: Deadline) -> bool:
        """Back off before another attempt, with full jitter; False where the deadline leaves no room for one."""
        self._count("StoreRetries", reason=reason)
        wait_ms = self._uniform(0, min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2**attempt))
        if wait_ms >= deadline.left_ms():
            return False
        self._clock.sleep_ms(wait_ms)
        return True

    def get(self, table: Table, key: Key, deadline: Deadline, *, consistent: bool) -> Item | None:
        """Return the item at `key`, or None.

        Raises:
            StoreUnavailableError: there was no answer within the deadline.
        """
        reply = self.call("get_item", deadline, TableName=table.name, Key=to_wire(key), ConsistentRead=consistent)
        return from_wire(reply["Item"]) if "Item" in reply else None

    def get_many(self, table: Table, keys: Sequence[Key], deadline: Deadline) -> list[Item]:
        """Return the items that exist among `keys`, in any order, by strongly consistent reads.

        The reads are not one snapshot: each item was current at some instant of the call.

        Args:
            table: where to read.
            keys: at most 100.
            deadline: bounds the repeats that unprocessed keys need.

        Raises:
            StoreUnavailableError: there was no answer, or keys stayed unprocessed, at the deadline.
        """
        pending: Any = {table.name: {"Keys": [to_wire(key) for key in keys], "ConsistentRead": True}}
        items: list[Item] = []
        attempt = 0
        while True:
            reply = self.call("batch_get_item", deadline, RequestItems=pending)
            items += map(from_wire, reply["Responses"].get(table.name, ()))
            pending = reply.get("UnprocessedKeys")
            if not pending:
                return items
            if not self._wait("throttled", attempt, deadline):
                raise StoreUnavailableError("throttled")
            attempt += 1

    def query(self, deadline: Deadline, **request: Any) -> tuple[list[Item], Item | None]:  # noqa: ANN401 - a service request
        """Return one page of a query and the key to start the next one from."""
        reply = self.call("query", deadline, **request)
        last = reply.get("LastEvaluatedKey")
        return [from_wire(item) for item in reply["Items"]], from_wire(last) if last else None
