"""What holds of alarms and the dashboard."""

import json
from pathlib import Path

from tests.infra.templates import Resource, SynthesizedStage, flat, synthesize


def alarms(stage: SynthesizedStage) -> dict[str, Resource]:
    """The alarms of a stage by name."""
    return {each.path.partition("/")[0]: each for each in stage.resources("AWS::CloudWatch::Alarm")}


def test_every_alarm_is_complete(stage: SynthesizedStage) -> None:
    """Every alarm acts, says where to read on, treats silence as health, and needs M of N breaches."""
    assert alarms(stage)
    for alarm in alarms(stage).values():
        properties = alarm.properties
        assert properties["AlarmActions"]
        assert properties.get("ActionsEnabled", True)
        assert "docs/runbook.md, '" in properties["AlarmDescription"]
        assert properties["TreatMissingData"] == "notBreaching"
        assert 1 < properties["DatapointsToAlarm"] < properties["EvaluationPeriods"]


def test_contention_only_warns(stage: SynthesizedStage) -> None:
    """Failed conditions of each table go to the warn topic, at a count that a perfect run does not reach."""
    for table in ("CacheTable", "StockTable"):
        alarm = alarms(stage)[f"{table}ConditionalFailures"].properties
        assert alarm["MetricName"] == "ConditionalCheckFailedRequests"
        assert [each["Name"] for each in alarm["Dimensions"]] == ["TableName"]
        assert table in flat(alarm["Dimensions"][0]["Value"])
        assert [flat(action) for action in alarm["AlarmActions"]] == ["<WarnTopicFEEED862>"]
        assert alarm["Threshold"] > 900


def test_harm_pages(prod: SynthesizedStage) -> None:
    """Throttled requests, crashing or throttled functions and a high share of 5xx wake somebody up."""
    paging = {
        name
        for name, alarm in alarms(prod).items()
        if [flat(action) for action in alarm.properties["AlarmActions"]] == ["<PageTopicD5E18B2D>"]
    }
    assert paging == {
        "CacheTableThrottled",
        "StockTableThrottled",
        "CacheFunctionErrors",
        "CacheFunctionThrottles",
        "RefreshFunctionErrors",
        "RefreshFunctionThrottles",
        "ClaimFunctionErrors",
        "ClaimFunctionThrottles",
        "ApiServerErrorRate",
    }


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


def test_local_has_no_metric_math(local: SynthesizedStage) -> None:
    """The local cloud refuses alarms on expressions and composite alarms, so its stage has none."""
    assert local.resources("AWS::CloudWatch::CompositeAlarm") == []
    assert [name for name, alarm in alarms(local).items() if "Metrics" in alarm.properties] == []


def test_alarms_can_publish(stage: SynthesizedStage) -> None:
    """Each topic lets CloudWatch of this account publish, although it has a policy of its own."""
    for policy in stage.resources("AWS::SNS::TopicPolicy"):
        allowed = [each for each in policy.properties["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
        (statement,) = allowed
        assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
        assert statement["Action"] == "sns:Publish"
        assert "aws:SourceAccount" in statement["Condition"]["StringEquals"]


def test_one_dashboard_shows_tables_functions_and_api(stage: SynthesizedStage) -> None:
    """One dashboard shows failed conditions, function errors and durations, the API and the states of all alarms."""
    (dashboard,) = stage.resources("AWS::CloudWatch::Dashboard")
    body = json.loads(flat(dashboard.properties["DashboardBody"]))
    metrics = json.dumps([widget["properties"].get("metrics", []) for widget in body["widgets"]])
    for metric in (
        "ConditionalCheckFailedRequests",
        "Errors",
        "Throttles",
        "Duration",
        "Count",
        "4xx",
        "5xx",
        "Latency",
    ):
        assert f'"{metric}"' in metrics
    (states,) = (widget for widget in body["widgets"] if widget["type"] == "alarm")
    assert len(states["properties"]["alarms"]) == len(alarms(stage))
    assert "DashboardName" in stage.templates["observability"]["Outputs"]


def test_alarm_email_and_thresholds_are_settings(tmp_path: Path) -> None:
    """A stage names who gets the mails and from where on an alarm counts."""
    changes = {"alarm_email": "on-call@example.com", "alarms": {"conditional_failures_per_minute": 5000}}
    stage = synthesize("prod", tmp_path, changes=changes)
    assert [each.properties["Endpoint"] for each in stage.resources("AWS::SNS::Subscription")] == [
        "on-call@example.com",
        "on-call@example.com",
    ]
    assert alarms(stage)["StockTableConditionalFailures"].properties["Threshold"] == 5000
