"""The entry points of the claim functions: wiring, once for each execution environment."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from firstwrite import aws
from firstwrite.api import make_app
from firstwrite.claim.audit import Audit
from firstwrite.claim.claiming import Claiming
from firstwrite.claim.expiry import Expiry
from firstwrite.claim.group_commit import GroupCommit
from firstwrite.claim.lists import StockLists
from firstwrite.claim.operator_routes import OperatorRoutes
from firstwrite.claim.queue import Intake, Worker
from firstwrite.claim.restocking import Restocking
from firstwrite.claim.routes import ClaimApi, ClaimRoutes
from firstwrite.claim.schedules import AuditOfAll
from firstwrite.claim.settling import Settling
from firstwrite.claim.store import StockStore
from firstwrite.clock import Clock, Deadline, SystemClock
from firstwrite.conditional import Conditional
from firstwrite.dynamodb import Dynamo
from firstwrite.observability import Counters, logger
from firstwrite.settings import Settings

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from firstwrite.observability import Count

TIME_TO_REPORT_MS = 1_000
"""What is kept back of a function's time to say what was not done."""


class Claims:
    """One execution environment's protocols, over one stock table.

    Args:
        client: DynamoDB.
        table: the stock table.
        clock: time.
        count: metrics.
        rng: picks shards and jitter.
    """

    def __init__(
        self, client: DynamoDBClient, table: str, clock: Clock, count: Count, rng: random.Random | None = None
    ) -> None:
        dynamo = Dynamo(client, clock, count)
        self.clock = clock
        self.count = count
        self.store = StockStore(dynamo, Conditional(dynamo, count), table)
        self.lists = StockLists(dynamo, table)
        self.expiry = Expiry(self.store, self.lists, clock, count)
        self.claiming = Claiming(self.store, self.expiry, clock, count, rng)
        self.settling = Settling(self.store, clock, count)
        self.restocking = Restocking(self.store, self.expiry, clock, count, rng)
        self.audit = Audit(self.store, self.lists, count)
        self.audit_of_all = AuditOfAll(self.store, self.lists, self.audit, count)
        self.worker = Worker(self.store, GroupCommit(self.store, self.expiry, clock, rng), clock, count)

    def api(self, settings: Settings, sqs: Callable[[], SQSClient] | None) -> ClaimApi:
        """Return what the routes work with; without a queue's client every claim is decided at once."""
        intake = None
        if sqs is not None:
            intake = Intake(self.store, sqs, settings.intake_queue_url, self.clock, self.count)
        return ClaimApi(
            claiming=self.claiming,
            settling=self.settling,
            restocking=self.restocking,
            audit=self.audit,
            intake=intake,
            store=self.store,
            lists=self.lists,
            clock=self.clock,
            auth=settings.auth,
        )


class ClaimFunction:
    """One execution environment of the claim functions.

    Args:
        settings: what the function was deployed with.
        client: DynamoDB.
        sqs: makes the queue's client, None where there is no queue.
        clock: time.
        counters: metrics of one invocation.
    """

    def __init__(
        self,
        settings: Settings,
        client: DynamoDBClient,
        sqs: Callable[[], SQSClient] | None,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._counters = counters
        self.claims = Claims(client, settings.stock_table, clock, counters.count)
        self._app = make_app(counters.count)
        api = self.claims.api(settings, sqs)
        ClaimRoutes(api, self._app)
        OperatorRoutes(api, self._app)

    def handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer one API Gateway request."""
        try:
            return self._app.resolve(event, context)
        finally:
            self._counters.flush()

    def take_batch(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Decide a batch of queued claims; name the messages that must come again."""
        try:
            failed = self.claims.worker.take(event["Records"], self._deadline(context))
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
        finally:
            self._counters.flush()

    def expire_due(self, context: LambdaContext) -> None:
        """Expire the holds that are due."""
        try:
            # Nothing expired is still a finding: it tells a quiet stage from a schedule that does not run.
            self.claims.count("HoldsExpired", 0)
            done = self.claims.expiry.expire_all(self._deadline(context))
            self.claims.count("ExpiriesCutShort", int(not done))
        finally:
            self._counters.flush()

    def audit_all(self, context: LambdaContext) -> None:
        """Audit all items, as far as time allows."""
        try:
            audited = self.claims.audit_of_all.run(self._deadline(context))
            logger.info("audited", extra={"items": audited})
        finally:
            self._counters.flush()

    def _deadline(self, context: LambdaContext) -> Deadline:
        return Deadline.after(self._clock, context.get_remaining_time_in_millis() - TIME_TO_REPORT_MS)


@cache
def _function() -> ClaimFunction:
    settings = Settings.from_environ(os.environ)
    sqs = aws.sqs if settings.intake_queue_url else None
    return ClaimFunction(settings, aws.dynamodb(), sqs, SystemClock(), Counters())


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway request (HTTP API, payload 2.0)."""
    return _function().handle(event, context)


@logger.inject_lambda_context
def take_batch(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Decide a batch of queued claims (SQS, with `ReportBatchItemFailures`)."""
    return _function().take_batch(event, context)


@logger.inject_lambda_context
def expire_due(_: dict[str, Any], context: LambdaContext) -> None:
    """Expire the holds that are due, on a schedule."""
    _function().expire_due(context)


@logger.inject_lambda_context
def audit_all(_: dict[str, Any], context: LambdaContext) -> None:
    """Audit all items, on a schedule."""
    _function().audit_all(context)
