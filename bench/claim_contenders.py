"""Ways to sell limited stock: what a user would write or pick, and Firstwrite.

Each makes execution environments: functions that are given an item and an idempotency key and return the claim's id,
None where the item is sold out; anything else raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from botocore.exceptions import ClientError

from bench.cache_contenders import layer_of
from firstwrite.claim.handler import ClaimFunction
from firstwrite.claim.model import ItemSettings, default_shards
from firstwrite.clock import Deadline, SystemClock
from firstwrite.observability import Counters, logger
from firstwrite.settings import Settings
from tests.support.engine import create_cache_table, create_stock_table
from tests.support.http import LambdaContext, event, reply_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Environment = Callable[[str, str], str | None]


class BusyError(Exception):
    """Nothing was decided; the client repeats with the same key."""


class Shop(Protocol):
    """A way to sell, over tables of its own."""

    def create(self, item: str, stock: int) -> None:
        """Put an item up for sale."""
        ...

    def environment(self, client: DynamoDBClient, time_left_ms: int = 29_000) -> Environment:
        """Return an execution environment that talks through `client`."""
        ...

    def taken(self, item: str) -> int:
        """Return how many units the stock says are gone."""
        ...


class _OneItem:
    """Stock as one record, `left` and `total`."""

    def __init__(self, client: DynamoDBClient) -> None:
        self._own = client
        self.table = create_cache_table(client)

    def create(self, item: str, stock: int) -> None:
        """Put an item up for sale."""
        self._own.put_item(
            TableName=self.table, Item={**_key(item), "left": {"N": str(stock)}, "total": {"N": str(stock)}}
        )

    def taken(self, item: str) -> int:
        """Return how many units the stock says are gone."""
        record = self._own.get_item(TableName=self.table, Key=_key(item), ConsistentRead=True)["Item"]
        return int(record["total"]["N"]) - int(record["left"]["N"])


class Naive(_OneItem):
    """Read, check, write back."""

    def environment(self, client: DynamoDBClient, time_left_ms: int = 29_000) -> Environment:
        """Return an execution environment that talks through `client`."""
        del time_left_ms

        def claim(item: str, key: str) -> str | None:
            del key
            record = client.get_item(TableName=self.table, Key=_key(item), ConsistentRead=True)["Item"]
            left = int(record["left"]["N"])
            if left < 1:
                return None
            client.put_item(TableName=self.table, Item={**record, "left": {"N": str(left - 1)}})
            return uuid4().hex

        return claim


class Plain(_OneItem):
    """One conditional update."""

    def environment(self, client: DynamoDBClient, time_left_ms: int = 29_000) -> Environment:
        """Return an execution environment that talks through `client`."""
        del time_left_ms

        def claim(item: str, key: str) -> str | None:
            del key
            try:
                client.update_item(**self.request(item))
            except ClientError as error:
                if error.response["Error"].get("Code") != "ConditionalCheckFailedException":
                    raise
                return None
            return uuid4().hex

        return claim

    def request(self, item: str) -> Any:  # noqa: ANN401 - arguments of the client call
        """Return the one call that it makes."""
        return {
            "TableName": self.table,
            "Key": _key(item),
            "UpdateExpression": "SET #left = #left - :one",
            "ConditionExpression": "#left >= :one",
            "ExpressionAttributeNames": {"#left": "left"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }


class Powertools:
    """Powertools Idempotency around another way to sell, keyed by item and key."""

    def __init__(self, client: DynamoDBClient, inner: _OneItem) -> None:
        self._inner = inner
        self._table = create_cache_table(client)
        self.create, self.taken = inner.create, inner.taken

    def environment(self, client: DynamoDBClient, time_left_ms: int = 29_000) -> Environment:
        """Return an execution environment that talks through `client`."""
        inner: Any = self._inner
        sell: Environment = inner.environment(client)
        config = IdempotencyConfig(event_key_jmespath="[item, key]")
        layer = layer_of(client, self._table)

        @idempotent_function(  # type: ignore[untyped-decorator]
            data_keyword_argument="request", persistence_store=layer, config=config
        )
        def handle(request: dict[str, str]) -> dict[str, str | None]:
            # In an object, for a bare None would be kept and not be replayed.
            return {"claim_id": sell(request["item"], request["key"])}

        def claim(item: str, key: str) -> str | None:
            config.register_lambda_context(LambdaContext(time_left_ms))  # type: ignore[arg-type]
            claim_id: str | None = handle(request={"item": item, "key": key})["claim_id"]
            return claim_id

        return claim


class Firstwrite:
    """The real claim function, from event to answer."""

    def __init__(self, client: DynamoDBClient) -> None:
        self.table = create_stock_table(client)
        self.own = self.function(client)

    def function(self, client: DynamoDBClient) -> ClaimFunction:
        """Return one environment's function."""
        settings = Settings.from_environ({"AUTH": "header", "STOCK_TABLE": self.table})
        return ClaimFunction(settings, client, None, SystemClock(), Counters())

    def create(self, item: str, stock: int) -> None:
        """Put an item up for sale, spread as the API spreads it by default."""
        self.create_spread(item, stock, default_shards(stock))

    def create_spread(self, item: str, stock: int, shards: int) -> ItemSettings:
        """Put an item up for sale."""
        settings = ItemSettings(item, stock, shards)
        assert self.own.claims.store.create(settings, self._deadline()) is None  # noqa: S101 - wrong figures otherwise
        return settings

    def taken(self, item: str) -> int:
        """Return how many units the stock says are gone."""
        store = self.own.claims.store
        settings = store.settings(item, self._deadline())
        assert settings is not None  # noqa: S101 - wrong figures otherwise
        return settings.stock - sum(shard.available for shard in store.shards(settings, self._deadline()))

    def environment(self, client: DynamoDBClient, time_left_ms: int = 29_000) -> Environment:
        """Return an execution environment that talks through `client`."""
        del time_left_ms  # nothing here waits for a lease
        return ClaimEnvironment(self.function(client))

    def _deadline(self) -> Deadline:
        return Deadline.after(SystemClock(), 10_000)


class ClaimEnvironment:
    """One environment of the real claim function."""

    def __init__(self, function: ClaimFunction) -> None:
        self.function = function
        self._context: Any = LambdaContext()
        self._entry = logger.inject_lambda_context(self._handle)

    def _handle(self, request: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ANN401 - Lambda's
        return self.function.handle(request, context)

    def request(self, item: str, key: str) -> Callable[[], dict[str, Any]]:
        """Return what answers the request as Lambda would have it answered."""
        made = event("POST", f"/v1/items/{item}/claims", body={}, headers={"Idempotency-Key": key, "x-caller": "bench"})
        return lambda: self._entry(made, self._context)

    def __call__(self, item: str, key: str) -> str | None:
        """Claim one unit.

        Raises:
            BusyError: nothing was decided in time.
            RuntimeError: the function answered with another problem than sold out.
        """
        reply = reply_of(self.request(item, key)())
        if reply.status == 201:  # noqa: PLR2004 - HTTP's
            return str(json.loads(reply.body)["claim_id"])
        if reply.problem == "sold-out":
            return None
        if reply.problem == "busy":
            raise BusyError
        raise RuntimeError(reply.body.decode())


def _key(item: str) -> dict[str, Any]:
    return {"pk": {"S": item}}


def shops(client: DynamoDBClient) -> dict[str, Shop]:
    """Return every way to sell, over new tables."""
    naive, plain = Naive(client), Plain(client)
    return {
        "naive handler": naive,
        "plain conditional update": plain,
        "Powertools around naive": Powertools(client, Naive(client)),
        "Powertools around plain": Powertools(client, Plain(client)),
        "Firstwrite": Firstwrite(client),
    }
