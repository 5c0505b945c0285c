"""Alarms, evaluated by their definitions."""

from datetime import UTC, datetime
from typing import Any

import pytest

from watch.alarms import State, parse
from watch.series import Metric, Series

NOW = 6_000
FAULTS = Metric("Firstwrite", "Faults", (("service", "claim"),), "Sum", 60)


def definition(**changes: Any) -> dict[str, Any]:
    return {
        "AlarmDescription": "[page] Something. See docs/runbook.md, 'Faults'.",
        "Namespace": "Firstwrite",
        "MetricName": "Faults",
        "Dimensions": [{"Name": "service", "Value": "claim"}],
        "Statistic": "Sum",
        "Period": 60,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "EvaluationPeriods": 5,
        "DatapointsToAlarm": 2,
        "TreatMissingData": "notBreaching",
    } | changes


def ago(**minutes: float) -> Series:
    """Values by how many minutes ago they came, such as `m0=1`."""
    return {NOW - 60 * int(name[1:]): value for name, value in minutes.items()}


def state(values: Series, before: State = "OK", **changes: Any) -> State:
    return parse("alarm", definition(**changes)).state({FAULTS: values}, NOW, before)


def test_a_definition_is_read() -> None:
    """Severity, metric and window are those of the template, and of DescribeAlarms."""
    alarm = parse("alarm", definition())
    assert (alarm.severity, alarm.plot.metrics, alarm.times(NOW + 30)) == (
        "page",
        [FAULTS],
        [5_760, 5_820, 5_880, 5_940, 6_000],
    )
    assert parse("alarm", definition(AlarmDescription="")).severity == ""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (ago(), "OK"),
        (ago(m0=1), "OK"),
        (ago(m0=1, m1=1), "ALARM"),
        (ago(m0=3, m4=1), "ALARM"),
        (ago(m0=3, m5=1), "OK"),
        (ago(m1=0.5, m2=0.9), "OK"),
    ],
)
def test_m_of_n(values: Series, expected: State) -> None:
    """Two breaches of the last five periods, in any order, and none that is older."""
    assert state(values) == expected


def test_one_breach_and_then_silence_returns_to_ok() -> None:
    """Where one is enough, it counts as long as it is in the window, and silence ends it."""
    alarm = parse("alarm", definition(DatapointsToAlarm=1))
    states = [alarm.state({FAULTS: ago(m0=1)}, NOW + 60 * minute) for minute in range(7)]
    assert states == ["ALARM"] * 5 + ["OK"] * 2


@pytest.mark.parametrize(
    ("missing", "expected"), [("notBreaching", "OK"), ("breaching", "ALARM"), ("missing", "INSUFFICIENT_DATA")]
)
def test_silence_means_what_the_alarm_says(missing: str, expected: State) -> None:
    """Each kind of missing-data handling has its own answer to nothing at all."""
    assert state({}, TreatMissingData=missing) == expected
    assert state({}, TreatMissingData="ignore", before="ALARM") == "ALARM"


def test_a_sign_of_life() -> None:
    """An alarm below a threshold is on while nothing comes, but not for the time before it was made."""
    silent: dict[str, Any] = {"ComparisonOperator": "LessThanThreshold", "TreatMissingData": "breaching"}
    assert state(ago(m4=1, m3=1, m2=1, m1=1), **silent) == "OK"
    assert state(ago(m4=1), **silent) == "ALARM"
    made = datetime.fromtimestamp(NOW - 60, UTC)
    assert state({}, **silent, DatapointsToAlarm=3, AlarmConfigurationUpdatedTimestamp=made) == "OK"


def test_metric_math() -> None:
    """An alarm on an expression holds its result against the threshold."""
    parts = [
        {"Id": part, "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}, "ReturnData": False}
        for part, metric in (
            ("calls", {"Namespace": "Firstwrite", "MetricName": "UpstreamCalls"}),
            ("misses", {"Namespace": "Firstwrite", "MetricName": "CacheMisses"}),
        )
    ]
    whole = {"Id": "above", "Expression": "FILL(calls, 0) - FILL(misses, 0)", "Label": "above"}
    alarm = parse("alarm", definition(DatapointsToAlarm=1) | {"Metrics": [whole, *parts]})
    calls, misses = alarm.plot.metrics
    assert alarm.state({calls: ago(m0=3), misses: ago(m0=3)}, NOW) == "OK"
    assert alarm.state({calls: ago(m0=3), misses: ago(m0=2)}, NOW) == "ALARM"
