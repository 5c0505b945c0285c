"""When the synthesized alarms go off, and when they end: their definitions, over metrics that are counted here."""

from collections.abc import Mapping

import pytest

from tests.infra.templates import SynthesizedStage
from tests.support.alarms import Metrics, Watch

NOW = 1_800_000_000
MINUTE = 60


@pytest.fixture(scope="module")
def watch(prod: SynthesizedStage) -> Watch:
    return Watch(prod)


def cache(metrics: Metrics, minute: int, counts: Mapping[str, int]) -> None:
    """Count what the cache does in a minute of the past."""
    for name, value in counts.items():
        metrics.add("Firstwrite", name, {"service": "cache"}, NOW - minute * MINUTE, value)


def native(watch: Watch, metrics: Metrics, alarm: str, name: str, *, minutes: int, value: float) -> None:
    """Count what a service of AWS counts, in each of the last minutes."""
    metric = watch.metric(alarm, name)
    for minute in range(minutes):
        metrics.add(metric.namespace, name, dict(metric.dimensions), NOW - minute * MINUTE, value)


def test_silence_wakes_nobody(watch: Watch) -> None:
    """A stage that does nothing has no alarm but those that wait for a sign of life."""
    states = watch.states(Metrics(), NOW)
    assert {name for name, state in states.items() if state != "OK"} == {"AuditSilent", "ExpirySilent"}


def test_perfect_contention_wakes_nobody(watch: Watch) -> None:
    """Minute after minute of 19 failed conditions for one call, and 900 for 100 claims, is no alarm at all."""
    metrics = Metrics()
    for minute in range(10):
        cache(metrics, minute, {"UpstreamCalls": 1, "CacheMisses": 1, "CacheCollapsed": 19})
        at_s = NOW - minute * MINUTE
        for table, service, applied, rejected in (("cache", "cache", 2, 19), ("stock", "claim", 100, 900)):
            for outcome, value in (("applied", applied), ("rejected", rejected)):
                dimensions = {"service": service, "table": table, "outcome": outcome}
                metrics.add("Firstwrite", "ConditionalWrites", dimensions, at_s, value)
    native(watch, metrics, "CacheTableConditionalFailures", "ConditionalCheckFailedRequests", minutes=10, value=19)
    native(watch, metrics, "StockTableConditionalFailures", "ConditionalCheckFailedRequests", minutes=10, value=900)
    assert watch.on(metrics, NOW, "page") == set()
    assert watch.on(metrics, NOW, "warn") == set()


@pytest.mark.parametrize(
    ("counts", "paid_twice"),
    [
        ({"UpstreamCalls": 5, "CacheMisses": 5}, False),
        ({"UpstreamCalls": 5, "CacheMisses": 2, "CacheRefreshes": 3}, False),
        ({"UpstreamCalls": 6, "CacheMisses": 5}, True),
        ({"UpstreamCalls": 1}, True),
        ({"CacheMisses": 1}, False),
        ({"CacheMisses": 50, "SpendLimitReached": 45, "UpstreamCalls": 5}, False),
        ({"CacheMisses": 50, "SpendLimitReached": 45, "UpstreamCalls": 6}, True),
        ({"CacheMisses": 50, "CircuitOpen": 49, "UpstreamCalls": 2}, True),
    ],
)
def test_calls_above_what_was_asked_for_page(watch: Watch, counts: Mapping[str, int], *, paid_twice: bool) -> None:
    """One call more than misses and refreshes is enough, and those that were refused hide none."""
    metrics = Metrics()
    cache(metrics, 1, counts)
    assert ("PerhapsPaidTwice" in watch.on(metrics, NOW, "page")) == paid_twice


@pytest.mark.parametrize(
    ("service", "name", "alarm"),
    [
        ("cache", "SpendLimitReached", "SpendLimitReached"),
        ("cache", "Faults", "CacheFaults"),
        ("claim", "Faults", "ClaimFaults"),
    ],
)
def test_one_event_of_harm_pages_and_then_ends(watch: Watch, service: str, name: str, alarm: str) -> None:
    """It is on at once, stays while it is among the last five minutes, and silence ends it."""
    metrics = Metrics()
    metrics.add("Firstwrite", name, {"service": service}, NOW, 1)
    on = [alarm in watch.on(metrics, NOW + minute * MINUTE, "page") for minute in range(7)]
    assert on == [True] * 5 + [False] * 2


def test_a_mismatch_lasts_until_a_clean_audit(watch: Watch) -> None:
    """It is on until the next hour's audit at least, and ends when that finds nothing."""
    metrics = Metrics()
    audits = {"service": "claim"}
    metrics.add("Firstwrite", "AuditMismatches", audits, NOW, 1)
    assert "AuditMismatch" in watch.on(metrics, NOW + 65 * MINUTE, "page")
    metrics.add("Firstwrite", "AuditMismatches", audits, NOW + 60 * MINUTE, 0)
    assert "AuditMismatch" not in watch.on(metrics, NOW + 80 * MINUTE, "page")


def test_throttles_and_errors_page_when_they_last(watch: Watch) -> None:
    """Two minutes of the last five; a single one is what retries are for."""
    for minutes, expected in ((1, set[str]()), (2, {"StockTableThrottled", "ClaimFunctionErrors"})):
        metrics = Metrics()
        native(watch, metrics, "StockTableThrottled", "ThrottledRequests", minutes=minutes, value=1)
        native(watch, metrics, "ClaimFunctionErrors", "Errors", minutes=minutes, value=1)
        assert watch.on(metrics, NOW, "page") == expected


def test_a_share_of_5xx_pages_and_no_traffic_does_not(watch: Watch) -> None:
    """Three minutes above the stage's share; where nobody asks there is no share."""
    for failed, expected in ((0, set[str]()), (1, set[str]()), (10, {"ApiServerErrorRate"})):
        metrics = Metrics()
        native(watch, metrics, "ApiServerErrorRate", "Count", minutes=3, value=100)
        native(watch, metrics, "ApiServerErrorRate", "5xx", minutes=3, value=failed)
        assert watch.on(metrics, NOW, "page") == expected
    metrics = Metrics()
    native(watch, metrics, "ApiServerErrorRate", "Count", minutes=3, value=0)
    assert watch.on(metrics, NOW, "page") == set()


def test_dead_letters_page_and_a_slow_queue_warns(watch: Watch) -> None:
    """One message that nobody could decide is enough; claims that wait for long are a warning."""
    metrics = Metrics()
    native(watch, metrics, "DeadLetters", "ApproximateNumberOfMessagesVisible", minutes=1, value=1)
    native(watch, metrics, "OldestQueuedClaim", "ApproximateAgeOfOldestMessage", minutes=3, value=61)
    assert watch.on(metrics, NOW, "page") == {"DeadLetters"}
    assert watch.on(metrics, NOW, "warn") == {"OldestQueuedClaim"}


def test_a_storm_warns_by_its_share(watch: Watch) -> None:
    """Where nearly all of many writes lose it warns; where few are made it does not."""
    for applied, rejected, expected in ((1, 20, False), (10, 990, True), (100, 900, False)):
        metrics = Metrics()
        for minute in range(3):
            for outcome, value in (("applied", applied), ("rejected", rejected)):
                dimensions = {"service": "claim", "table": "stock", "outcome": outcome}
                metrics.add("Firstwrite", "ConditionalWrites", dimensions, NOW - minute * MINUTE, value)
        assert ("StockTableFailedShare" in watch.on(metrics, NOW, "warn")) == expected


def test_schedules_are_heard(watch: Watch) -> None:
    """A run every minute and an audit every hour keep the signs of life on; a run that finds nothing is one too."""
    metrics = Metrics()
    for minute in range(15):
        metrics.add("Firstwrite", "ExpiriesCutShort", {"service": "claim"}, NOW - minute * MINUTE, 0)
    for hour in range(3):
        metrics.add("Firstwrite", "AuditMismatches", {"service": "claim"}, NOW - hour * 3_600, 0)
    assert set(watch.states(metrics, NOW).values()) == {"OK"}
    later = watch.states(metrics, NOW + 5 * 3_600)
    assert {name for name, state in later.items() if state == "ALARM"} == {"AuditSilent", "ExpirySilent"}
