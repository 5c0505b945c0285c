"""What holds of the stack that is wrong on purpose."""

from tests.infra.templates import SynthesizedStage, as_list, flat


def test_prod_has_no_demo(prod: SynthesizedStage) -> None:
    """Production has neither the naive twins nor a source that calls the stub."""
    assert set(prod.stacks) == {"data", "api", "observability"}
    assert {"PaidFunction", "NaiveFunction"}.isdisjoint(each.path.partition("/")[0] for each in prod.functions())


def test_demo_functions_grants(dev: SynthesizedStage) -> None:
    """The demo writes to a table of its own and only reads the stock table."""

    def grants(function: str) -> set[tuple[str, str]]:
        return {
            (flat(statement["Resource"]), action)
            for statement in dev.statements_of(function)
            for action in as_list(statement["Action"])
            if not action.startswith("logs:")
        }

    assert grants("PaidFunction") == {
        ("<DemoTableEE720AED.Arn>", "dynamodb:GetItem"),
        ("<DemoTableEE720AED.Arn>", "dynamodb:UpdateItem"),
    }
    assert grants("NaiveFunction") == {
        ("<DemoTableEE720AED.Arn>", "dynamodb:GetItem"),
        ("<DemoTableEE720AED.Arn>", "dynamodb:PutItem"),
        ("<StockTable7710DF9DArnDBA3D2CA>", "dynamodb:GetItem"),
    }


def test_only_the_stub_is_open(dev: SynthesizedStage) -> None:
    """In AWS the paid API's stub is open, as somebody else's API would be; the twins ask for the stage's auth."""
    types = {
        each.properties["RouteKey"]: each.properties["AuthorizationType"]
        for each in dev.resources("AWS::ApiGatewayV2::Route", stack="demo")
    }
    assert types == {
        "GET /paid": "NONE",
        "GET /paid/calls": "NONE",
        "GET /naive/cache": "AWS_IAM",
        "POST /naive/items/{item}/claims": "AWS_IAM",
    }


def test_functions_reach_the_stub(local: SynthesizedStage, dev: SynthesizedStage) -> None:
    """In AWS functions get the stub's URL; on the local cloud a path to join to the endpoint they run behind."""

    def demo_url(stage: SynthesizedStage, function: str) -> str:
        properties = stage.resource("AWS::Lambda::Function", function).properties
        return flat(properties["Environment"]["Variables"]["DEMO_URL"])

    assert demo_url(dev, "NaiveFunction") == "<HttpApi9292168F.ApiEndpoint>"
    assert demo_url(local, "NaiveFunction") == "/_aws/execute-api/<HttpApi9292168F>/$default"
    assert demo_url(local, "CacheFunction") == "/_aws/execute-api/<HttpApi9292168FD77F32CA>/$default"
    assert flat(dev.templates["demo"]["Outputs"]["DemoUrl"]["Value"]) == "<HttpApi9292168F.ApiEndpoint>"
