"""The cache functions' entry points: wiring, once for each execution environment."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstwrite import aws
from firstwrite.api import make_app
from firstwrite.cache import routes, sources
from firstwrite.cache.background import Background
from firstwrite.cache.circuit import Circuit
from firstwrite.cache.memory import Memory
from firstwrite.cache.overflow import Overflow
from firstwrite.cache.paid_call import PaidCall
from firstwrite.cache.secrets import Secrets
from firstwrite.cache.single_flight import SingleFlight
from firstwrite.cache.spend import SpendGuard
from firstwrite.cache.stats import Stats
from firstwrite.cache.store import CacheStore
from firstwrite.cache.upstream import Upstream
from firstwrite.clock import Clock, Deadline, SystemClock
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from firstwrite.errors import StoreUnavailableError
from firstwrite.observability import Counters, logger
from firstwrite.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_dynamodb import DynamoDBClient

    from firstwrite.cache.sources import Source

SOURCES = Path(__file__).parents[2] / "sources.json"
STATS_DEADLINE_MS = 500
"""Counting must not hold up an answer that is ready."""


class CacheFunction:
    """One execution environment of the cache.

    Args:
        settings: what the function was deployed with.
        declared: the sources.
        client: DynamoDB.
        clock: time.
        counters: metrics of one invocation.
    """

    def __init__(
        self,
        settings: Settings,
        declared: Mapping[str, Source],
        client: DynamoDBClient,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._counters = counters
        dynamo = Dynamo(client, clock, self._count)
        conditional = Conditional(dynamo, self._count)
        table = settings.cache_table
        self._stats = Stats(dynamo, clock, table)
        overflow = Overflow(aws.s3, settings.overflow_bucket)
        store = CacheStore(dynamo, conditional, clock, table, overflow)
        upstream = Upstream(clock, {"DemoUrl": settings.demo_url}, Secrets(aws.secrets_manager))
        spend, circuit = SpendGuard(conditional, clock, table), Circuit(dynamo, conditional, clock, table)
        self.api = routes.CacheApi(
            sources=declared,
            single_flight=SingleFlight(store, clock, self._count, Memory(clock)),
            paid_call=PaidCall(upstream, spend, circuit, clock, self._count),
            store=store,
            overflow=overflow,
            stats=self._stats,
            background=Background(aws.lambda_, settings.refresh_function, clock, self._count)
            if settings.refresh_function
            else None,
            clock=clock,
        )
        self._app = make_app(self._count)
        routes.CacheRoutes(self.api, self._app)

    def handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer one API Gateway request."""
        try:
            return self._app.resolve(event, context)
        finally:
            self._flush()

    def refresh(self, event: Mapping[str, Any], context: LambdaContext) -> None:
        """Renew one key, unless somebody else does or it is fresh by now."""
        try:
            question = self.api.question(event["source"], event["query"])
            time_left_ms = context.get_remaining_time_in_millis()
            self.api.ask(question, time_left_ms, wait_ms=0, in_background=True)
        finally:
            self._flush()

    def _count(self, name: str, value: int = 1, **dimensions: str) -> None:
        self._counters.count(name, value, **dimensions)
        self._stats.count(name, value, **dimensions)

    def _flush(self) -> None:
        try:
            self._stats.write(Deadline.after(self._clock, STATS_DEADLINE_MS))
        except StoreUnavailableError as error:
            logger.warning("counts could not be written", extra={"reason": error.reason})
        self._counters.flush()


@cache
def _function() -> CacheFunction:
    settings = Settings.from_environ(os.environ)
    return CacheFunction(settings, sources.load(SOURCES), aws.dynamodb(), SystemClock(), Counters())


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway request (HTTP API, payload 2.0)."""
    return _function().handle(event, context)


@logger.inject_lambda_context
def refresh(event: dict[str, Any], context: LambdaContext) -> None:
    """Renew a stale result, asked for by `firstwrite.cache.background`."""
    _function().refresh(event, context)
