"""The alarms on what the cache and the claims count themselves."""

from collections.abc import Container, Iterator

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.alarm_spec import AlarmSpec
from stacks.config import Stage
from stacks.metrics import TABLE_LABELS, WRITE_OUTCOMES, Service, own, total

_SERVICES: tuple[Service, ...] = ("cache", "claim")
AUDIT_HOURS = 3
"""An audit runs every hour; after so many without one, somebody should look."""


def cache_specs(stage: Stage) -> Iterator[AlarmSpec]:
    """Are we paying once a key?"""
    limits = stage.alarms
    yield AlarmSpec(
        name="PerhapsPaidTwice",
        metric=_calls_above_what_was_asked_for(),
        threshold=limits.calls_perhaps_paid_twice_per_minute,
        breaches=1,
        window=5,
        severity="page",
        meaning="More upstream calls than misses and refreshes: a caller died or was slow, and its call was repeated.",
        runbook="Perhaps paid twice",
        needs_metric_math=True,
    )
    yield AlarmSpec(
        name="SpendLimitReached",
        metric=own("SpendLimitReached", "cache"),
        threshold=limits.spend_limit_refusals_per_minute,
        breaches=1,
        window=5,
        severity="page",
        meaning="A source has used up its calls of the minute, and callers are turned away.",
        runbook="Spend limit reached",
    )
    yield AlarmSpec(
        name="LeasesTakenOver",
        metric=own("LeasesTakenOver", "cache"),
        threshold=limits.leases_taken_over_per_minute,
        breaches=1,
        window=5,
        severity="warn",
        meaning="A lease ran out before its owner was done, and somebody else took over.",
        runbook="Leases taken over",
    )
    yield AlarmSpec(
        name="LateWinners",
        metric=own("LateWinners", "cache"),
        threshold=limits.late_winners_per_minute,
        breaches=1,
        window=5,
        severity="warn",
        meaning="A result came after its lease had ended, and was fenced off.",
        runbook="Late winners",
    )
    yield AlarmSpec(
        name="ResultsNotStored",
        metric=own("ResultsNotStored", "cache"),
        threshold=limits.results_not_stored_per_minute,
        breaches=1,
        window=5,
        severity="warn",
        meaning="A paid result could not be kept; its caller got it, the next one pays again.",
        runbook="Results not stored",
    )
    yield AlarmSpec(
        name="WaitsTimedOut",
        metric=own("CacheWaitsTimedOut", "cache"),
        threshold=limits.waits_timed_out_per_minute,
        breaches=2,
        window=5,
        severity="warn",
        meaning="Callers waited for somebody else's call for as long as they may, and went without an answer.",
        runbook="Waits timed out",
    )
    yield AlarmSpec(
        name="UpstreamFailures",
        metric=own("UpstreamFailures", "cache"),
        threshold=limits.upstream_failures_per_minute,
        breaches=3,
        window=5,
        severity="warn",
        meaning="Paid APIs fail or do not answer in time.",
        runbook="Upstream failures",
    )


def _calls_above_what_was_asked_for() -> cloudwatch.MathExpression:
    """Count the calls of leases that were taken over.

    Who finds no result, or refreshes one, is counted as that and then calls, or is refused the call; who takes a lease
    over only calls. Without the refused, a source at its limit would hide calls that were paid twice.
    """
    made = {"calls": "UpstreamCalls", "limited": "SpendLimitReached", "broken": "CircuitOpen"}
    wanted = {"misses": "CacheMisses", "refreshes": "CacheRefreshes"}
    return cloudwatch.MathExpression(
        expression=f"{total(list(made))} - {total(list(wanted))}",
        using_metrics={part: own(name, "cache") for part, name in (made | wanted).items()},
        label="calls above misses and refreshes",
        period=cdk.Duration.minutes(1),
    )


def claim_specs(stage: Stage, functions: Container[str]) -> Iterator[AlarmSpec]:
    """Are we selling what we have? What a schedule counts is watched where there is the schedule."""
    limits = stage.alarms
    yield AlarmSpec(
        name="AuditMismatch",
        metric=own("AuditMismatches", "claim", minutes=5),
        threshold=limits.audit_mismatches,
        breaches=1,
        window=15,  # longer than the hour between two audits: only a clean one ends it
        severity="page",
        meaning="The claims of an item do not add up to its stock.",
        runbook="Audit mismatch",
    )
    if "AuditFunction" in functions:
        yield AlarmSpec(
            name="AuditSilent",
            metric=own("AuditMismatches", "claim", statistic="SampleCount", minutes=60),
            threshold=1,
            breaches=AUDIT_HOURS,
            window=AUDIT_HOURS,
            severity="warn",
            meaning="No item was audited for hours.",
            runbook="Schedules silent",
            breach="falls below",
            missing="breaching",
        )
    if "ExpiryFunction" in functions:
        yield from _expiry_specs(stage)


def _expiry_specs(stage: Stage) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        name="ExpirySilent",
        metric=own("ExpiriesCutShort", "claim", statistic="SampleCount", minutes=5),
        threshold=1,
        breaches=2,
        window=3,
        severity="warn",
        meaning="The schedule that expires holds does not run, or does not finish.",
        runbook="Schedules silent",
        breach="falls below",
        missing="breaching",
    )
    yield AlarmSpec(
        name="OldestDueHold",
        metric=own("OldestDueHoldSeconds", "claim", statistic="Maximum"),
        threshold=stage.alarms.oldest_due_hold_seconds,
        breaches=3,
        window=5,
        severity="warn",
        meaning="Holds stay long past their deadline, and their units with them.",
        runbook="Oldest due hold",
    )


def write_specs(stage: Stage) -> Iterator[AlarmSpec]:
    """How do conditional writes fare, and what had to be tried again?"""
    for table, (service, label) in TABLE_LABELS.items():
        yield AlarmSpec(
            name=f"{table}FailedShare",
            metric=_failed_share(service, label, stage),
            threshold=stage.alarms.failed_share_of_writes,
            breaches=3,
            window=5,
            severity="warn",
            meaning=f"Nearly every conditional write to the {table} loses: callers race for what is not there.",
            runbook="Conditional failures",
            needs_metric_math=True,
        )
    yield AlarmSpec(
        name="TransactionConflicts",
        metric=own("StoreRetries", "claim", reason="conflict"),
        threshold=stage.alarms.conflicts_per_minute,
        breaches=3,
        window=5,
        severity="warn",
        meaning="Claims on one item get in each other's way.",
        runbook="Transaction conflicts",
    )
    for service in _SERVICES:
        yield AlarmSpec(
            name=f"{service.capitalize()}ThrottleRetries",
            metric=own("StoreRetries", service, reason="throttled"),
            threshold=stage.alarms.throttle_retries_per_minute,
            breaches=3,
            window=5,
            severity="warn",
            meaning=f"DynamoDB throttles, and the {service} functions try again.",
            runbook="Throttled requests",
        )
        yield AlarmSpec(
            name=f"{service.capitalize()}Faults",
            metric=own("Faults", service),
            threshold=stage.alarms.faults_per_minute,
            breaches=1,
            window=5,
            severity="page",
            meaning=f"A {service} function met what its code does not allow for: data of another form, or a bug.",
            runbook="Faults",
        )


def _failed_share(service: Service, label: str, stage: Stage) -> cloudwatch.MathExpression:
    writes = total(WRITE_OUTCOMES)
    least = stage.alarms.failed_share_least_writes
    return cloudwatch.MathExpression(
        # Three callers of whom two lose are no storm.
        expression=f"IF({writes} >= {least}, FILL(rejected, 0) / {writes}, 0)",
        using_metrics={
            outcome: own("ConditionalWrites", service, table=label, outcome=outcome) for outcome in WRITE_OUTCOMES
        },
        label="failed share",
        period=cdk.Duration.minutes(1),
    )
