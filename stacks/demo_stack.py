"""The wrong twins, on purpose, and the stub of a paid API that counts its calls. Never in a production stage."""

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import FunctionId, Stage
from stacks.constructs.bundle import Bundle
from stacks.constructs.function import Function
from stacks.constructs.http_api import Route, RoutedHttpApi
from stacks.constructs.nag import acknowledge
from stacks.constructs.settings import environment

GET, POST = apigw.HttpMethod.GET, apigw.HttpMethod.POST

ROUTES = (
    Route(method=GET, path="/paid", function="PaidFunction", public=True),
    Route(method=GET, path="/paid/calls", function="PaidFunction", public=True),
    Route(method=GET, path="/naive/cache", function="NaiveFunction"),
    Route(method=POST, path="/naive/items/{item}/claims", function="NaiveFunction"),
)


class DemoStack(cdk.Stack):
    """What the lab races against. `demo_url` is how the functions of this stage reach the stub."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        bundle: Bundle,
        stock_table: dynamodb.ITable,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Firstwrite: naive twins and a paid API's stub",
            env=environment(stage),
            tags=stage.tags,
        )
        table = self._make_table()
        http = RoutedHttpApi(self, "HttpApi", stage=stage, description="Firstwrite demo")
        self.demo_url = _reachable_url(http.api, stage)
        paid = Function(
            self,
            "PaidFunction",
            stage=stage,
            bundle=bundle,
            handler="demo.paid.handle",
            service="demo",
            description="Stub of a paid API: does as it is told and counts its calls",
            environment={"DEMO_TABLE": table.table_name},
            statements=[
                iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:UpdateItem"], resources=[table.table_arn])
            ],
            memory_mb=512,
        )
        naive = Function(
            self,
            "NaiveFunction",
            stage=stage,
            bundle=bundle,
            handler="demo.naive.handle",
            service="demo",
            description="Check-then-act twins of the cache and of claims, wrong on purpose",
            environment={
                "DEMO_TABLE": table.table_name,
                "STOCK_TABLE": stock_table.table_name,
                "DEMO_URL": self.demo_url,
            },
            statements=[
                iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:PutItem"], resources=[table.table_arn]),
                iam.PolicyStatement(actions=["dynamodb:GetItem"], resources=[stock_table.table_arn]),
            ],
        )
        self.functions: dict[FunctionId, lambda_.Function] = {
            "PaidFunction": paid.function,
            "NaiveFunction": naive.function,
        }
        http.add_routes(ROUTES, self.functions)
        cdk.CfnOutput(self, "DemoUrl", value=http.api.api_endpoint)

    def _make_table(self) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "DemoTable",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        acknowledge(table, "AwsSolutions-DDB3", "It holds the counts of one run of the lab.")
        return table


def _reachable_url(api: apigw.HttpApi, stage: Stage) -> str:
    """Say how functions reach the demo's API.

    The local cloud serves it on its own port, which only a running function knows (AWS_ENDPOINT_URL): there it
    is a path to join to that.
    """
    return f"/_aws/execute-api/{api.api_id}/$default" if stage.is_local else api.api_endpoint
