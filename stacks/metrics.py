"""The functions' own metrics as CloudWatch names them: one namespace, the service, and a short list of dimensions.

The names and what they are kept by are `firstwrite.metrics`; the functions and this app do not import each other, so a
test compares the two.
"""

from collections.abc import Sequence
from typing import Literal

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.constructs.function import METRICS_NAMESPACE

Service = Literal["cache", "claim"]

TABLE_LABELS: dict[str, tuple[Service, str]] = {"CacheTable": ("cache", "cache"), "StockTable": ("claim", "stock")}
"""Which service writes to each table, and what it calls it."""

WRITE_OUTCOMES = ("applied", "recovered", "rejected", "busy")
CLAIM_OUTCOMES = ("claimed", "replayed", "sold-out", "limit-reached", "key-reused", "unknown-item", "busy")
INTAKE_OUTCOMES = ("queued", "replayed", "limit-reached", "key-reused", "unknown-item", "busy")
QUEUED_OUTCOMES = ("claimed", "replayed", "sold-out", "limit-reached", "key-reused", "unknown-item", "busy")
SETTLEMENT_OUTCOMES = ("settled", "refused", "unknown-claim", "busy")
AVOIDED = ("CacheHits", "CacheStale", "CacheCollapsed")
"""Answers that were served without a call of their own."""


def own(
    name: str, service: Service, *, statistic: str = "Sum", minutes: int = 1, label: str | None = None, **by: str
) -> cloudwatch.Metric:
    """Return one metric of a service, by the values of its dimensions beside the service."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": service, **by},
        statistic=statistic,
        period=cdk.Duration.minutes(minutes),
        label=label,
    )


def total(names: Sequence[str]) -> str:
    """Return the sum of metrics as an expression. CloudWatch counts sparsely, and a sum is missing where a part is."""
    return f"SUM([{', '.join(f'FILL({name}, 0)' for name in names)}])"
