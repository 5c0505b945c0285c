"""Alarms, the topics they go to, and one dashboard.

Guarantees: no alarm without an action, a description that names its heading in docs/runbook.md, a word on missing
data, and M of N, because one loop makes them all.
"""

from collections.abc import Iterator, Mapping

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.alarms import AlarmSpec, Severity, alarm_specs
from stacks.config import FunctionId, Stage
from stacks.constructs.settings import environment

_MINUTE = cdk.Duration.minutes(1)


class ObservabilityStack(cdk.Stack):
    """Watches one stage. Other stacks do not know it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        tables: Mapping[str, dynamodb.ITable],
        functions: Mapping[FunctionId, lambda_.IFunction],
        api: apigw.HttpApi,
    ) -> None:
        super().__init__(
            scope, construct_id, description="Firstwrite: alarms and dashboard", env=environment(stage), tags=stage.tags
        )
        self._stage = stage
        self._topics = {severity: self._make_topic(severity) for severity in ("page", "warn")}
        alarms = [self._make_alarm(spec) for spec in alarm_specs(stage, tables=tables, functions=functions, api=api)]
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=cdk.Duration.hours(3))
        dashboard.add_widgets(*_table_widgets(tables))
        dashboard.add_widgets(*_function_widgets(functions))
        dashboard.add_widgets(*_api_widgets(api))
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(title="Alarms", alarms=alarms, width=24))
        cdk.CfnOutput(self, "DashboardName", value=dashboard.dashboard_name)

    def _make_topic(self, severity: Severity) -> sns.Topic:
        topic = sns.Topic(self, f"{severity.capitalize()}Topic", enforce_ssl=True)
        # A topic with a policy of its own loses the default one, which is what lets alarms publish.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        if self._stage.alarm_email:
            topic.add_subscription(subscriptions.EmailSubscription(self._stage.alarm_email))
        return topic

    def _make_alarm(self, spec: AlarmSpec) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            spec.name,
            metric=spec.metric,
            threshold=spec.threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=spec.window,
            datapoints_to_alarm=spec.breaches,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=spec.description,
        )
        alarm.add_alarm_action(actions.SnsAction(self._topics[spec.severity]))
        return alarm


def _table_widgets(tables: Mapping[str, dynamodb.ITable]) -> Iterator[cloudwatch.IWidget]:
    for name, table in tables.items():
        yield cloudwatch.GraphWidget(
            title=f"{name}: failed conditions (contention, not harm)",
            left=[table.metric_conditional_check_failed_requests(statistic="Sum", period=_MINUTE)],
            width=12,
        )


def _function_widgets(functions: Mapping[FunctionId, lambda_.IFunction]) -> Iterator[cloudwatch.IWidget]:
    yield cloudwatch.GraphWidget(
        title="Functions: errors and throttles",
        left=[
            metric(statistic="Sum", period=_MINUTE, label=f"{function_id} {what}")
            for function_id, function in functions.items()
            for what, metric in (("errors", function.metric_errors), ("throttles", function.metric_throttles))
        ],
        width=12,
    )
    yield cloudwatch.GraphWidget(
        title="Functions: duration",
        left=[
            function.metric_duration(statistic=statistic, period=_MINUTE, label=f"{function_id} {statistic}")
            for function_id, function in functions.items()
            for statistic in ("p50", "p99")
        ],
        width=12,
    )


def _api_widgets(api: apigw.HttpApi) -> Iterator[cloudwatch.IWidget]:
    yield cloudwatch.GraphWidget(
        title="API: requests and refusals",
        left=[
            api.metric_count(statistic="Sum", period=_MINUTE, label="requests"),
            api.metric_client_error(statistic="Sum", period=_MINUTE, label="4xx"),
            api.metric_server_error(statistic="Sum", period=_MINUTE, label="5xx"),
        ],
        width=12,
    )
    yield cloudwatch.GraphWidget(
        title="API: latency",
        left=[api.metric_latency(statistic=statistic, period=_MINUTE) for statistic in ("p50", "p99")],
        width=12,
    )
