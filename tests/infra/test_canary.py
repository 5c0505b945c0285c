"""What holds of rolling out a new version."""

from tests.infra.templates import SynthesizedStage, as_list, flat

CALLED = {"CacheFunction", "ClaimFunction"}


def test_in_production_requests_go_through_aliases(prod: SynthesizedStage) -> None:
    """The API calls aliases, so that a new version gets traffic only by way of its canary."""
    targets = [
        flat(each.properties["IntegrationUri"])
        for each in prod.resources("AWS::ApiGatewayV2::Integration", stack="api")
    ]
    assert len(targets) == len(CALLED)
    for function in CALLED:
        assert any(f"{function}CanaryAlias" in target for target in targets)


def test_a_version_that_fails_is_rolled_back(prod: SynthesizedStage) -> None:
    """A tenth of the requests first; an alarm on the alias's errors stops and undoes the deployment."""
    groups = prod.resources("AWS::CodeDeploy::DeploymentGroup")
    assert len(groups) == len(CALLED)
    for group in groups:
        assert group.properties["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent5Minutes"
        assert group.properties["AutoRollbackConfiguration"]["Enabled"] is True
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.properties["AutoRollbackConfiguration"]["Events"]
        assert group.properties["AlarmConfiguration"]["Enabled"] is True


def test_code_deploy_may_shift_these_aliases_and_read_alarms(prod: SynthesizedStage) -> None:
    """Its role names its actions, holds no managed policy, and writes nothing but the alias."""
    roles = [role for role in prod.resources("AWS::IAM::Role") if "Canary/Role" in role.path]
    assert len(roles) == len(CALLED)
    for role in roles:
        assert "ManagedPolicyArns" not in role.properties
        (policy,) = role.properties["Policies"]
        actions = {action for each in policy["PolicyDocument"]["Statement"] for action in as_list(each["Action"])}
        assert actions == {
            "cloudwatch:DescribeAlarms",
            "lambda:GetAlias",
            "lambda:GetProvisionedConcurrencyConfig",
            "lambda:UpdateAlias",
        }


def test_other_stages_roll_out_at_once(dev: SynthesizedStage, local: SynthesizedStage) -> None:
    """Where nobody would miss a minute, a deploy is a deploy."""
    for stage in (dev, local):
        assert stage.resources("AWS::CodeDeploy::DeploymentGroup") == []
        assert stage.resources("AWS::Lambda::Alias") == []
