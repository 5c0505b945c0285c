"""Alarms, the topics they go to, one dashboard, and saved queries.

Guarantees: no alarm without an action, for the way back too, a description that names its heading in docs/runbook.md,
a word on missing data, and M of N, because one loop makes them all.
"""

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from stacks.alarm_spec import AlarmSpec, Breach, Missing, Severity
from stacks.alarms import alarm_specs
from stacks.config import Stage
from stacks.constructs.settings import environment
from stacks.dashboard import rows
from stacks.queries import save_queries
from stacks.watched import Watched

_OPERATORS: dict[Breach, cloudwatch.ComparisonOperator] = {
    "reaches": cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    "falls below": cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
}
_MISSING: dict[Missing, cloudwatch.TreatMissingData] = {
    "notBreaching": cloudwatch.TreatMissingData.NOT_BREACHING,
    "breaching": cloudwatch.TreatMissingData.BREACHING,
    "ignore": cloudwatch.TreatMissingData.IGNORE,
}


class ObservabilityStack(cdk.Stack):
    """Watches one stage. Other stacks do not know it."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage, watched: Watched) -> None:
        super().__init__(
            scope, construct_id, description="Firstwrite: alarms and dashboard", env=environment(stage), tags=stage.tags
        )
        self._stage = stage
        self._topics = {severity: self._make_topic(severity) for severity in ("page", "warn")}
        alarms = [self._make_alarm(spec) for spec in alarm_specs(stage, watched)]
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=cdk.Duration.hours(3))
        for row in rows(watched, alarms):
            dashboard.add_widgets(*row)
        if stage.saved_queries:
            save_queries(self, stage.name, watched.functions)
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
            comparison_operator=_OPERATORS[spec.breach],
            evaluation_periods=spec.window,
            datapoints_to_alarm=spec.breaches,
            treat_missing_data=_MISSING[spec.missing],
            alarm_description=spec.description,
        )
        action = actions.SnsAction(self._topics[spec.severity])
        alarm.add_alarm_action(action)
        alarm.add_ok_action(action)
        return alarm
