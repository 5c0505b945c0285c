"""What holds of the functions, the HTTP API and its grants."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import aws_cdk.aws_apigatewayv2 as apigw
import pytest

from firstwrite.claim.routes import DECIDE_WITHIN_MS
from stacks.api_stack import swallowed_operator_routes
from stacks.config import FUNCTION_TIMEOUT_S, GATEWAY_LIMIT_S
from stacks.constructs.http_api import Route
from tests.infra.templates import CONTEXT, Resource, StageFixture, SynthesizedStage, as_list, flat, synthesize

LOGS = ("logs:CreateLogStream", "logs:PutLogEvents")
STOCK_ARN = "<StockTable7710DF9DArnDBA3D2CA>"
DUE_ARN = f"{STOCK_ARN}/index/due"
QUEUE_ARN = "<IntakeQueue6FB53B87.Arn>"


def grants(stage: SynthesizedStage, function: str) -> dict[str, set[str]]:
    """What a function may do: actions by resource."""
    return {
        flat(resource): set(as_list(statement["Action"]))
        for statement in stage.statements_of(function)
        for resource in as_list(statement["Resource"])
    }


def routes(stage: SynthesizedStage, stack: str = "api") -> dict[str, Resource]:
    """The routes of one API by their key."""
    return {each.properties["RouteKey"]: each for each in stage.resources("AWS::ApiGatewayV2::Route", stack=stack)}


CACHE_ACCESS = {
    "<CacheTableC1E6DF7EArn00091B0B>": {
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
    },
    "<OverflowBucket3071ED27Arn19E05632>/overflow/*": {"s3:GetObject", "s3:PutObject"},
    "<OverflowBucket3071ED27Arn19E05632>": {"s3:ListBucket"},
}


def test_cache_function_grants(stage: SynthesizedStage) -> None:
    """The cache function reaches its table, overflow bodies, the refresh function and its log, by literal actions."""
    found = grants(stage, "CacheFunction")
    refresh = next(resource for resource in found if "RefreshFunction" in resource)
    assert found.pop(refresh) == {"lambda:InvokeFunction"}
    assert found == {"<CacheFunctionLogs2DC9496C.Arn>": {*LOGS}, **CACHE_ACCESS}


def test_refresh_function_grants(stage: SynthesizedStage) -> None:
    """The refresh function may do to the cache what the cache function may, and calls no function."""
    found = grants(stage, "RefreshFunction")
    log = next(resource for resource in found if "RefreshFunctionLogs" in resource)
    assert found.pop(log) == {*LOGS}
    assert found == CACHE_ACCESS


def test_a_refresh_is_not_repeated_when_it_is_old_or_failed(stage: SynthesizedStage) -> None:
    """Lambda would repeat an asynchronous event twice, for hours; whoever serves stale next asks again instead."""
    configs = stage.resources("AWS::Lambda::EventInvokeConfig")
    (config,) = (each for each in configs if each.path.startswith("RefreshFunction/"))
    assert (config.properties["MaximumRetryAttempts"], config.properties["MaximumEventAgeInSeconds"]) == (0, 60)


def stock_access(*calls: str) -> set[str]:
    """The actions that let a function make these calls."""
    return {f"dynamodb:{call}" for call in calls}


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (
            "ClaimFunction",
            {
                STOCK_ARN: stock_access("BatchGetItem", "GetItem", "PutItem", "Query", "UpdateItem"),
                DUE_ARN: stock_access("Query"),
                QUEUE_ARN: {"sqs:SendMessage"},
            },
        ),
        (
            "QueueFunction",
            {
                STOCK_ARN: stock_access("BatchGetItem", "GetItem", "PutItem", "UpdateItem"),
                DUE_ARN: stock_access("Query"),
                QUEUE_ARN: {"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"},
            },
        ),
        (
            "ExpiryFunction",
            {STOCK_ARN: stock_access("BatchGetItem", "GetItem", "UpdateItem"), DUE_ARN: stock_access("Query")},
        ),
        ("AuditFunction", {STOCK_ARN: stock_access("BatchGetItem", "GetItem", "PutItem", "Query")}),
    ],
)
def test_claim_functions_grants(stage: SynthesizedStage, function: str, wanted: dict[str, set[str]]) -> None:
    """Each claim function may make the calls that it makes, and none that deletes from the table or scans it."""
    found = grants(stage, function)
    log = next(resource for resource in found if f"{function}Logs" in resource)
    assert found.pop(log) == {*LOGS}
    assert found == wanted


def test_claims_wait_in_a_queue_that_loses_none(stage: SynthesizedStage) -> None:
    """Both queues are encrypted and refuse plain HTTP; what fails five times waits two weeks for a person."""
    queue, dead_letters = (stage.resource("AWS::SQS::Queue", f"Intake/{name}") for name in ("Queue", "DeadLetters"))
    for each in (queue, dead_letters):
        assert each.properties["SqsManagedSseEnabled"] is True
        assert "QueueName" not in each.properties
    redrive = queue.properties["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == 5
    assert "IntakeDeadLetters" in flat(redrive["deadLetterTargetArn"])
    assert dead_letters.properties["MessageRetentionPeriod"] == 14 * 24 * 3600
    policies = stage.resources("AWS::SQS::QueuePolicy")
    assert len(policies) == 2
    for policy in policies:
        (statement,) = policy.properties["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_message_in_hand_is_hidden_long_enough(stage: SynthesizedStage) -> None:
    """The visibility timeout is at least six times the function's timeout, and the batching window on top."""
    (source,) = stage.resources("AWS::Lambda::EventSourceMapping")
    function = stage.resource("AWS::Lambda::Function", "QueueFunction").properties
    queue = stage.resource("AWS::SQS::Queue", "Intake/Queue").properties
    window_s = source.properties["MaximumBatchingWindowInSeconds"]
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"] + window_s
    assert source.properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source.properties["BatchSize"] == 99
    assert window_s == 1


def test_schedules_run_and_are_not_repeated(stage: SynthesizedStage) -> None:
    """Holds expire every minute, items are audited every hour, and a failed run waits for the next."""
    rules = {
        flat(each.properties["Targets"][0]["Arn"]): each.properties for each in stage.resources("AWS::Events::Rule")
    }
    found = {next(name for name in ("Expiry", "Audit") if name in arn): rule for arn, rule in rules.items()}
    assert {name: rule["ScheduleExpression"] for name, rule in found.items()} == {
        "Expiry": "rate(1 minute)",
        "Audit": "rate(1 hour)",
    }
    assert [rule["State"] for rule in found.values()] == ["ENABLED"] * 2
    configs = stage.resources("AWS::Lambda::EventInvokeConfig")
    assert {each.properties["MaximumRetryAttempts"] for each in configs} == {0}


def test_a_source_with_a_secret_may_read_it_and_no_other(tmp_path: Path) -> None:
    """A secret named in sources.toml is readable by the cache function alone, and only that one."""
    sources = tmp_path / "sources.toml"
    sources.write_text(
        '[sources.rates]\nurl = "https://api.example.com/latest"\n'
        'secret_header = { name = "Authorization", secret = "rates/api-key" }\n',
        encoding="utf-8",
    )
    stage = synthesize("prod", tmp_path / "out", sources=str(sources))
    arn = "arn:<AWS::Partition>:secretsmanager:<AWS::Region>:<AWS::AccountId>:secret:rates/api-key-??????"
    assert grants(stage, "CacheFunction")[arn] == {"secretsmanager:GetSecretValue"}
    assert arn not in grants(stage, "ClaimFunction")
    assert stage.nag_findings() == []


def test_no_function_has_a_wildcard(stage: SynthesizedStage) -> None:
    """No function's role names an action or a resource by a star, but for the overflow prefix."""
    for function in stage.functions():
        for resource, actions in grants(stage, function.path.partition("/")[0]).items():
            assert "*" not in "".join(actions)
            assert "dynamodb:Scan" not in actions
            assert "*" not in resource.removesuffix("/overflow/*")


def test_one_role_a_function_and_nothing_beside_it(stage: SynthesizedStage) -> None:
    """Each function has a role of its own that holds all of its rights: no managed policy, no policy elsewhere."""
    roles = [flat(each.properties["Role"]) for each in stage.functions()]
    assert len(set(roles)) == len(roles)
    assert stage.resources("AWS::IAM::Policy") == []
    others = ("CustomResourceProvider", "Canary/Role")  # the CDK's own, and CodeDeploy's: see test_canary.py
    ours = [each for each in stage.resources("AWS::IAM::Role") if not any(name in each.path for name in others)]
    assert len(ours) == len(roles)
    assert [each.path for each in ours if "ManagedPolicyArns" in each.properties] == []


def test_function_environment(dev: SynthesizedStage, prod: SynthesizedStage) -> None:
    """Functions learn their stage, tables and auth from the environment, and of the demo only where there is one."""
    cache = dev.resource("AWS::Lambda::Function", "CacheFunction").properties["Environment"]["Variables"]
    assert {name: flat(value) for name, value in cache.items()} == {
        "STAGE": "dev",
        "CACHE_TABLE": "<CacheTableC1E6DF7E9FB60BD7>",
        "OVERFLOW_BUCKET": "<OverflowBucket3071ED2730220026>",
        "AUTH": "iam",
        "DEMO_URL": "<HttpApi9292168FApiEndpointE972B43D>",
        "REFRESH_FUNCTION": flat(cache["REFRESH_FUNCTION"]),
        "POWERTOOLS_SERVICE_NAME": "cache",
        "POWERTOOLS_METRICS_NAMESPACE": "Firstwrite",
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
    assert "RefreshFunction" in flat(cache["REFRESH_FUNCTION"])
    claim = dev.resource("AWS::Lambda::Function", "ClaimFunction").properties["Environment"]["Variables"]
    assert flat(claim["STOCK_TABLE"]) == "<StockTable7710DF9D3727BF4F>"
    assert claim["POWERTOOLS_SERVICE_NAME"] == "claim"
    without = prod.resource("AWS::Lambda::Function", "CacheFunction").properties["Environment"]["Variables"]
    assert "DEMO_URL" not in without


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_functions_run_on_arm64_with_a_current_python(stage_of: StageFixture, name: str) -> None:
    """In AWS every function runs on arm64 and the Python its packages were chosen for."""
    for function in stage_of(name).functions():
        assert function.properties["Architectures"] == ["arm64"]
        assert function.properties["Runtime"] == "python3.13"


def test_functions_of_a_stage_share_one_asset(stage: SynthesizedStage) -> None:
    """One bundle serves every function of every stack of a stage."""
    assert len({flat(each.properties["Code"]["S3Key"]) for each in stage.functions()}) == 1


def test_function_timeout_is_below_the_gateways_limit(stage: SynthesizedStage) -> None:
    """A function gives up before the gateway does, so that every answer is ours; the audit answers nobody."""
    assert FUNCTION_TIMEOUT_S < GATEWAY_LIMIT_S
    for function in stage.functions():
        if function.path.startswith("AuditFunction/"):
            continue
        assert function.properties["Timeout"] < GATEWAY_LIMIT_S


def test_nothing_is_waited_for_longer_than_the_gateway_waits(stage: SynthesizedStage) -> None:
    """The gateway keeps its own limit, and a claim is tried for less time than its function has."""
    for integration in stage.resources("AWS::ApiGatewayV2::Integration"):
        assert "TimeoutInMillis" not in integration.properties
    claim = stage.resource("AWS::Lambda::Function", "ClaimFunction").properties
    assert DECIDE_WITHIN_MS < claim["Timeout"] * 1000 < GATEWAY_LIMIT_S * 1000


def test_log_groups_are_explicit(stage: SynthesizedStage) -> None:
    """Every function and API writes to a log group of its own stack that expires, and no function sets that up."""
    assert stage.resources("Custom::LogRetention") == []
    groups = {(each.stack, each.logical_id): each for each in stage.resources("AWS::Logs::LogGroup")}
    assert all(each.properties["RetentionInDays"] for each in groups.values())
    for function in stage.functions():
        assert (function.stack, function.properties["LoggingConfig"]["LogGroup"]["Ref"]) in groups
    for gateway in stage.resources("AWS::ApiGatewayV2::Stage"):
        destination = gateway.properties["AccessLogSettings"]["DestinationArn"]
        assert (gateway.stack, destination["Fn::GetAtt"][0]) in groups


def test_access_logs_tell_no_secrets(stage: SynthesizedStage) -> None:
    """Access logs name the route and never the path, in which claimants and keys may stand."""
    for gateway in stage.resources("AWS::ApiGatewayV2::Stage"):
        assert "$context.routeKey" in gateway.properties["AccessLogSettings"]["Format"]
        assert "$context.path" not in gateway.properties["AccessLogSettings"]["Format"]


def test_routes_are_explicit(stage: SynthesizedStage) -> None:
    """The API answers the calls in the table of routes and has no catch-all."""
    assert set(routes(stage)) == {
        "GET /v1/cache/{source}",
        "DELETE /v1/cache/{source}",
        "GET /v1/cache/{source}/entry",
        "GET /v1/sources",
        "PUT /v1/items/{item}",
        "GET /v1/items/{item}",
        "POST /v1/items/{item}/stock",
        "POST /v1/items/{item}/claims",
        "GET /v1/items/{item}/claims",
        "POST /v1/items/{item}/audit",
        "GET /v1/claims/{claim_id}",
        "POST /v1/claims/{claim_id}/confirm",
        "POST /v1/claims/{claim_id}/release",
    }


def test_one_integration_a_function(stage: SynthesizedStage) -> None:
    """Routes of one function share one integration, in payload format 2.0."""
    integrations = stage.resources("AWS::ApiGatewayV2::Integration", stack="api")
    assert len({flat(each.properties["IntegrationUri"]) for each in integrations}) == len(integrations) == 2
    assert {each.properties["PayloadFormatVersion"] for each in integrations} == {"2.0"}


def test_throttles_are_the_stage_s(stage: SynthesizedStage) -> None:
    """Every API has explicit throttles, those of its stage in cdk.json."""
    name = stage.stacks["api"].stack_name.split("-")[1]
    wanted = {
        "ThrottlingRateLimit": CONTEXT["stages"][name]["throttle_rate"],
        "ThrottlingBurstLimit": CONTEXT["stages"][name]["throttle_burst"],
    }
    gateways = stage.resources("AWS::ApiGatewayV2::Stage")
    assert [each.properties["DefaultRouteSettings"] for each in gateways] == [wanted] * len(gateways)


def test_operators_calls_have_a_throttle_of_their_own(stage: SynthesizedStage) -> None:
    """Each operator route, and no other, is held to the stage's rate for operators."""
    (gateway,) = stage.resources("AWS::ApiGatewayV2::Stage", stack="api")
    assert set(gateway.properties["RouteSettings"]) == OPERATOR_CALLS
    for limits in gateway.properties["RouteSettings"].values():
        assert limits == {"ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 100}


def test_cors_headers(stage: SynthesizedStage) -> None:
    """A browser may send the idempotency key and read what tells it about replays, caching and retries."""
    for api in stage.resources("AWS::ApiGatewayV2::Api"):
        configuration = api.properties["CorsConfiguration"]
        assert {"Idempotency-Key", "Prefer", "If-None-Match"} <= set(configuration["AllowHeaders"])
        assert set(configuration["ExposeHeaders"]) == {
            "Retry-After",
            "Cache-Status",
            "Age",
            "ETag",
            "Location",
            "Idempotency-Replayed",
        }
        assert set(configuration["AllowMethods"]) == {"GET", "POST", "PUT", "DELETE"}
        assert not configuration.get("AllowCredentials")


def test_every_route_asks_for_iam_by_default(dev: SynthesizedStage, prod: SynthesizedStage) -> None:
    """Where nothing else is set, no call is answered unsigned."""
    for stage in (dev, prod):
        assert {each.properties["AuthorizationType"] for each in routes(stage).values()} == {"AWS_IAM"}


def test_local_routes_are_open(local: SynthesizedStage) -> None:
    """On the local cloud a plain curl works; the caller is named by a header."""
    assert {each.properties["AuthorizationType"] for each in routes(local).values()} == {"NONE"}
    assert local.resources("AWS::IAM::ManagedPolicy") == []


OPERATOR_CALLS = {
    "DELETE /v1/cache/{source}",
    "GET /v1/cache/{source}/entry",
    "GET /v1/sources",
    "PUT /v1/items/{item}",
    "POST /v1/items/{item}/stock",
    "GET /v1/items/{item}/claims",
    "POST /v1/items/{item}/audit",
}


def test_jwt_routes_and_the_operators_scope(tmp_path: Path) -> None:
    """Under jwt every call needs a token, and an operator's call a scope as well."""
    jwt = {"auth": "jwt", "jwt_issuer": "https://issuer.example.com", "jwt_audience": ["firstwrite"]}
    stage = synthesize("prod", tmp_path, changes=jwt)
    found = routes(stage)
    assert {each.properties["AuthorizationType"] for each in found.values()} == {"JWT"}
    scopes = {key: each.properties.get("AuthorizationScopes") for key, each in found.items()}
    assert {key for key, scope in scopes.items() if scope == ["firstwrite/operator"]} == OPERATOR_CALLS
    assert {scopes[key] for key in set(scopes) - OPERATOR_CALLS} == {None}
    (authorizer,) = stage.resources("AWS::ApiGatewayV2::Authorizer")
    assert authorizer.properties["JwtConfiguration"] == {
        "Issuer": "https://issuer.example.com",
        "Audience": ["firstwrite"],
    }
    assert stage.nag_findings() == []


def test_callers_and_operators_have_grants_of_their_own(dev: SynthesizedStage) -> None:
    """The caller's policy lets no operator's call through; the operator's lets every call through."""

    def calls_of(policy: str, effect: str = "Allow") -> set[str]:
        document = dev.resource("AWS::IAM::ManagedPolicy", policy).properties["PolicyDocument"]
        statements = [statement for statement in document["Statement"] if statement["Effect"] == effect]
        resources = [arn for statement in statements for arn in as_list(statement["Resource"])]
        return {flat(arn).partition("/$default/")[2] for arn in resources}

    calls = {
        "GET/v1/cache/*",
        "GET/v1/items/*",
        "POST/v1/items/*/claims",
        "GET/v1/claims/*",
        "POST/v1/claims/*/confirm",
        "POST/v1/claims/*/release",
    }
    operators = {re.sub(r"\{\w+\}", "*", call).replace(" ", "") for call in OPERATOR_CALLS}
    assert calls_of("CallerPolicy") == calls
    assert calls_of("OperatorPolicy") == calls | operators
    # A star also matches slashes: what the caller's grants would let through beside their own calls is denied.
    swallowed = {call for call in operators if any(fnmatchcase(call, granted) for granted in calls)}
    assert calls_of("CallerPolicy", "Deny") == swallowed
    assert {"ApiUrl", "CallerPolicyArn", "OperatorPolicyArn"} <= set(dev.templates["api"]["Outputs"])


def test_a_star_in_a_callers_grant_swallows_no_operators_route() -> None:
    """An operator's route below a caller's is found, so that the caller's policy denies it."""
    get = apigw.HttpMethod.GET
    item = Route(method=get, path="/v1/items/{item}", function="ClaimFunction")
    listing = Route(method=get, path="/v1/items/{item}/claims", function="ClaimFunction", operator=True)
    sources = Route(method=get, path="/v1/sources", function="CacheFunction", operator=True)
    removal = Route(method=apigw.HttpMethod.DELETE, path="/v1/items/{item}", function="ClaimFunction", operator=True)
    assert swallowed_operator_routes([item, listing, sources, removal]) == [listing]


def test_reserved_concurrency_is_per_function(tmp_path: Path) -> None:
    """A stage can cap one function's concurrency and leave the others alone."""
    stage = synthesize("prod", tmp_path, changes={"reserved_concurrency": {"CacheFunction": 7}})
    capped = {
        each.path.partition("/")[0]: each.properties.get("ReservedConcurrentExecutions") for each in stage.functions()
    }
    assert {name: cap for name, cap in capped.items() if cap} == {"CacheFunction": 7}
