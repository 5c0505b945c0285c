"""The alarms of a template, evaluated over metrics that a test counts or carries over."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.infra.templates import SynthesizedStage, flat
from watch.alarms import Alarm, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local.metrics import Datum
    from watch.alarms import State
    from watch.series import Metric


class Metrics:
    """What CloudWatch would keep, of one stage's metrics, in this process."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = (
            defaultdict(list)
        )

    def add(self, namespace: str, name: str, dimensions: Mapping[str, str], at_s: float, *values: float) -> None:
        """Count values at a time."""
        self._values[namespace, name, tuple(sorted(dimensions.items()))] += [(at_s, value) for value in values]

    def carry(self, data: Iterable[Datum]) -> None:
        """Count what was carried from the logs."""
        for datum in data:
            self.add(datum.namespace, datum.name, dict(datum.dimensions), datum.at_ms / 1000, *datum.values)

    def total(self, name: str, **dimensions: str) -> float:
        """Return what was counted of one of our metrics, in all."""
        return sum(value for _, value in self._values["Firstwrite", name, tuple(sorted(dimensions.items()))])

    def series(self, metric: Metric) -> dict[int, float]:
        """Return a metric by its periods."""
        periods: defaultdict[int, list[float]] = defaultdict(list)
        for at_s, value in self._values[metric.namespace, metric.name, metric.dimensions]:
            periods[int(at_s) // metric.period_s * metric.period_s].append(value)
        # Of percentiles the worst that it can be.
        statistics: dict[str, Any] = {"Sum": sum, "Maximum": max, "SampleCount": len, "p99": max}
        return {at: float(statistics[metric.statistic](values)) for at, values in periods.items()}


class Watch:
    """The alarms of a synthesized stage, by the names of their specs."""

    def __init__(self, stage: SynthesizedStage) -> None:
        self.alarms: dict[str, Alarm] = {}
        for resource in stage.resources("AWS::CloudWatch::Alarm"):
            name = resource.path.partition("/")[0]
            self.alarms[name] = parse(name, _flat(resource.properties))

    def states(self, metrics: Metrics, at_s: float) -> dict[str, State]:
        """Return every alarm's state at a time."""
        return {
            name: alarm.state({metric: metrics.series(metric) for metric in alarm.plot.metrics}, at_s)
            for name, alarm in self.alarms.items()
        }

    def on(self, metrics: Metrics, at_s: float, severity: str) -> set[str]:
        """Return the alarms of a severity that are on, but for those that wait for a sign of life."""
        states = self.states(metrics, at_s)
        return {
            name
            for name, alarm in self.alarms.items()
            if alarm.severity == severity and alarm.missing != "breaching" and states[name] == "ALARM"
        }

    def metric(self, alarm: str, name: str) -> Metric:
        """Return the metric of a name that an alarm is about, with the dimensions of the template."""
        found = {metric for metric in self.alarms[alarm].plot.metrics if metric.name == name}
        return min(found, key=str)


def _flat(value: Any) -> Any:
    """Write references to other resources as text, so that they can be compared."""
    if isinstance(value, dict):
        return (
            flat(value)
            if len(value) == 1 and next(iter(value)).startswith(("Fn::", "Ref"))
            else {name: _flat(each) for name, each in value.items()}
        )
    return [_flat(each) for each in value] if isinstance(value, list) else value
