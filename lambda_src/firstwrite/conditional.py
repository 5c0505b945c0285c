"""The one place that writes on a condition.

Guarantees, for every write and transaction made here:

- The rule is in the write. Whoever loses a race learns it as a value, `Rejected`, with the item that won,
  from the same round trip.
- A write whose reply was lost is recognised: each carries a fresh `write_id`, and a rejection by an item that bears
  it is this caller's own earlier success, `Applied`.
- `Busy` (conflict, throttle, silence) is a third outcome and never looks like a rejection.

It asks one thing of its callers: **the condition must be false once the write took effect** (the item now exists,
the fence moved on, the state changed). Only then is a repeat after a lost reply harmless, whoever wrote in between.

Access, validation and programming faults are exceptions. So is a transaction cancelled for any other reason.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from firstwrite.dynamodb import cancellation_codes, from_wire, to_wire
from firstwrite.errors import StoreUnavailableError, TransactionFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from firstwrite.clock import Deadline
    from firstwrite.dynamodb import Dynamo, Item, Key, Table
    from firstwrite.observability import Count

_FAILED = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect.

    Attributes:
        item: what the write asked to be returned; the whole item where `recovered`.
        recovered: an earlier attempt of this very write had taken effect and its reply was lost.
        current: of a recovered transaction, the items that bear its id, by the position of their writes. An earlier
            attempt under the same id may have written something else than this one would have.
    """

    item: Item = field(default_factory=dict)
    recovered: bool = False
    current: Mapping[int, Item] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The condition did not hold. Nothing was written.

    Attributes:
        current: the item that stood in the way, None where there is no such item.
    """

    current: Item | None


@dataclass(frozen=True, slots=True)
class RejectedTransaction:
    """Conditions of a transaction did not hold, and nothing else was wrong with it. Nothing was written.

    Attributes:
        current: for each failed write, by its position, the item that stood in the way.
    """

    current: Mapping[int, Item | None]


@dataclass(frozen=True, slots=True)
class Busy:
    """No answer within the deadline.

    Attributes:
        reason: `conflict` or `throttled`: nothing was written. `unreachable`: the write may have landed, and
            repeating it with the same `write_id` tells.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace an item. `write_id` is added to it."""

    table: Table
    item: Mapping[str, Any]
    condition: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The key of the item."""
        return self.table.key_of(self.item)

    def request(self, write_id: str) -> dict[str, Any]:
        """Return the arguments of the client call."""
        item = {**self.item, "write_id": write_id}
        return {"Item": to_wire(item), **_condition(self)}


@dataclass(frozen=True, slots=True)
class Update:
    """Change an item. The update expression must contain `write_id = :write_id`; its value is filled in."""

    table: Table
    key: Key
    update: str
    condition: str
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def request(self, write_id: str) -> dict[str, Any]:
        """Return the arguments of the client call.

        Raises:
            ValueError: the expression does not set the write id, so that a lost reply could not be recognised.
        """
        if "write_id = :write_id" not in self.update:
            raise ValueError("an update must set write_id = :write_id")
        arguments = _condition(self, write_id=write_id)
        return {"Key": to_wire(self.key), "UpdateExpression": self.update, **arguments}


Write = Put | Update


class Conditional:
    """Conditional writes and transactions against one DynamoDB.

    Args:
        dynamo: the calls, with their retry policy.
        count: told of every write as `ConditionalWrites`, by table, operation and outcome
            (`applied`, `recovered`, `rejected`, `busy`), so that a failed share has a denominator.
    """

    def __init__(self, dynamo: Dynamo, count: Count) -> None:
        self._dynamo = dynamo
        self._count = count

    def write(
        self,
        write: Write,
        operation: str,
        deadline: Deadline,
        *,
        write_id: str | None = None,
        returning: str = "NONE",
    ) -> Applied | Rejected | Busy:
        """Make one conditional write.

        Args:
            write: what to write, and on which condition.
            operation: the use case, for metrics, such as `acquire`.
            deadline: retries of conflicts, throttles and lost replies end here.
            write_id: names this logical write; a fresh one unless the caller repeats an earlier write.
            returning: DynamoDB's `ReturnValues`, such as `UPDATED_NEW`.

        Raises:
            ClientError: the request was refused for a reason that is no race.
        """
        write_id = write_id or new_write_id()
        outcome = self._write(write, deadline, write_id, returning)
        self._report(write.table, operation, outcome)
        return outcome

    def _write(self, write: Write, deadline: Deadline, write_id: str, returning: str) -> Applied | Rejected | Busy:
        try:
            reply = self._dynamo.call(
                "put_item" if isinstance(write, Put) else "update_item",
                deadline,
                TableName=write.table.name,
                ReturnValues=returning,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **write.request(write_id),
            )
        except StoreUnavailableError as error:
            return Busy(error.reason)
        except ClientError as error:
            if error.response["Error"].get("Code") != "ConditionalCheckFailedException":
                raise
            lost_to: Any = error.response.get("Item")
        else:
            return Applied(from_wire(reply.get("Attributes", {})))
        try:
            current = self._current(write, lost_to, deadline)
        except StoreUnavailableError as error:
            return Busy(error.reason)
        if current and current.get("write_id") == write_id:
            return Applied(current, recovered=True)
        return Rejected(current)

    def transact(
        self, writes: Sequence[Write], operation: str, deadline: Deadline, *, write_id: str | None = None
    ) -> Applied | RejectedTransaction | Busy:
        """Make all of `writes` or none.

        Args:
            writes: at most 100, each of another item.
            operation: the use case, for metrics, such as `claim`.
            deadline: retries end here; pass one already due to try once.
            write_id: as for `write`.

        Raises:
            TransactionFaultError: it was cancelled for a reason that is neither a race nor load.
            ClientError: the request was refused.
        """
        write_id = write_id or new_write_id()
        outcome = self._transact(writes, deadline, write_id)
        self._report(writes[0].table, operation, outcome)
        return outcome

    def _transact(
        self, writes: Sequence[Write], deadline: Deadline, write_id: str
    ) -> Applied | RejectedTransaction | Busy:
        try:
            self._dynamo.call(
                "transact_write_items",
                deadline,
                TransactItems=[_transact_item(write, write_id) for write in writes],
            )
        except StoreUnavailableError as error:
            return Busy(error.reason)
        except ClientError as error:
            if error.response["Error"].get("Code") != "TransactionCanceledException":
                raise
            codes = cancellation_codes(error)
            unexplained = set(codes) - {_FAILED, "None"}
            if unexplained or _FAILED not in codes:
                raise TransactionFaultError(
                    f"transaction cancelled: {', '.join(codes) or 'no reason given'}"
                ) from error
            reasons: Any = error.response["CancellationReasons"]
        else:
            return Applied()
        try:
            current = {
                index: self._current(writes[index], reasons[index].get("Item"), deadline)
                for index, code in enumerate(codes)
                if code == _FAILED
            }
        except StoreUnavailableError as error:
            return Busy(error.reason)
        mine = {index: item for index, item in current.items() if item and item.get("write_id") == write_id}
        if mine:
            # A transaction is atomic: one item that bears its id says that all of it took effect.
            return Applied(recovered=True, current=mine)
        return RejectedTransaction(current)

    def _current(self, write: Write, lost_to: Mapping[str, Any] | None, deadline: Deadline) -> Item | None:
        """Return the item a write lost to: as the reply carries it, else by one consistent read."""
        if lost_to:
            return from_wire(lost_to)
        return self._dynamo.get(write.table, write.key, deadline, consistent=True)

    def _report(self, table: Table, operation: str, outcome: Applied | Rejected | RejectedTransaction | Busy) -> None:
        match outcome:
            case Applied(recovered=True):
                name = "recovered"
            case Applied():
                name = "applied"
            case Busy():
                name = "busy"
            case _:
                name = "rejected"
        self._count("ConditionalWrites", table=table.label, operation=operation, outcome=name)


def new_write_id() -> str:
    """Return an id that no other write will have: 96 random bits."""
    return secrets.token_urlsafe(12)


def _condition(write: Write, **extra_values: str) -> dict[str, Any]:
    """Return the condition and its placeholders; DynamoDB refuses empty placeholder maps."""
    arguments: dict[str, Any] = {"ConditionExpression": write.condition}
    if write.names:
        arguments["ExpressionAttributeNames"] = dict(write.names)
    values = {**write.values, **{f":{name}": value for name, value in extra_values.items()}}
    if values:
        arguments["ExpressionAttributeValues"] = to_wire(values)
    return arguments


def _transact_item(write: Write, write_id: str) -> dict[str, Any]:
    return {
        "Put" if isinstance(write, Put) else "Update": {
            "TableName": write.table.name,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            **write.request(write_id),
        }
    }
