"""What a stage's settings mean in the CDK's terms: where its stacks live, and how long what they hold."""

import aws_cdk as cdk
from aws_cdk import aws_logs as logs

from stacks.config import RetentionDays, Stage

_RETENTION: dict[RetentionDays, logs.RetentionDays] = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}


def environment(stage: Stage) -> cdk.Environment:
    """Say where a stage's stacks go; without an account, to whichever the credentials at deploy time name."""
    return cdk.Environment(account=stage.account, region=stage.region)


def log_retention(stage: Stage) -> logs.RetentionDays:
    """Say how long a stage keeps its logs."""
    return _RETENTION[stage.log_retention_days]


def removal(stage: Stage) -> cdk.RemovalPolicy:
    """Say whether what a stage wrote outlives its stacks."""
    return cdk.RemovalPolicy.RETAIN if stage.retain else cdk.RemovalPolicy.DESTROY
