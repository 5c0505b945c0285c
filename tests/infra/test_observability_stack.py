"""What holds of alarms and the dashboard."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstwrite.claim import outcomes, settling
from firstwrite.metrics import METRICS
from stacks import metrics
from tests.infra.templates import Json, Resource, SynthesizedStage, flat, synthesize


def alarms(stage: SynthesizedStage) -> dict[str, Resource]:
    """The alarms of a stage by name; those of a roll-out, which undo it, are in the API's stack."""
    found = stage.resources("AWS::CloudWatch::Alarm", stack="observability")
    return {each.path.partition("/")[0]: each for each in found}


def metrics_of(alarm: Resource) -> Iterator[Json]:
    """Every metric that an alarm is about, whether by itself or in an expression."""
    if "Metrics" not in alarm.properties:
        yield alarm.properties
    for query in alarm.properties.get("Metrics", ()):
        if "MetricStat" in query:
            yield query["MetricStat"]["Metric"]


def dashboard(stage: SynthesizedStage) -> Any:
    """The body of the one dashboard."""
    (found,) = stage.resources("AWS::CloudWatch::Dashboard")
    return json.loads(flat(found.properties["DashboardBody"]))


def actions(alarm: Resource, way: str = "AlarmActions") -> list[str]:
    """What an alarm does on its way there, or with `OKActions` back."""
    return [flat(action) for action in alarm.properties[way]]


PAGE, WARN = ["<PageTopicD5E18B2D>"], ["<WarnTopicFEEED862>"]
SIGNS_OF_LIFE = {"AuditSilent", "ExpirySilent"}


def test_every_alarm_is_complete(stage: SynthesizedStage) -> None:
    """Every alarm acts, says when it is over, what it means and where to read on, and needs M of N breaches."""
    assert alarms(stage)
    for alarm in alarms(stage).values():
        properties = alarm.properties
        level = re.match(r"\[(page|warn)\] \S.*\. See docs/runbook\.md, '[^']+'\.$", properties["AlarmDescription"])
        assert level
        assert actions(alarm) == actions(alarm, "OKActions") == (PAGE if level[1] == "page" else WARN)
        assert properties.get("ActionsEnabled", True)
        assert 1 <= properties["DatapointsToAlarm"] <= properties["EvaluationPeriods"]
        assert properties["EvaluationPeriods"] > 1


def test_silence_is_health_except_for_signs_of_life(stage: SynthesizedStage) -> None:
    """Each alarm says what silence means: nothing is wrong, except where something has to be heard."""
    for name, alarm in alarms(stage).items():
        wanted = "breaching" if name in SIGNS_OF_LIFE else "notBreaching"
        assert alarm.properties["TreatMissingData"] == wanted


def test_contention_only_warns(stage: SynthesizedStage) -> None:
    """Failed conditions of each table go to the warn topic, at a count that a perfect run does not reach."""
    for table in ("CacheTable", "StockTable"):
        alarm = alarms(stage)[f"{table}ConditionalFailures"].properties
        assert alarm["MetricName"] == "ConditionalCheckFailedRequests"
        assert [each["Name"] for each in alarm["Dimensions"]] == ["TableName"]
        assert table in flat(alarm["Dimensions"][0]["Value"])
        assert actions(alarms(stage)[f"{table}ConditionalFailures"]) == WARN
        assert alarm["Threshold"] > 900


FUNCTIONS = ("Cache", "Refresh", "Claim", "Queue", "Expiry", "Audit")


def test_harm_pages_and_nothing_else(prod: SynthesizedStage) -> None:
    """Money, stock and machinery that is broken wake somebody up; everything else waits for the morning."""
    paging = {name for name, alarm in alarms(prod).items() if actions(alarm) == PAGE}
    assert paging == {
        "PerhapsPaidTwice",
        "SpendLimitReached",
        "AuditMismatch",
        "DeadLetters",
        "CacheFaults",
        "ClaimFaults",
        "CacheTableThrottled",
        "StockTableThrottled",
        "ApiServerErrorRate",
        *(f"{function}Function{what}" for function in FUNCTIONS for what in ("Errors", "Throttles")),
    }
    assert set(alarms(prod)) - paging == {
        "LeasesTakenOver",
        "LateWinners",
        "ResultsNotStored",
        "WaitsTimedOut",
        "UpstreamFailures",
        "OldestDueHold",
        "OldestQueuedClaim",
        "AuditSilent",
        "ExpirySilent",
        "CacheTableConditionalFailures",
        "StockTableConditionalFailures",
        "CacheTableFailedShare",
        "StockTableFailedShare",
        "TransactionConflicts",
        "CacheThrottleRetries",
        "ClaimThrottleRetries",
        "ApiServerErrors",
        *(f"{function}FunctionSlow" for function in FUNCTIONS),
    }


def test_a_function_is_slow_by_its_own_timeout(prod: SynthesizedStage) -> None:
    """One that may run for minutes is not slow at the gateway's limit."""
    thresholds = {name: alarm.properties["Threshold"] for name, alarm in alarms(prod).items() if "Slow" in name}
    timeouts = {each.path.partition("/")[0]: each.properties["Timeout"] for each in prod.functions()}
    assert thresholds == {f"{name}Slow": pytest.approx(timeouts[name] * 800) for name in timeouts}


def test_what_is_watched_is_what_is_counted(prod: SynthesizedStage) -> None:
    """Alarms and dashboard name each of our metrics as the functions do, by dimensions that there are."""
    used = [
        (metric["MetricName"], {each["Name"]: each["Value"] for each in metric["Dimensions"]})
        for alarm in alarms(prod).values()
        for metric in metrics_of(alarm)
        if metric["Namespace"] == "Firstwrite"
    ]
    for widget in dashboard(prod)["widgets"]:
        for row in widget["properties"].get("metrics", ()):
            if row[0] == "Firstwrite":
                names = [each for each in row[2:] if isinstance(each, str)]
                used.append((row[1], dict(zip(names[::2], names[1::2], strict=True))))
    assert used
    for name, dimensions in used:
        kept = METRICS[name]
        by = set(dimensions) - {"service"}
        assert dimensions["service"] in {"cache", "claim"}
        assert by == set(kept.by) or (kept.total and not by)


def test_every_metric_is_watched(prod: SynthesizedStage) -> None:
    """What is charged for by the month is shown or alarmed on, but for what only explains."""
    text = json.dumps(dashboard(prod)) + json.dumps([alarm.properties for alarm in alarms(prod).values()])
    unwatched = {name for name in METRICS if f'"{name}"' not in text}
    assert unwatched == {"CacheFailuresShared", "RefreshesAsked", "RefreshesNotAsked", "Adjustments"}


def test_outcomes_are_those_that_are_counted() -> None:
    """No outcome is shown that never comes, and none comes that is not shown."""
    counted = set(outcomes.OUTCOME_NAMES.values())
    assert set(metrics.CLAIM_OUTCOMES) == set(metrics.QUEUED_OUTCOMES) == counted - {"queued"}
    assert set(metrics.INTAKE_OUTCOMES) == counted - {"claimed", "sold-out"}
    assert set(metrics.SETTLEMENT_OUTCOMES) == set(settling._NAMES.values())


def test_throttles_are_summed_over_sparse_operations(prod: SynthesizedStage) -> None:
    """An operation that was never throttled, and so has no data, does not blank the sum of the others."""
    total, *parts = alarms(prod)["StockTableThrottled"].properties["Metrics"]
    operations = {
        dimension["Value"]
        for part in parts
        for dimension in part["MetricStat"]["Metric"]["Dimensions"]
        if dimension["Name"] == "Operation"
    }
    assert {"TransactWriteItems", "UpdateItem", "PutItem", "GetItem", "Query"} <= operations
    assert all(f"FILL({part['Id']}, 0)" in total["Expression"] for part in parts)


def test_local_lacks_what_its_engine_refuses(local: SynthesizedStage, prod: SynthesizedStage) -> None:
    """The local cloud takes no alarms on expressions and no saved queries, so its stage has all but those."""
    on_expressions = {name for name, alarm in alarms(prod).items() if "Metrics" in alarm.properties}
    assert set(alarms(local)) == set(alarms(prod)) - on_expressions
    assert on_expressions == {
        "PerhapsPaidTwice",
        "ApiServerErrorRate",
        *(f"{table}{what}" for table in ("CacheTable", "StockTable") for what in ("Throttled", "FailedShare")),
    }
    for refused in ("AWS::CloudWatch::CompositeAlarm", "AWS::Logs::QueryDefinition"):
        assert local.resources(refused) == []


def test_alarms_can_publish(stage: SynthesizedStage) -> None:
    """Each topic lets CloudWatch of this account publish, although it has a policy of its own."""
    for policy in stage.resources("AWS::SNS::TopicPolicy"):
        allowed = [each for each in policy.properties["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
        (statement,) = allowed
        assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        assert statement["Action"] == "sns:Publish"
        assert "aws:SourceAccount" in statement["Condition"]["StringEquals"]


def test_alarm_email_and_thresholds_are_settings(tmp_path: Path) -> None:
    """A stage names who gets the mails and from where on an alarm counts."""
    changes = {"alarm_email": "on-call@example.com", "alarms": {"conditional_failures_per_minute": 5000}}
    stage = synthesize("prod", tmp_path, changes=changes)
    assert [each.properties["Endpoint"] for each in stage.resources("AWS::SNS::Subscription")] == [
        "on-call@example.com",
        "on-call@example.com",
    ]
    assert alarms(stage)["StockTableConditionalFailures"].properties["Threshold"] == 5000
