"""Structured logs and a small, fixed set of metrics.

Metrics are counted in memory while a request runs and written once at its end, as CloudWatch embedded metric format.
Dimensions come from closed sets (function, operation, outcome, source); keys, bodies and secrets appear nowhere.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

logger = Logger()


class Count(Protocol):
    """Where the protocols report what happened."""

    def __call__(self, name: str, value: int = 1, **dimensions: str) -> None:
        """Add `value` to the metric `name` under `dimensions`."""
        ...


class Counters:
    """Counts of one invocation, grouped by their dimensions."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, value: int = 1, **dimensions: str) -> None:
        """Add `value` to the metric `name`; every dimension takes its values from a closed set."""
        self._counts[name, tuple(sorted(dimensions.items()))] += value

    def flush(self) -> None:
        """Write what was counted since the last flush, one log line for each set of dimensions."""
        counts, self._counts = self._counts, Counter()
        by_dimensions: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
        for (name, dimensions), value in counts.items():
            by_dimensions.setdefault(dimensions, {})[name] = value
        for dimensions, values in by_dimensions.items():
            metrics = EphemeralMetrics()
            for dimension, text in dimensions:
                metrics.add_dimension(dimension, text)
            for name, value in values.items():
                metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)
            metrics.flush_metrics()
