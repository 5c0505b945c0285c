"""What a stage has that can be looked at."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from stacks.config import FunctionId


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The parts of a stage that alarms and the dashboard are about."""

    prices: Mapping[str, float]
    """Dollars a call, by source."""
    tables: Mapping[str, dynamodb.ITable]
    functions: Mapping[FunctionId, lambda_.Function]
    api: apigw.HttpApi
    intake_queue: sqs.IQueue | None = None
    dead_letters: sqs.IQueue | None = None
