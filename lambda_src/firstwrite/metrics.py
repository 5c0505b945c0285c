"""Every metric there is, with the dimensions it is kept by.

CloudWatch charges for each combination of name and dimension values, so the table is closed and short: names of things
(keys, items, callers) are never dimensions. A detail that is counted and not listed here goes into the log line, where
Logs Insights finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """How one metric is kept.

    Attributes:
        by: its dimensions, beside the service.
        total: whether it is also kept by the service alone, for alarms, which cannot add up dimensions.
        unit: of its values.
    """

    by: tuple[str, ...] = ()
    total: bool = False
    unit: Literal["Count", "Seconds"] = "Count"


_BY_SOURCE = Metric(by=("source",), total=True)

METRICS: dict[str, Metric] = {
    # Conditional writes, of the cache and of claims.
    "ConditionalWrites": Metric(by=("table", "outcome")),
    "StoreRetries": Metric(by=("reason",)),
    "Faults": Metric(),
    # Are we paying once a key?
    "UpstreamCalls": _BY_SOURCE,
    "UpstreamFailures": _BY_SOURCE,
    "CacheHits": _BY_SOURCE,
    "CacheStale": _BY_SOURCE,
    "CacheCollapsed": _BY_SOURCE,
    "CacheMisses": _BY_SOURCE,
    "CacheRefreshes": _BY_SOURCE,
    "CacheFailuresShared": Metric(),
    "CacheWaitsTimedOut": Metric(),
    "LeasesTakenOver": Metric(),
    "LateWinners": Metric(),
    "ResultsNotStored": Metric(),
    "RefreshesAsked": Metric(),
    "RefreshesNotAsked": Metric(),
    "CircuitOpen": Metric(),
    "SpendLimitReached": Metric(),
    # Are we selling what we have?
    "Claims": Metric(by=("outcome",)),
    "Settlements": Metric(by=("outcome",)),
    "Adjustments": Metric(by=("outcome",)),
    "Intake": Metric(by=("outcome",)),
    "QueuedClaims": Metric(by=("outcome",)),
    "PoisonedMessages": Metric(),
    "HoldsExpired": Metric(),
    "ExpiriesCutShort": Metric(),
    "OldestDueHoldSeconds": Metric(unit="Seconds"),
    "AuditMismatches": Metric(),
    "AuditsInconclusive": Metric(),
}
