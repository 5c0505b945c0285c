"""Evaluates alarms by their definitions: metric math, M of N, and what silence means.

For where CloudWatch does not: the local cloud's own evaluation knows no dimensions, no M of N and no missing data, so
that it says OK or ALARM too soon or too late. What CloudWatch does beyond: it looks further back where data comes late.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from watch.series import Metric, Plot, Series

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
_RESULT = "result"

_BREACHES: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


@dataclass(frozen=True)
class Alarm:
    """An alarm as CloudFormation and DescribeAlarms both write it."""

    name: str
    description: str
    plot: Plot
    result: str
    """Which part of the plot is held against the threshold."""
    period_s: int
    threshold: float
    comparison: str
    breaches: int
    window: int
    missing: str
    made_s: float = 0
    """Since when it is as it is. Before, there was nothing to be silent."""

    @property
    def severity(self) -> str:
        """What its description begins with: `page` or `warn`."""
        found = re.match(r"\[(\w+)\]", self.description)
        return found[1] if found else ""

    def times(self, at_s: float) -> list[int]:
        """Return the periods that count at the time `at_s`, the one that is running among them."""
        last = int(at_s) // self.period_s * self.period_s
        return [last - back * self.period_s for back in reversed(range(self.window))]

    def state(self, data: Mapping[Metric, Series], at_s: float, before: State = "OK") -> State:
        """Return the state at the time `at_s`, given the one before."""
        times = self.times(at_s)
        values = self.plot.series(self.result, data, times)
        is_breach = _BREACHES[self.comparison]
        breaches = sum(is_breach(value, self.threshold) for value in values.values())
        silent = sum(at not in values and at >= self.made_s for at in times)
        if not values and self.missing in {"ignore", "missing"}:
            return before if self.missing == "ignore" else "INSUFFICIENT_DATA"
        if self.missing == "breaching":
            breaches += silent
        return "ALARM" if breaches >= self.breaches else "OK"


def parse(name: str, definition: Mapping[str, Any]) -> Alarm:
    """Return an alarm from a template's properties or from DescribeAlarms, whose words are the same."""
    queries = definition.get("Metrics")
    if queries:
        parts = {query["Id"]: query.get("Expression") or _metric_of(query["MetricStat"]) for query in queries}
        result = next(query["Id"] for query in queries if query.get("ReturnData", True))
        period_s = next(part.period_s for part in parts.values() if isinstance(part, Metric))
    else:
        period_s = int(definition["Period"])
        statistic = definition.get("ExtendedStatistic") or definition["Statistic"]
        parts = {_RESULT: metric(definition, statistic, period_s)}
        result = _RESULT
    window = int(definition["EvaluationPeriods"])
    return Alarm(
        name=name,
        description=str(definition.get("AlarmDescription", "")),
        plot=Plot(parts),
        result=result,
        period_s=period_s,
        threshold=float(definition["Threshold"]),
        comparison=definition["ComparisonOperator"],
        breaches=int(definition.get("DatapointsToAlarm") or window),
        window=window,
        missing=definition.get("TreatMissingData") or "missing",
        made_s=made.timestamp() if (made := definition.get("AlarmConfigurationUpdatedTimestamp")) else 0,
    )


def _metric_of(query: Mapping[str, Any]) -> Metric:
    return metric(query["Metric"], query["Stat"], int(query["Period"]))


def metric(named: Mapping[str, Any], statistic: str, period_s: int) -> Metric:
    """Return a metric as the CloudWatch API names it."""
    dimensions: Sequence[Mapping[str, str]] = named.get("Dimensions") or ()
    pairs = sorted((each["Name"], each["Value"]) for each in dimensions)
    return Metric(named["Namespace"], named["MetricName"], tuple(pairs), statistic, period_s)
