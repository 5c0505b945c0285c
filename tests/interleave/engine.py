"""A small DynamoDB in memory: what the protocols use of it, atomically, and fast enough to be asked a million times.

Faithful by test, not by claim: one suite runs over this, ministack and moto (`test_engine.py`). Stored items are never
changed in place, so whoever holds one holds a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import ClientError

from tests.interleave.expressions import REMOVED, Expressions, RefusedError, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Wire = dict[str, Any]
"""An item in wire form."""
ItemKey = tuple[str, ...]
"""The values of an item's key attributes."""
_MOST_IN_TRANSACTION = 100
_PUT_RETURNS = ("NONE", "ALL_OLD")
_UPDATE_RETURNS = (*_PUT_RETURNS, "ALL_NEW", "UPDATED_NEW", "UPDATED_OLD")


class Table:
    """A table's keys and items.

    Args:
        key_names: the key attributes.
        indexes: key attributes of each index.
    """

    def __init__(self, key_names: Sequence[str], indexes: Mapping[str, Sequence[str]]) -> None:
        self.key_names = tuple(key_names)
        self.indexes = {name: tuple(names) for name, names in indexes.items()}
        self.items: dict[ItemKey, Wire] = {}

    def key_of(self, attributes: Mapping[str, Any]) -> ItemKey:
        """Return the key in `attributes`."""
        try:
            key = tuple(attributes[name]["S"] for name in self.key_names)
        except KeyError:
            raise RefusedError("The provided key element does not match the schema") from None
        if not all(key):
            raise RefusedError("One or more parameter values are not valid: a key attribute is empty")
        return key


class Engine:
    """The client methods that the product calls, over tables in memory."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}

    def create_table(
        self,
        *,
        TableName: str,
        KeySchema: Sequence[Mapping[str, str]],
        GlobalSecondaryIndexes: Sequence[Any] = (),
        **_: Any,
    ) -> None:
        """Create a table."""
        indexes = {
            made["IndexName"]: [key["AttributeName"] for key in made["KeySchema"]] for made in GlobalSecondaryIndexes
        }
        self.tables[TableName] = Table([key["AttributeName"] for key in KeySchema], indexes)

    def get_item(self, **request: Any) -> Wire:
        """Return the item at a key."""
        table = self._table(request, "GetItem")
        key = _refusing("GetItem", lambda: self._exact_key(table, request["Key"]))
        item = table.items.get(key)
        return {} if item is None else {"Item": item}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> Wire:
        """Return the items that exist among keys."""
        responses: dict[str, list[Wire]] = {}
        for name, wanted in RequestItems.items():
            table = self._table({"TableName": name}, "BatchGetItem")
            keys = _refusing("BatchGetItem", lambda t=table, w=wanted: [self._exact_key(t, key) for key in w["Keys"]])  # type: ignore[misc]
            if len(set(keys)) != len(keys):
                _refuse("BatchGetItem", "Provided list of item keys contains duplicates")
            responses[name] = [table.items[key] for key in keys if key in table.items]
        return {"Responses": responses, "UnprocessedKeys": {}}

    def put_item(self, **request: Any) -> Wire:
        """Create or replace an item."""
        return self._write(request, "PutItem", _PUT_RETURNS)

    def update_item(self, **request: Any) -> Wire:
        """Change an item."""
        return self._write(request, "UpdateItem", _UPDATE_RETURNS)

    def transact_write_items(self, *, TransactItems: Sequence[Mapping[str, Any]], **_: Any) -> Wire:
        """Make all writes or none."""
        operation = "TransactWriteItems"
        parts = [next(iter(part.values())) for part in TransactItems]
        tables = [self._table(part, operation) for part in parts]
        if not 0 < len(parts) <= _MOST_IN_TRANSACTION:
            _refuse(operation, "Member must have length between 1 and 100")
        writes = _refusing(operation, lambda: [_Write(table, part) for table, part in zip(tables, parts, strict=True)])
        targets = [(id(table), write.key) for table, write in zip(tables, writes, strict=True)]
        if len(set(targets)) != len(targets):
            _refuse(operation, "Transaction request cannot include multiple operations on one item")
        reasons: list[Wire] = []
        after: list[Wire | None] = []
        for write, part in zip(writes, parts, strict=True):
            reason, item = write.judge(part)
            reasons.append(reason)
            after.append(item)
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            _fail(
                operation,
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
                CancellationReasons=reasons,
            )
        for table, write, item in zip(tables, writes, after, strict=True):
            if item is not None:
                table.items[write.key] = item
        return {}

    def query(self, **request: Any) -> Wire:
        """Return a page of a partition of the table, or of an index, in the order of the sort key."""
        table = self._table(request, "Query")
        expressions = _refusing("Query", lambda: Expressions(request))
        index = request.get("IndexName")
        if index is not None and index not in table.indexes:
            _refuse("Query", f"The table does not have the specified index: {index}")
        names = table.key_names if index is None else (*table.indexes[index], *table.key_names)
        sort_by = names[1:]
        found = [
            {name: item[name] for name in names} if index else item
            for item in table.items.values()
            if all(name in item for name in names)
            and expressions.key_condition
            and expressions.key_condition(item, expressions.values)
        ]
        found.sort(key=lambda item: _order(item, sort_by))
        start = request.get("ExclusiveStartKey")
        if start is not None:
            found = [item for item in found if _order(item, sort_by) > _order(start, sort_by)]
        limit = request.get("Limit")
        if limit is None or len(found) < limit:
            return {"Items": found, "Count": len(found)}
        page = found[:limit]
        return {"Items": page, "Count": limit, "LastEvaluatedKey": {name: page[-1][name] for name in names}}

    def _write(self, request: Mapping[str, Any], operation: str, may_return: Sequence[str]) -> Wire:
        table = self._table(request, operation)
        returning = request.get("ReturnValues", "NONE")
        if returning not in may_return:
            _refuse(operation, f"Return values set to invalid value: {returning}")
        write = _refusing(operation, lambda: _Write(table, request))
        before = table.items.get(write.key)
        reason, after = write.judge(request)
        if reason["Code"] == "ConditionalCheckFailed":
            item = {"Item": reason["Item"]} if "Item" in reason else {}
            _fail(operation, "ConditionalCheckFailedException", reason["Message"], **item)
        if after is None:
            _refuse(operation, reason["Message"])
        table.items[write.key] = after
        match returning:
            case "ALL_OLD":
                attributes = before or {}
            case "ALL_NEW":
                attributes = after
            case "UPDATED_NEW":
                attributes = {name: after[name] for name in write.changed if name in after}
            case "UPDATED_OLD":
                attributes = {name: before[name] for name in write.changed if before and name in before}
            case _:
                attributes = {}
        return {"Attributes": attributes} if attributes else {}

    def _table(self, request: Mapping[str, Any], operation: str) -> Table:
        table = self.tables.get(request["TableName"])
        if table is None:
            _fail(operation, "ResourceNotFoundException", "Cannot do operations on a non-existent table")
        return table

    @staticmethod
    def _exact_key(table: Table, key: Mapping[str, Any]) -> ItemKey:
        if set(key) != set(table.key_names):
            raise RefusedError("The provided key element does not match the schema")
        return table.key_of(key)


class _Write:
    """A put, an update or a condition check, parsed and not yet judged."""

    def __init__(self, table: Table, request: Mapping[str, Any]) -> None:
        self._table = table
        self._expressions = Expressions(request)
        self._put: Wire | None = request.get("Item")
        self.key = table.key_of(self._put) if self._put is not None else Engine._exact_key(table, request["Key"])
        self.changed = self._expressions.changed
        if set(self.changed) & set(table.key_names):
            raise RefusedError("One or more parameter values were invalid: Cannot update attribute, part of the key")

    def judge(self, request: Mapping[str, Any]) -> tuple[Wire, Wire | None]:
        """Return the reason code and the item as it would become, None where it would not be written."""
        before = self._table.items.get(self.key)
        condition = self._expressions.condition
        if condition and not condition(before or {}, self._expressions.values):
            reason: Wire = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
            if before is not None and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                reason["Item"] = before
            return reason, None
        if self._put is not None:
            return {"Code": "None"}, dict(self._put)
        if not self._expressions.steps:
            return {"Code": "None"}, None
        current: Wire = dict(zip(self._table.key_names, ({"S": part} for part in self.key), strict=True))
        current |= before or {}
        changes: dict[str, Any] = {}
        try:
            for step in self._expressions.steps:
                step(current, self._expressions.values, changes)
        except RefusedError as error:
            return {"Code": "ValidationError", "Message": str(error)}, None
        merged = {**current, **changes}
        return {"Code": "None"}, {name: value for name, value in merged.items() if value is not REMOVED}


def _order(item: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(number(item[name]["N"]) if "N" in item[name] else item[name]["S"] for name in names)


def _refusing(operation: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except RefusedError as error:
        _refuse(operation, str(error))


def _refuse(operation: str, message: str) -> NoReturn:
    _fail(operation, "ValidationException", message)


def _fail(operation: str, code: str, message: str, **more: Any) -> NoReturn:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        **more,
    }
    raise ClientError(response, operation)
