"""Every alarm of a stage, as data: what is measured, from where on it is a breach, who hears of it.

What pages is harm. Contention only warns: a perfect run of 1,000 claimers on stock 100 makes 900 failed conditions.
"""

from collections.abc import Iterator

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from stacks.alarm_spec import AlarmSpec
from stacks.config import FUNCTION_TIMEOUT_S, FunctionId, Stage
from stacks.protocol_alarms import cache_specs, claim_specs, write_specs
from stacks.watched import Watched

_MINUTE = cdk.Duration.minutes(1)
_TABLE_OPERATIONS = (
    "GetItem",
    "BatchGetItem",
    "Query",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "TransactWriteItems",
)


def alarm_specs(stage: Stage, watched: Watched) -> list[AlarmSpec]:
    """List the alarms of `stage`, without those that its engine cannot evaluate."""
    every = [
        *cache_specs(stage),
        *claim_specs(stage, watched.functions),
        *write_specs(stage),
        *(spec for name, table in watched.tables.items() for spec in _table_specs(name, table, stage)),
        *(spec for name, function in watched.functions.items() for spec in _function_specs(name, function, stage)),
        *_api_specs(watched.api, stage),
        *(_intake_specs(watched.intake_queue, stage) if watched.intake_queue else ()),
        *(_dead_letter_specs(watched.dead_letters, stage) if watched.dead_letters else ()),
    ]
    return [spec for spec in every if stage.metric_math or not spec.needs_metric_math]


def _table_specs(name: str, table: dynamodb.ITable, stage: Stage) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        name=f"{name}ConditionalFailures",
        metric=table.metric_conditional_check_failed_requests(statistic="Sum", period=_MINUTE),
        threshold=stage.alarms.conditional_failures_per_minute,
        breaches=3,
        window=5,
        severity="warn",
        meaning=f"Conditional writes to the {name} keep losing: more contention than this stage is set for.",
        runbook="Conditional failures",
    )
    yield AlarmSpec(
        name=f"{name}Throttled",
        metric=_throttled_requests(table),
        threshold=stage.alarms.throttled_requests_per_minute,
        breaches=2,
        window=5,
        severity="page",
        meaning=f"DynamoDB throttles requests to the {name}.",
        runbook="Throttled requests",
        needs_metric_math=True,
    )


def _throttled_requests(table: dynamodb.ITable) -> cloudwatch.MathExpression:
    """Add up the operations, which DynamoDB counts apart.

    It counts them sparsely, too, and a plain sum is missing where any part is. The CDK's own
    `metric_throttled_requests_for_operations` is such a sum and would hardly ever go off.
    """
    parts = {
        operation.lower(): table.metric(
            "ThrottledRequests",
            dimensions_map={"TableName": table.table_name, "Operation": operation},
            statistic="Sum",
            period=_MINUTE,
        )
        for operation in _TABLE_OPERATIONS
    }
    return cloudwatch.MathExpression(
        expression=f"SUM([{', '.join(f'FILL({part}, 0)' for part in parts)}])",
        using_metrics=dict(parts),
        label="throttled requests",
        period=_MINUTE,
    )


def _function_specs(function_id: FunctionId, function: lambda_.Function, stage: Stage) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        name=f"{function_id}Errors",
        metric=function.metric_errors(statistic="Sum", period=_MINUTE),
        threshold=stage.alarms.function_errors_per_minute,
        breaches=2,
        window=5,
        severity="page",
        meaning=f"{function_id} crashes or runs into its timeout.",
        runbook="Function errors",
    )
    yield AlarmSpec(
        name=f"{function_id}Throttles",
        metric=function.metric_throttles(statistic="Sum", period=_MINUTE),
        threshold=stage.alarms.function_throttles_per_minute,
        breaches=2,
        window=5,
        severity="page",
        meaning=f"Lambda refuses to start {function_id}: the account's or its own concurrency is used up.",
        runbook="Function throttles",
    )
    timeout_ms = function.timeout.to_milliseconds() if function.timeout else FUNCTION_TIMEOUT_S * 1000
    yield AlarmSpec(
        name=f"{function_id}Slow",
        metric=function.metric_duration(statistic="p99", period=_MINUTE),
        threshold=stage.alarms.p99_fraction_of_timeout * timeout_ms,
        breaches=3,
        window=5,
        severity="warn",
        meaning=f"The slowest calls of {function_id} come near its timeout.",
        runbook="Slow functions",
    )


def _api_specs(api: apigw.HttpApi, stage: Stage) -> Iterator[AlarmSpec]:
    failed = api.metric_server_error(statistic="Sum", period=_MINUTE)
    yield AlarmSpec(
        name="ApiServerErrors",
        metric=failed,
        threshold=stage.alarms.api_server_errors_per_minute,
        breaches=3,
        window=5,
        severity="warn",
        meaning="The API answers with 5xx.",
        runbook="API server errors",
    )
    yield AlarmSpec(
        name="ApiServerErrorRate",
        metric=cloudwatch.MathExpression(
            expression="failed / requests",
            using_metrics={"failed": failed, "requests": api.metric_count(statistic="Sum", period=_MINUTE)},
            label="5xx rate",
            period=_MINUTE,
        ),
        threshold=stage.alarms.api_server_error_rate,
        breaches=3,
        window=5,
        severity="page",
        meaning="A noticeable share of all API calls ends in 5xx.",
        runbook="API server errors",
        needs_metric_math=True,
    )


def _intake_specs(queue: sqs.IQueue, stage: Stage) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        name="OldestQueuedClaim",
        metric=queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=_MINUTE),
        threshold=stage.alarms.oldest_queue_message_seconds,
        breaches=3,
        window=5,
        severity="warn",
        meaning="Claims were taken in faster than they are decided.",
        runbook="Oldest queued claim",
    )


def _dead_letter_specs(queue: sqs.IQueue, stage: Stage) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        name="DeadLetters",
        metric=queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=_MINUTE),
        threshold=stage.alarms.dead_letters,
        breaches=1,
        window=5,
        severity="page",
        meaning="Claims that were taken in could not be decided, and wait for a person.",
        runbook="Dead letters",
    )
