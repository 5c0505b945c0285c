"""A function that runs by itself."""

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct


class Schedule(Construct):
    """Runs `function` every `every`. A run that fails is not repeated: the next one does its work."""

    def __init__(
        self, scope: Construct, construct_id: str, *, function: lambda_.Function, every: cdk.Duration, description: str
    ) -> None:
        super().__init__(scope, construct_id)
        function.configure_async_invoke(retry_attempts=0, max_event_age=cdk.Duration.minutes(1))
        events.Rule(
            self,
            "Rule",
            description=description,
            schedule=events.Schedule.rate(every),
            targets=[targets.LambdaFunction(function, retry_attempts=0)],
        )
