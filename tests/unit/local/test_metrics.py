"""The bridge from logs to metrics."""

import json
from typing import Any

import pytest

from firstwrite.observability import Counters
from local import metrics
from local.metrics import Position

GROUP, FUNCTION = "/aws/cloudformation/claims", "ClaimFunction"


def emf(capsys: pytest.CaptureFixture[str], *counts: tuple[str, int, dict[str, str]]) -> list[str]:
    counters = Counters()
    for name, value, details in counts:
        counters.count(name, value, **details)
    counters.flush()
    return capsys.readouterr().out.splitlines()


class FakeLogs:
    """Returns at most `page` lines of a group, as the emulator does without a next page."""

    def __init__(self, page: int) -> None:
        self.lines: list[tuple[int, str]] = []
        self._page = page

    def filter_log_events(self, *, startTime: int, filterPattern: str, **_: object) -> Any:
        found = [
            {"timestamp": at, "message": line, "logStreamName": f"stream-{number}"}
            for number, (at, line) in enumerate(self.lines)
            if at >= startTime and filterPattern.strip('"') in line
        ]
        return {"events": found[: self._page]}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> FakeLogs:
    monkeypatch.setattr(metrics, "MOST_EVENTS", 3)
    return FakeLogs(3)


def read(logs: FakeLogs, positions: dict[str, Position]) -> list[tuple[str, tuple[float, ...]]]:
    client: Any = logs
    return [(datum.name, datum.values) for datum in metrics._read(client, {GROUP: FUNCTION}, positions)]


def test_what_the_functions_write_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    """Each set of dimensions is a metric of its own, with the values and the time of the line."""
    (line,) = emf(capsys, ("CacheHits", 2, {"source": "rates"}))
    data = list(metrics.parse(line))
    assert [(datum.name, datum.dimensions, datum.values) for datum in data] == [
        ("CacheHits", (("service", "test"),), (2.0,)),
        ("CacheHits", (("service", "test"), ("source", "rates")), (2.0,)),
    ]
    assert {(datum.namespace, datum.unit) for datum in data} == {("Firstwrite", "Count")}
    assert data[0].at_ms == json.loads(line)["_aws"]["Timestamp"]


@pytest.mark.parametrize("line", ["", "START RequestId: 1", "{broken", '{"message": "CloudWatchMetrics"}'])
def test_other_lines_count_nothing(line: str) -> None:
    """Whatever else a function writes is left alone."""
    assert list(metrics.parse(line)) == []
    assert list(metrics.parse_report(line, FUNCTION, 0)) == []


def test_a_report_is_a_call_and_how_long_it_took() -> None:
    """By function, as Lambda counts it."""
    report = "REPORT RequestId: 8f\tDuration: 12.5 ms\tBilled Duration: 13 ms\tMemory Size: 1024 MB"
    assert [(datum.name, datum.values) for datum in metrics.parse_report(report, FUNCTION, 0)] == [
        ("Invocations", (1.0,)),
        ("Duration", (12.5,)),
    ]


def test_nothing_counts_twice_and_nothing_is_missed(
    logs: FakeLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More lines than a page holds are all read, once; a line that comes late, with an older time, is read too."""
    now_s = 1_000.0
    monkeypatch.setattr("local.metrics.time.time", lambda: now_s)
    faults = [emf(capsys, ("Faults", number, {}))[0] for number in range(1, 10)]
    positions: dict[str, Position] = {}
    logs.lines = [(900_000 + number, line) for number, line in enumerate(faults[:6])]
    assert read(logs, positions) == [("Faults", (float(number),)) for number in range(1, 7)]
    assert read(logs, positions) == []

    logs.lines.append((999_500, faults[6]))
    assert read(logs, positions) == [("Faults", (7.0,))]
    logs.lines.append((999_200, faults[7]))
    now_s = 1_001.0
    assert read(logs, positions) == [("Faults", (8.0,))]
    now_s = 2_000.0
    assert read(logs, positions) == []
    assert positions[f"{GROUP} {metrics.COUNTED}"] == Position(1_997_000, set())
