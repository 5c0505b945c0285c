"""An HTTP API made from a table of routes, throttled, logged and authorized the way the stage says."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.config import FunctionId, Stage
from stacks.constructs.nag import acknowledge
from stacks.constructs.settings import log_retention, removal

ALLOWED_HEADERS = [
    "Authorization",
    "Cache-Control",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Prefer",
    "X-Amz-Date",
    "X-Amz-Security-Token",
    "X-Caller",
]
EXPOSED_HEADERS = ["Age", "Cache-Status", "ETag", "Idempotency-Replayed", "Location", "Retry-After"]

ACCESS_LOG_FIELDS = {
    "at": "$context.requestTime",
    "request_id": "$context.requestId",
    "route": "$context.routeKey",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "integration_ms": "$context.integrationLatency",
    "integration_error": "$context.integrationErrorMessage",
    "error": "$context.error.message",
    "source_ip": "$context.identity.sourceIp",
}
"""No path and no query: they hold claimants, keys and parameters."""

DEFAULT_STAGE = "$default"


@dataclass(frozen=True, kw_only=True)
class Route:
    """One line of an API's table of routes."""

    method: apigw.HttpMethod
    path: str
    function: FunctionId
    operator: bool = False
    """Needs a grant of its own."""
    public: bool = False
    """Open to anyone whatever the stage's auth: only the stub of somebody else's API."""

    @property
    def arn_path(self) -> str:
        """The path as IAM resources name it, a star for each parameter."""
        return re.sub(r"\{[^}]*\}", "*", self.path)


class RoutedHttpApi(Construct):
    """An HTTP API with explicit routes, one integration a function, and a throttle. `api` is the API itself."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        description: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self.api = apigw.HttpApi(
            self,
            "Api",
            description=description,
            create_default_stage=False,
            cors_preflight=apigw.CorsPreflightOptions(
                allow_origins=list(stage.cors_origins),
                allow_methods=[
                    apigw.CorsHttpMethod.GET,
                    apigw.CorsHttpMethod.POST,
                    apigw.CorsHttpMethod.PUT,
                    apigw.CorsHttpMethod.DELETE,
                ],
                allow_headers=ALLOWED_HEADERS,
                expose_headers=EXPOSED_HEADERS,
                max_age=cdk.Duration.hours(1),
            ),
        )
        self._add_stage(stage)

    def _add_stage(self, stage: Stage) -> None:
        access_logs = logs.LogGroup(self, "AccessLogs", retention=log_retention(stage), removal_policy=removal(stage))
        self._gateway_stage = apigw.CfnStage(
            self,
            "Stage",
            api_id=self.api.api_id,
            stage_name=DEFAULT_STAGE,
            auto_deploy=True,
            default_route_settings=apigw.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=stage.throttle_rate, throttling_burst_limit=stage.throttle_burst
            ),
            access_log_settings=apigw.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_logs.log_group_arn, format=json.dumps(ACCESS_LOG_FIELDS)
            ),
        )

    def add_routes(self, routes: Sequence[Route], functions: Mapping[FunctionId, lambda_.IFunction]) -> None:
        """Link every route to its function. Called once, after the functions, which may need the API's address."""
        stage = self._stage
        authorizer = _authorizer(stage)
        links = {
            function_id: integrations.HttpLambdaIntegration(
                function_id, functions[function_id], scope_permission_to_route=False
            )
            for function_id in dict.fromkeys(route.function for route in routes)
        }
        for route in routes:
            scopes = [stage.jwt_operator_scope] if route.operator and stage.auth == "jwt" else None
            (made,) = self.api.add_routes(
                path=route.path,
                methods=[route.method],
                integration=links[route.function],
                authorizer=apigw.HttpNoneAuthorizer() if route.public else authorizer,
                authorization_scopes=scopes,
            )
            if route.operator:
                self._throttle(made, route)
            if route.public:
                acknowledge(made, "AwsSolutions-APIG4", "It stands in for a third party's API and holds no data.")
            elif stage.auth == "header":
                acknowledge(
                    made, "AwsSolutions-APIG4", "The local cloud listens on loopback; X-Caller names the caller."
                )

    def _throttle(self, made: apigw.HttpRoute, route: Route) -> None:
        """Hold an operator's call to a rate of its own: some of them read a whole item, and people make them."""
        limits = {
            "ThrottlingRateLimit": self._stage.operator_throttle_rate,
            "ThrottlingBurstLimit": self._stage.operator_throttle_burst,
        }
        self._gateway_stage.add_property_override(f"RouteSettings.{route.method.value} {route.path}", limits)
        # API Gateway refuses settings of a route that is not there yet.
        self._gateway_stage.node.add_dependency(made)


def _authorizer(stage: Stage) -> apigw.IHttpRouteAuthorizer:
    match stage.auth:
        case "iam":
            return authorizers.HttpIamAuthorizer()
        case "jwt":
            # Stage has checked that both are there.
            return authorizers.HttpJwtAuthorizer("Jwt", stage.jwt_issuer or "", jwt_audience=list(stage.jwt_audience))
        case "header":
            return apigw.HttpNoneAuthorizer()
