"""A new version of a function takes a tenth of the requests first, and none if its alarm goes off.

Guarantees: requests go through the alias, so that what a stage serves changes only by CodeDeploy, which shifts back by
itself. It does not watch what a version does to data; that is the audit's.
"""

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct


class Canary(Construct):
    """An alias of `function`, and how it moves to a new version. `alias` is what to call."""

    def __init__(self, scope: Construct, construct_id: str, *, function: lambda_.Function) -> None:
        super().__init__(scope, construct_id)
        self.alias = lambda_.Alias(self, "Alias", alias_name="live", version=function.current_version)
        errors = cloudwatch.Alarm(
            self,
            "Errors",
            alarm_description="The version that is being rolled out crashes or times out; CodeDeploy rolls it back.",
            metric=self.alias.metric_errors(statistic="Sum", period=cdk.Duration.minutes(1)),
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarms_arn = cdk.Stack.of(self).format_arn(
            service="cloudwatch", resource="alarm", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            inline_policies={
                "Shift": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(
                            actions=["lambda:GetAlias", "lambda:GetProvisionedConcurrencyConfig", "lambda:UpdateAlias"],
                            resources=[function.function_arn, self.alias.function_arn],
                        ),
                        # The only form in which this action can be granted: CodeDeploy asks for several at once.
                        iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=[alarms_arn]),
                    ]
                )
            },
        )
        group = codedeploy.LambdaDeploymentGroup(
            self,
            "Deployment",
            alias=self.alias,
            role=role.without_policy_updates(),
            deployment_config=codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
            alarms=[errors],
        )
        group.node.add_dependency(role)
        self.role = role
        self.alarms_arn = alarms_arn
