"""What holds of the stages in cdk.json."""

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from stacks.config import Stage, load_stage
from stacks.errors import ConfigError
from tests.infra.templates import CONTEXT

JWT = {"auth": "jwt", "jwt_issuer": "https://issuer.example.com", "jwt_audience": ["firstwrite"]}


def load(**settings: object) -> Stage:
    """Load a stage called `web` that has just these settings."""
    return load_stage("web", {"web": settings})


def test_the_shipped_stages() -> None:
    """Local is open and has the demo, dev is signed and has it, prod is signed, kept and has none."""
    stages = {name: load_stage(name, CONTEXT["stages"]) for name in CONTEXT["stages"]}
    assert {name: (stage.auth, stage.demo, stage.retain, stage.metric_math) for name, stage in stages.items()} == {
        "local": ("header", True, False, False),
        "dev": ("iam", True, False, True),
        "prod": ("iam", False, True, True),
    }
    prod = stages["prod"]
    assert prod.point_in_time_recovery
    assert prod.deletion_protection
    assert prod.termination_protection


def test_a_stage_that_says_nothing_is_safe() -> None:
    """The defaults ask for signed calls on arm64, without the demo."""
    stage = load()
    assert (stage.auth, stage.architecture, stage.demo) == ("iam", "arm64", False)


def test_a_stage_is_frozen() -> None:
    """Nobody changes a stage after it was checked."""
    stage = load()
    with pytest.raises(ValidationError, match="frozen"):
        stage.auth = "header"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"throttle_rate": 0}, "stages.web.throttle_rate: 0 is refused: input should be greater than 0"),
        ({"throttle_rate": "9"}, "stages.web.throttle_rate: '9' is refused: input should be a valid integer"),
        ({"throttle_rate": True}, "stages.web.throttle_rate: True is refused: input should be a valid integer"),
        ({"auth": "none"}, "stages.web.auth: 'none' is refused: input should be 'iam', 'jwt' or 'header'"),
        ({"auth": "header"}, "stages.web.auth: 'header' lets a caller name itself, so it is for stage local only"),
        ({"auth": "jwt"}, "stages.web.auth: 'jwt' needs jwt_issuer and jwt_audience"),
        ({**JWT, "jwt_audience": []}, "stages.web.auth: 'jwt' needs jwt_issuer and jwt_audience"),
        ({**JWT, "jwt_issuer": "http://issuer.example.com"}, "stages.web.jwt_issuer: 'http://issuer.example.com' is"),
        ({**JWT, "jwt_operator_scope": ""}, "stages.web.jwt_operator_scope: '' is refused"),
        ({"architecture": "host"}, "stages.web.architecture: 'host' is for stage local only"),
        ({"demo": True, "retain": True}, "stages.web.demo: the demo stack is wrong on purpose and is refused"),
        ({"thorttle_rate": 1}, "stages.web.thorttle_rate: unknown key; allowed: name, account, "),
        ({"alarms": {"errors": 1}}, "stages.web.alarms.errors: unknown key; allowed: conditional_failures_per_minute"),
        ({"log_retention_days": 2}, "stages.web.log_retention_days: 2 is refused: input should be 1, 3, 7"),
        ({"reserved_concurrency": {"Cache": 1}}, "stages.web.reserved_concurrency.Cache"),
        ({"reserved_concurrency": {"CacheFunction": 0}}, "stages.web.reserved_concurrency.CacheFunction: 0 is refused"),
        ({"operator_throttle_rate": 0}, "stages.web.operator_throttle_rate: 0 is refused"),
        ({"account": "1"}, "stages.web.account: '1' is refused: string should match pattern"),
        ({"name": "prod"}, "stages.web.name: is the key of the stage and cannot be set"),
    ],
)
def test_a_wrong_setting_is_named(settings: Mapping[str, object], line: str) -> None:
    """A wrong setting stops synth with one line: file, stage, key and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        load(**settings)
    assert str(refused.value).startswith(f"cdk.json: {line}")
    assert "\n" not in str(refused.value)


def test_prod_cannot_have_the_demo() -> None:
    """The name prod alone is enough to refuse the demo."""
    with pytest.raises(ConfigError, match="demo: the demo stack is wrong on purpose"):
        load_stage("prod", {"prod": {"demo": True}})


def test_an_unknown_stage_lists_the_known_ones() -> None:
    """A mistyped stage is answered with the choice."""
    with pytest.raises(ConfigError, match=r"^stage 'prd' is unknown; choose local, dev or prod$"):
        load_stage("prd", CONTEXT["stages"])


@pytest.mark.parametrize("stages", [None, {}, [], "dev"])
def test_no_stages_at_all(stages: object) -> None:
    """A cdk.json without stages says so."""
    with pytest.raises(ConfigError, match=r"^cdk.json: context.stages: at least one stage is required$"):
        load_stage("dev", stages)


def test_a_stage_is_an_object() -> None:
    """A stage that is not an object of settings says so."""
    with pytest.raises(ConfigError, match=r"^cdk.json: stages.dev: must be an object of settings$"):
        load_stage("dev", {"dev": 5})
