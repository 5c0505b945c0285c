"""Structured logs, and metrics that are counted while a request runs and written once at its end.

Metrics go out as CloudWatch embedded metric format, one log line for each set of dimension values. Keys, bodies and
secrets appear in neither.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import Protocol

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics

from firstwrite.metrics import METRICS

logger = Logger()

_Details = tuple[tuple[str, str], ...]


class Count(Protocol):
    """Where the protocols report what happened."""

    def __call__(self, name: str, value: int = 1, **details: str) -> None:
        """Add `value` to the metric `name`.

        Args:
            name: one of `firstwrite.metrics.METRICS`.
            value: how much.
            details: at least the metric's dimensions, each from a closed set.
        """
        ...


class Counters:
    """Counts of one invocation."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, _Details]] = Counter()

    def count(self, name: str, value: int = 1, **details: str) -> None:
        """Add `value` to the metric `name`; see `Count`."""
        self._counts[name, tuple(sorted(details.items()))] += value

    def flush(self) -> None:
        """Write what was counted since the last flush."""
        counts, self._counts = self._counts, Counter()
        lines: defaultdict[tuple[_Details, bool], list[tuple[str, int, _Details]]] = defaultdict(list)
        for (name, details), value in counts.items():
            metric = METRICS[name]
            dimensions = tuple((key, text) for key, text in details if key in metric.by)
            lines[dimensions, metric.total].append((name, value, details))
        for (dimensions, total), counted in lines.items():
            _write(dict(dimensions), counted, total=total)


def _write(dimensions: dict[str, str], counted: list[tuple[str, int, _Details]], *, total: bool) -> None:
    metrics = EphemeralMetrics()
    if total:
        # The service alone is the first set of dimensions, which the library adds by itself.
        metrics.add_dimensions(service=os.environ["POWERTOOLS_SERVICE_NAME"], **dimensions)
    else:
        for key, text in dimensions.items():
            metrics.add_dimension(key, text)
    totals: Counter[str] = Counter()
    for name, value, details in counted:
        totals[name] += value
        more = [text for key, text in details if key not in METRICS[name].by]
        if more:
            metrics.add_metadata("-".join([name, *more]), value)
    for name, value in totals.items():
        metrics.add_metric(name=name, unit=METRICS[name].unit, value=value)
    metrics.flush_metrics()
