"""Ways to keep the result of a paid call: what a user would write or pick, and Firstwrite.

Each makes execution environments: functions that are given a question and return the answer, or raise. An
environment serves one caller at a time, as Lambda's do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function
from botocore.exceptions import ClientError

from firstwrite.cache.fetchers import Fetcher
from firstwrite.cache.handler import CacheFunction
from firstwrite.cache.record import Answer, Policy
from firstwrite.cache.sources import Source
from firstwrite.clock import SystemClock
from firstwrite.observability import Counters, logger
from firstwrite.settings import Settings
from tests.support.http import LambdaContext, event, reply_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Environment = Callable[[str], str]
Fetch = Callable[[], str]

FRESH_S = 3_600
BUCKET = "overflow"
POLICY = Policy("bench", fresh_ms=FRESH_S * 1000)


@dataclass(frozen=True, slots=True)
class Place:
    """Where environments run.

    Attributes:
        client: DynamoDB.
        table: keyed by `pk`.
        fetch: the paid call.
        time_left_ms: what Lambda says an invocation has left, for Powertools, whose lease it is.
        policy: leases and waits, for Firstwrite.
    """

    client: DynamoDBClient
    table: str
    fetch: Fetch
    time_left_ms: int = 29_000
    policy: Policy = POLICY


def naive(place: Place) -> Environment:
    """Look, call where nothing fresh is there, store."""

    def ask(key: str) -> str:
        found = place.client.get_item(TableName=place.table, Key={"pk": {"S": key}}).get("Item")
        if found and float(found["fresh_until"]["N"]) > time.time():
            return found["body"]["S"]
        body = place.fetch()
        place.client.put_item(TableName=place.table, Item=_record(key, body))
        return body

    return ask


def plain(place: Place) -> Environment:
    """Look, call where nothing fresh is there, store where nobody else has."""

    def ask(key: str) -> str:
        found = place.client.get_item(TableName=place.table, Key={"pk": {"S": key}}).get("Item")
        if found and float(found["fresh_until"]["N"]) > time.time():
            return found["body"]["S"]
        body = place.fetch()
        try:
            place.client.put_item(
                TableName=place.table,
                Item=_record(key, body),
                ConditionExpression="attribute_not_exists(pk) OR fresh_until <= :now",
                ExpressionAttributeValues={":now": {"N": str(time.time())}},
            )
        except ClientError as error:
            if error.response["Error"].get("Code") != "ConditionalCheckFailedException":
                raise
        return body

    return ask


def _record(key: str, body: str) -> Any:  # noqa: ANN401 - an item in wire form
    return {"pk": {"S": key}, "body": {"S": body}, "fresh_until": {"N": str(time.time() + FRESH_S)}}


@cache
def layer_of(client: DynamoDBClient, table: str) -> DynamoDBPersistenceLayer:
    """Return Powertools' layer over a table; one a client, for each adds hooks of its own to it."""
    return DynamoDBPersistenceLayer(table, key_attr="pk", boto3_client=client)


def powertools(place: Place) -> Environment:
    """Let Powertools Idempotency keep the paid call's result."""
    config = IdempotencyConfig(expires_after_seconds=FRESH_S)
    layer = layer_of(place.client, place.table)

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="key", persistence_store=layer, config=config
    )
    def fetch(key: str) -> str:  # noqa: ARG001 - what the library makes its key of
        return place.fetch()

    def ask(key: str) -> str:
        config.register_lambda_context(LambdaContext(place.time_left_ms))  # type: ignore[arg-type]
        return str(fetch(key=key))

    return ask


class Firstwrite:
    """One environment of the real cache function, from event to answer."""

    def __init__(self, place: Place) -> None:
        def fetch(key: str) -> Answer:  # noqa: ARG001 - the source's parameter
            return Answer(200, "application/json", place.fetch().encode())

        policy = place.policy
        source = Source("bench", ("key",), policy, fetcher=Fetcher(fetch), timeout_ms=policy.timeout_ms)
        environ = {"AUTH": "header", "CACHE_TABLE": place.table, "OVERFLOW_BUCKET": BUCKET}
        settings = Settings.from_environ(environ)
        self.function = CacheFunction(settings, {"bench": source}, place.client, SystemClock(), Counters())
        self.source = source
        self._context: Any = LambdaContext()
        self._entry = logger.inject_lambda_context(self._handle)

    def _handle(self, request: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ANN401 - Lambda's
        return self.function.handle(request, context)

    def request(self, key: str) -> Callable[[], dict[str, Any]]:
        """Return what answers the question as Lambda would have it answered."""
        made = event("GET", "/v1/cache/bench", query={"key": key}, headers={"accept": "*/*", "user-agent": "bench"})
        return lambda: self._entry(made, self._context)

    def __call__(self, key: str) -> str:
        """Answer the question.

        Raises:
            RuntimeError: the function answered with a problem.
        """
        reply = reply_of(self.request(key)())
        if reply.status != 200:  # noqa: PLR2004 - HTTP's
            raise RuntimeError(reply.body.decode())
        return reply.body.decode()


CONTENDERS: dict[str, Callable[[Place], Environment]] = {
    "naive handler": naive,
    "plain conditional put": plain,
    "Powertools around the call": powertools,
    "Firstwrite": Firstwrite,
}


def with_policy(place: Place, **changes: Any) -> Place:  # noqa: ANN401 - times
    """Return `place` with a changed policy."""
    return replace(place, policy=replace(place.policy, **changes))
