"""Reads metrics of a stage: plain ones, many at a time. Expressions over them are evaluated here."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from watch.series import Metric, Series

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef

MOST_QUERIES = 500
"""That one GetMetricData takes."""


def read(client: "CloudWatchClient", metrics: Collection[Metric], start_s: int, end_s: int) -> dict[Metric, Series]:
    """Return the values of `metrics` from `start_s` to before `end_s`; those that have none are empty."""
    values: defaultdict[Metric, dict[int, float]] = defaultdict(dict)
    wanted = sorted(metrics, key=str)
    for first in range(0, len(wanted), MOST_QUERIES):
        some = {f"m{number}": metric for number, metric in enumerate(wanted[first : first + MOST_QUERIES])}
        pages = client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[_query(name, metric) for name, metric in some.items()],
            StartTime=datetime.fromtimestamp(start_s, UTC),
            EndTime=datetime.fromtimestamp(end_s, UTC),
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                found = zip(result["Timestamps"], result["Values"], strict=True)
                values[some[result["Id"]]] |= {int(at.timestamp()): value for at, value in found}
    return {metric: values[metric] for metric in wanted}


def _query(name: str, metric: Metric) -> "MetricDataQueryTypeDef":
    return {
        "Id": name,
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in metric.dimensions],
            },
            "Period": metric.period_s,
            "Stat": metric.statistic,
        },
    }


def periods(start_s: int, end_s: int, period_s: int) -> Sequence[int]:
    """Return when each period begins that lies between the two."""
    return range(start_s // period_s * period_s, end_s, period_s)
