"""The stock table, page by page: an item's claims, holds by deadline, all items. No scan, ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstwrite.claim import records
from firstwrite.dynamodb import Table, to_wire

if TYPE_CHECKING:
    from firstwrite.clock import Deadline
    from firstwrite.dynamodb import Dynamo, Item

_DUE_INDEX = "due"
_HOLDS_A_PAGE = 100
_ITEMS_A_PAGE = 100


class StockLists:
    """Pages of the stock table.

    Args:
        dynamo: reads.
        table_name: the stock table.
    """

    def __init__(self, dynamo: Dynamo, table_name: str) -> None:
        self._dynamo = dynamo
        self._table = Table(table_name, "stock", ("pk", "sk"))

    def claims(
        self, item: str, bucket: int, after: str | None, most: int | None, deadline: Deadline
    ) -> tuple[list[Item], str | None]:
        """Return a page of a bucket of an item's claims, as records, strongly consistent.

        Args:
            item: whose claims.
            bucket: from 0 to `CLAIM_BUCKETS - 1`.
            after: the sort key to go on from, None to begin.
            most: how many, None for as many as DynamoDB returns at once.
            deadline: bounds retries.

        Returns:
            The records, and the sort key to go on from, None where the bucket ends.
        """
        partition = records.claims_partition(item, bucket)
        return self._page(partition, after, most, deadline)

    def items(self, bucket: int, after: str | None, deadline: Deadline) -> tuple[list[str], str | None]:
        """Return a page of a bucket of the names of all items, and the sort key to go on from."""
        page, last = self._page(records.items_partition(bucket), after, _ITEMS_A_PAGE, deadline)
        return [record["item"] for record in page], last

    def holds(self, partition: str, start: Item | None, deadline: Deadline) -> tuple[list[Item], Item | None]:
        """Return a page of a partition of the index of holds, earliest deadline first, and where the next page starts.

        Eventually consistent, as indexes are: what it names may be settled, and what is new may be missing.
        """
        request: dict[str, Any] = {"ExclusiveStartKey": to_wire(start)} if start else {}
        return self._dynamo.query(
            deadline,
            TableName=self._table.name,
            IndexName=_DUE_INDEX,
            KeyConditionExpression="due_bucket = :partition",
            ExpressionAttributeValues=to_wire({":partition": partition}),
            Limit=_HOLDS_A_PAGE,
            **request,
        )

    def _page(
        self, partition: str, after: str | None, most: int | None, deadline: Deadline
    ) -> tuple[list[Item], str | None]:
        request: dict[str, Any] = {"Limit": most} if most else {}
        if after is not None:
            request["ExclusiveStartKey"] = to_wire({"pk": partition, "sk": after})
        page, last = self._dynamo.query(
            deadline,
            TableName=self._table.name,
            KeyConditionExpression="pk = :partition",
            ExpressionAttributeValues=to_wire({":partition": partition}),
            ConsistentRead=True,
            **request,
        )
        return page, str(last["sk"]) if last else None
