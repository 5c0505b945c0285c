"""What an alarm is, before the CDK makes one of it."""

from dataclasses import dataclass
from typing import Literal

from aws_cdk import aws_cloudwatch as cloudwatch

Severity = Literal["page", "warn"]
Missing = Literal["notBreaching", "breaching", "ignore"]
Breach = Literal["reaches", "falls below"]


@dataclass(frozen=True, kw_only=True)
class AlarmSpec:
    """One alarm: it goes off when `breaches` of the last `window` data points are a breach.

    A data point is as long as the metric's period. `breaches` is 1 where every single event is harm or money; the
    window is then how long the alarm stays on after the last one.
    """

    name: str
    metric: cloudwatch.IMetric
    threshold: float
    breaches: int
    window: int
    severity: Severity
    meaning: str
    runbook: str
    needs_metric_math: bool = False
    """The local cloud refuses such alarms."""
    breach: Breach = "reaches"
    missing: Missing = "notBreaching"
    """What silence means. Nothing counted is nothing wrong, unless the count itself is the sign of life."""

    @property
    def description(self) -> str:
        """What a person reads in the mail."""
        return f"[{self.severity}] {self.meaning} See docs/runbook.md, '{self.runbook}'."
