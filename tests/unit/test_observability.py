from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.metrics import METRICS
from firstwrite.observability import Counters

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Callable[[Counters], list[dict[str, Any]]]:
    def flush(counters: Counters) -> list[dict[str, Any]]:
        counters.flush()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return flush


def combinations(lines: list[dict[str, Any]]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return every metric with its dimension values, which is what CloudWatch keeps and charges for."""
    return {
        (metric["Name"], tuple((name, line[name]) for name in sorted(dimensions)))
        for line in lines
        for directive in line["_aws"]["CloudWatchMetrics"]
        for dimensions in directive["Dimensions"]
        for metric in directive["Metrics"]
    }


def test_names_and_dimensions_are_these_and_no_others() -> None:
    """What is charged for by the month is pinned: a new metric or dimension is a decision."""
    assert {name: (metric.by, metric.total) for name, metric in METRICS.items() if metric.by} == {
        "ConditionalWrites": (("table", "outcome"), False),
        "StoreRetries": (("reason",), False),
        "UpstreamCalls": (("source",), True),
        "UpstreamFailures": (("source",), True),
        "CacheHits": (("source",), True),
        "CacheStale": (("source",), True),
        "CacheCollapsed": (("source",), True),
        "CacheMisses": (("source",), True),
        "CacheRefreshes": (("source",), True),
        "Claims": (("outcome",), False),
        "Settlements": (("outcome",), False),
        "Adjustments": (("outcome",), False),
        "Intake": (("outcome",), False),
        "QueuedClaims": (("outcome",), False),
    }


def test_a_metric_by_source_is_kept_in_total_too(written: Callable[[Counters], list[dict[str, Any]]]) -> None:
    """Alarms read the total, the dashboard each source."""
    counters = Counters()
    counters.count("CacheHits", source="rates")
    counters.count("CacheHits", 2, source="rates")

    lines = written(counters)

    assert [line["CacheHits"] for line in lines] == [[3.0]]
    assert combinations(lines) == {
        ("CacheHits", (("service", "test"),)),
        ("CacheHits", (("service", "test"), ("source", "rates"))),
    }


def test_details_go_to_the_log_and_make_no_metric(written: Callable[[Counters], list[dict[str, Any]]]) -> None:
    """The operation of a conditional write can be searched for and is not charged for."""
    counters = Counters()
    for operation in ("acquire", "acquire", "complete"):
        counters.count("ConditionalWrites", table="cache", operation=operation, outcome="applied")

    lines = written(counters)

    assert combinations(lines) == {
        ("ConditionalWrites", (("outcome", "applied"), ("service", "test"), ("table", "cache")))
    }
    assert sum(sum(line["ConditionalWrites"]) for line in lines) == 3
    assert lines[0]["ConditionalWrites-acquire"] == 2


def test_a_thousand_keys_add_no_metric(written: Callable[[Counters], list[dict[str, Any]]]) -> None:
    """What requests name is never a dimension, so the bill does not grow with them."""
    counters = Counters()
    for number in range(1_000):
        counters.count("ConditionalWrites", table="cache", outcome="applied", operation=f"operation-{number}")
        counters.count("LateWinners", source=f"source-{number}")

    assert len(combinations(written(counters))) == 2


def test_nothing_counted_is_nothing_written(written: Callable[[Counters], list[dict[str, Any]]]) -> None:
    """A hit that counts nothing costs no log line, and what was written is not written again."""
    counters = Counters()
    assert written(counters) == []
    counters.count("Faults")
    assert len(written(counters)) == 1
    assert written(counters) == []
