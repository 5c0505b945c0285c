"""Counts what a client really sends: hooks on botocore, so that every contender is metered in the same way.

Units need the sizes of the items that a call met and left. Where `exact` is asked for, each is read before and after
by another client that nobody meters; that is right only while nothing else writes, and slow, so races go without.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import boto3

from bench.units import Cost, item_bytes, read_units, write_units
from tests.support.engine import make_test_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

_KEY_NAMES = ("pk", "sk")
_WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
_FIRST_ERROR = 300


class Meter:
    """A client of an engine, and what went through it since the last `reset`.

    Args:
        endpoint: the engine.
        exact: count units, by looking at the items.
        client: what to meter; a new client of the engine where None.
    """

    def __init__(self, endpoint: str, *, exact: bool = False, client: DynamoDBClient | None = None) -> None:
        self.client = client or make_test_client(endpoint)
        self.cost = Cost()
        self.operations: list[str] = []
        self._observer = make_test_client(endpoint) if exact else None
        self._lock = threading.Lock()
        events = self.client.meta.events
        events.register("provide-client-params.dynamodb", self._before)
        events.register("before-call.dynamodb", self._sent)
        events.register("after-call.dynamodb", self._after)

    def reset(self) -> None:
        """Begin again."""
        with self._lock:
            self.cost, self.operations = Cost(), []

    def of(self, actions: list[Callable[[], object]]) -> Cost:
        """Return what one of `actions`, run one after another, costs on average."""
        self.reset()
        for action in actions:
            action()
        return self.cost.over(len(actions))

    def _before(self, params: dict[str, Any], model: Any, context: Any, **_: object) -> Any:  # noqa: ANN401 - botocore's
        if self._observer is None:
            return None
        touched = _touched(model.name, params)
        context["touched"], context["before"] = touched, [self._size(table, key) for table, key in touched]
        context["consistent"] = _is_consistent(params)
        return {**params, "ReturnConsumedCapacity": "TOTAL"} if model.name in _WRITES else None

    def _sent(self, model: Any, params: dict[str, Any], **_: object) -> None:  # noqa: ANN401 - botocore's
        body = params["body"]
        with self._lock:
            self.operations.append(model.name)
            self.cost.round_trips += 1
            self.cost.writes += model.name in _WRITES
            self.cost.consistent_reads += b'"ConsistentRead": true' in body
            self.cost.stock_writes += _writes_to_stock(model.name, body)
            self.cost.request_bytes += len(body)

    def _after(self, http_response: Any, parsed: dict[str, Any], model: Any, context: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        with self._lock:
            self.cost.reply_bytes += len(http_response.content)
        if self._observer is None:
            return
        before: list[int] = context["before"]
        if model.name not in _WRITES:
            self.cost.read_units += sum(read_units(size, consistent=context["consistent"]) for size in before)
            return
        failed = http_response.status_code >= _FIRST_ERROR
        after = before if failed else [self._size(table, key) for table, key in context["touched"]]
        transactional = model.name == "TransactWriteItems"
        units = sum(
            write_units(met, left, transactional=transactional) for met, left in zip(before, after, strict=True)
        )
        self.cost.write_units += units
        if not failed:  # the engine reports nothing beside an error
            self.cost.checked_write_units += units
            self.cost.reported_write_units += _reported(parsed)

    def _size(self, table: str, key: dict[str, Any]) -> int:
        assert self._observer is not None  # noqa: S101 - for the type checker
        found = self._observer.get_item(TableName=table, Key=key, ConsistentRead=True)
        return item_bytes(found["Item"]) if "Item" in found else 0


class S3Meter:
    """Counts requests to S3 of all clients that are made after it."""

    def __init__(self) -> None:
        self.gets = self.puts = 0
        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        boto3.DEFAULT_SESSION.events.register("before-call.s3", self._sent)  # type: ignore[union-attr]

    def _sent(self, model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        self.gets += model.name == "GetObject"
        self.puts += model.name == "PutObject"


def _writes_to_stock(operation: str, body: bytes) -> int:
    return body.count(b'"sk": {"S": "stock"}') if operation in _WRITES else 0


def _is_consistent(params: dict[str, Any]) -> bool:
    if "RequestItems" in params:
        return all(part.get("ConsistentRead", False) for part in params["RequestItems"].values())
    return bool(params.get("ConsistentRead", False))


def _touched(operation: str, params: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the table and key of each item a call reads or writes."""
    match operation:
        case "BatchGetItem":
            return [(table, key) for table, part in params["RequestItems"].items() for key in part["Keys"]]
        case "TransactWriteItems":
            parts = [part for entry in params["TransactItems"] for part in entry.values()]
            return [(part["TableName"], _key_of(part)) for part in parts]
        case "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem":
            return [(params["TableName"], _key_of(params))]
        case _:
            raise ValueError(f"no rule for {operation}")


def _key_of(part: dict[str, Any]) -> dict[str, Any]:
    if "Key" in part:
        key: dict[str, Any] = part["Key"]
        return key
    return {name: part["Item"][name] for name in _KEY_NAMES if name in part["Item"]}


def _reported(parsed: dict[str, Any]) -> float:
    capacity = parsed.get("ConsumedCapacity", [])
    return sum(float(part["CapacityUnits"]) for part in (capacity if isinstance(capacity, list) else [capacity]))
