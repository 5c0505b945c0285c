"""The functions, the HTTP API in front of them, and who may call it."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.config import FunctionId, Stage
from stacks.constructs import claim_intake
from stacks.constructs.bundle import Bundle
from stacks.constructs.canary import Canary
from stacks.constructs.claim_intake import ClaimIntake
from stacks.constructs.function import Function
from stacks.constructs.http_api import DEFAULT_STAGE, Route, RoutedHttpApi
from stacks.constructs.nag import acknowledge, star_in, star_in_output_of
from stacks.constructs.schedule import Schedule
from stacks.constructs.settings import environment
from stacks.data_stack import DUE_INDEX, OVERFLOW_ARN_OUTPUT, OVERFLOW_PREFIX, DataStack
from stacks.sources import Source

DELETE, GET, POST, PUT = (
    apigw.HttpMethod.DELETE,
    apigw.HttpMethod.GET,
    apigw.HttpMethod.POST,
    apigw.HttpMethod.PUT,
)

ROUTES = (
    Route(method=GET, path="/v1/cache/{source}", function="CacheFunction"),
    Route(method=DELETE, path="/v1/cache/{source}", function="CacheFunction", operator=True),
    Route(method=GET, path="/v1/cache/{source}/entry", function="CacheFunction", operator=True),
    Route(method=GET, path="/v1/sources", function="CacheFunction", operator=True),
    Route(method=PUT, path="/v1/items/{item}", function="ClaimFunction", operator=True),
    Route(method=GET, path="/v1/items/{item}", function="ClaimFunction"),
    Route(method=POST, path="/v1/items/{item}/stock", function="ClaimFunction", operator=True),
    Route(method=POST, path="/v1/items/{item}/claims", function="ClaimFunction"),
    Route(method=GET, path="/v1/items/{item}/claims", function="ClaimFunction", operator=True),
    Route(method=POST, path="/v1/items/{item}/audit", function="ClaimFunction", operator=True),
    Route(method=GET, path="/v1/claims/{claim_id}", function="ClaimFunction"),
    Route(method=POST, path="/v1/claims/{claim_id}/confirm", function="ClaimFunction"),
    Route(method=POST, path="/v1/claims/{claim_id}/release", function="ClaimFunction"),
)
"""Every call the API answers. A route that is not here is the gateway's own 404."""

AUDIT_TIMEOUT_S = 300
"""Nobody waits for it. What it leaves undone, the next run goes on with."""


class ApiStack(cdk.Stack):
    """The stateless part of a stage."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        bundle: Bundle,
        data: DataStack,
        sources: Mapping[str, Source],
        demo_url: str | None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Firstwrite: functions and HTTP API",
            env=environment(stage),
            tags=stage.tags,
        )
        cache_environment = {
            "CACHE_TABLE": data.cache_table.table_name,
            "OVERFLOW_BUCKET": data.overflow_bucket.bucket_name,
            "AUTH": stage.auth,
            **({"DEMO_URL": demo_url} if demo_url else {}),
        }
        refresh = Function(
            self,
            "RefreshFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.cache.handler.refresh",
            service="cache",
            description="Renews stale results in the background",
            environment=cache_environment,
            statements=[*_cache_access(data), *_secret_access(self, sources)],
        )
        # Whoever serves the stale result next asks again; a repeat of an old event would only pay later.
        refresh.function.configure_async_invoke(retry_attempts=0, max_event_age=cdk.Duration.seconds(60))
        cache = Function(
            self,
            "CacheFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.cache.handler.handle",
            service="cache",
            description="Single-flight cache in front of paid APIs",
            environment={**cache_environment, "REFRESH_FUNCTION": refresh.function.function_name},
            statements=[
                *_cache_access(data),
                *_secret_access(self, sources),
                iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[refresh.function.function_arn]),
            ],
        )
        for function in (cache, refresh):
            acknowledge(
                function.role,
                star_in_output_of(data, OVERFLOW_ARN_OUTPUT, f"/{OVERFLOW_PREFIX}*"),
                "The names of overflow bodies are made at run time; all of them are under one prefix.",
            )
        self.intake = ClaimIntake(self, "Intake")
        claim_environment = {"STOCK_TABLE": data.stock_table.table_name, "AUTH": stage.auth}
        claim = Function(
            self,
            "ClaimFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.claim.handler.handle",
            service="claim",
            description="Exact claims on limited stock",
            environment={**claim_environment, "INTAKE_QUEUE_URL": self.intake.queue.queue_url},
            statements=[
                *_claim_access(data.stock_table),
                iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.intake.queue.queue_arn]),
            ],
        )
        queue = Function(
            self,
            "QueueFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.claim.handler.take_batch",
            service="claim",
            description="Decides queued claims, many in one transaction",
            environment=claim_environment,
            statements=[
                *_stock_access(data.stock_table, "BatchGetItem", "GetItem", "PutItem", "UpdateItem"),
                *_due_access(data.stock_table),
                iam.PolicyStatement(
                    actions=["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
                    resources=[self.intake.queue.queue_arn],
                ),
            ],
            timeout_s=claim_intake.TIMEOUT_S,
        )
        self.intake.feed(queue.function)
        expiry = Function(
            self,
            "ExpiryFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.claim.handler.expire_due",
            service="claim",
            description="Gives back the units of holds that are due",
            environment=claim_environment,
            statements=[
                *_stock_access(data.stock_table, "BatchGetItem", "GetItem", "UpdateItem"),
                *_due_access(data.stock_table),
            ],
        )
        Schedule(
            self,
            "ExpirySchedule",
            function=expiry.function,
            every=cdk.Duration.minutes(1),
            description="Expires holds that are due",
        )
        audit = Function(
            self,
            "AuditFunction",
            stage=stage,
            bundle=bundle,
            handler="firstwrite.claim.handler.audit_all",
            service="claim",
            description="Recounts the claims of every item",
            environment=claim_environment,
            statements=_stock_access(data.stock_table, "BatchGetItem", "GetItem", "PutItem", "Query"),
            timeout_s=AUDIT_TIMEOUT_S,
        )
        Schedule(
            self,
            "AuditSchedule",
            function=audit.function,
            every=cdk.Duration.hours(1),
            description="Audits all items",
        )
        self.functions: dict[FunctionId, lambda_.Function] = {
            "CacheFunction": cache.function,
            "RefreshFunction": refresh.function,
            "ClaimFunction": claim.function,
            "QueueFunction": queue.function,
            "ExpiryFunction": expiry.function,
            "AuditFunction": audit.function,
        }
        self.http = RoutedHttpApi(self, "HttpApi", stage=stage, description="Firstwrite")
        self.http.add_routes(ROUTES, self._what_is_called(stage))
        cdk.CfnOutput(self, "ApiUrl", value=self.http.api.api_endpoint)
        if stage.auth == "iam":
            self._output_grants()

    def _what_is_called(self, stage: Stage) -> dict[FunctionId, lambda_.IFunction]:
        """Return what the API calls: functions, or where the stage rolls out gradually, aliases of them."""
        called: dict[FunctionId, lambda_.IFunction] = {**self.functions}
        for function_id in dict.fromkeys(route.function for route in ROUTES) if stage.canary else ():
            canary = Canary(self, f"{function_id}Canary", function=self.functions[function_id])
            acknowledge(
                canary.role,
                star_in(canary.role, canary.alarms_arn),
                "CodeDeploy asks for the states of alarms together; it can read them and nothing else.",
            )
            called[function_id] = canary.alias
        return called

    def _output_grants(self) -> None:
        """Offer two managed policies to attach to whoever calls. Attach one of them: the operator's holds all."""
        operator = iam.ManagedPolicy(
            self,
            "OperatorPolicy",
            description="May make every call of the Firstwrite API",
            statements=[
                iam.PolicyStatement(
                    actions=["execute-api:Invoke"], resources=[self._call_arn(route) for route in ROUTES]
                )
            ],
        )
        caller = iam.ManagedPolicy(
            self,
            "CallerPolicy",
            description="May make the calls of the Firstwrite API that need no operator",
            statements=[
                iam.PolicyStatement(
                    actions=["execute-api:Invoke"],
                    resources=[self._call_arn(route) for route in ROUTES if not route.operator],
                ),
                *self._refuse_operator_calls(),
            ],
        )
        for policy in (caller, operator):
            for arn in {self._call_arn(route) for route in ROUTES}:
                acknowledge(
                    policy,
                    star_in(policy, arn),
                    "IAM names a path parameter by a star; methods and paths are literal.",
                )
        cdk.CfnOutput(self, "CallerPolicyArn", value=caller.managed_policy_arn)
        cdk.CfnOutput(self, "OperatorPolicyArn", value=operator.managed_policy_arn)

    def _refuse_operator_calls(self) -> list[iam.PolicyStatement]:
        hidden = swallowed_operator_routes(ROUTES)
        if not hidden:
            return []
        return [
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=["execute-api:Invoke"],
                resources=[self._call_arn(route) for route in hidden],
            )
        ]

    def _call_arn(self, route: Route) -> str:
        return self.http.api.arn_for_execute_api(route.method.value, route.arn_path, DEFAULT_STAGE)


def swallowed_operator_routes(routes: Sequence[Route]) -> list[Route]:
    """Find operator routes that the ARN of a caller's route also matches.

    A star in an IAM resource matches slashes too: a grant of ``GET /v1/items/{item}`` is one of
    ``GET /v1/items/{item}/claims`` as well, unless that is denied.
    """
    return [
        route
        for route in routes
        if route.operator
        and any(
            route.method == other.method and fnmatchcase(route.arn_path, other.arn_path)
            for other in routes
            if not other.operator
        )
    ]


def _cache_access(data: DataStack) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            actions=["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
            resources=[data.cache_table.table_arn],
        ),
        iam.PolicyStatement(
            actions=["s3:GetObject", "s3:PutObject"],
            resources=[data.overflow_bucket.arn_for_objects(f"{OVERFLOW_PREFIX}*")],
        ),
        # Without it S3 answers 403 for a body that has expired, and that looks like a fault and not like a miss.
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[data.overflow_bucket.bucket_arn]),
    ]


def _secret_access(stack: cdk.Stack, sources: Mapping[str, Source]) -> list[iam.PolicyStatement]:
    names = sorted({source.secret_header.secret for source in sources.values() if source.secret_header})
    # Secrets Manager ends every ARN with a dash and six characters of its own choosing.
    arns = [
        stack.format_arn(
            service="secretsmanager",
            resource="secret",
            resource_name=f"{name}-??????",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        for name in names
    ]
    return [iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=arns)] if arns else []


def _claim_access(stock_table: dynamodb.ITable) -> list[iam.PolicyStatement]:
    return [
        *_stock_access(stock_table, "BatchGetItem", "GetItem", "PutItem", "Query", "UpdateItem"),
        *_due_access(stock_table),
    ]


def _stock_access(stock_table: dynamodb.ITable, *calls: str) -> list[iam.PolicyStatement]:
    """Allow calls on the stock table; a transaction needs those of its parts."""
    return [iam.PolicyStatement(actions=[f"dynamodb:{call}" for call in calls], resources=[stock_table.table_arn])]


def _due_access(stock_table: dynamodb.ITable) -> list[iam.PolicyStatement]:
    """Allow looking for holds that are due."""
    return [iam.PolicyStatement(actions=["dynamodb:Query"], resources=[f"{stock_table.table_arn}/index/{DUE_INDEX}"])]
