"""A dashboard's body, and what is made of it: text and a picture."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from botocore.exceptions import ClientError

from lab.__main__ import main
from watch import dashboard, picture, text
from watch.alarms import State
from watch.stage import Watcher, WatchError

OWN = ["Firstwrite", "UpstreamCalls", "service", "cache"]
ALARM = "firstwrite-dev-observability-SpendLimitReached1174A87D-64BEE29FD149F"
BODY: dict[str, Any] = {
    "start": "-PT3H",
    "widgets": [
        {"type": "text", "x": 0, "y": 0, "width": 24, "height": 1, "properties": {"markdown": "## Money & <more>"}},
        {
            "type": "metric",
            "x": 0,
            "y": 1,
            "width": 6,
            "height": 4,
            "properties": {
                "view": "singleValue",
                "title": "Spent",
                "region": "eu-west-1",
                "metrics": [
                    [{"label": "spent", "expression": "FILL(calls, 0) * 0.002", "period": 60}],
                    [*OWN, {"id": "calls", "visible": False, "period": 60, "stat": "Sum"}],
                ],
            },
        },
        {
            "type": "metric",
            "x": 0,
            "y": 5,
            "width": 8,
            "height": 6,
            "properties": {
                "view": "timeSeries",
                "title": "Calls",
                "stacked": True,
                "metrics": [
                    [*OWN, {"label": "calls", "period": 60, "stat": "Sum"}],
                    ["Firstwrite", "Faults", "service", "cache", {"label": "faults", "period": 60, "stat": "Sum"}],
                    [
                        "AWS/Lambda",
                        "Duration",
                        "FunctionName",
                        "f",
                        {"label": "ms", "period": 60, "stat": "p99", "yAxis": "right"},
                    ],
                ],
            },
        },
        {
            "type": "alarm",
            "x": 0,
            "y": 11,
            "width": 24,
            "height": 6,
            "properties": {"title": "Alarms", "alarms": [f"arn:aws:cloudwatch:eu-west-1:1:alarm:{ALARM}"]},
        },
    ],
}


class FakeCloudWatch:
    """Has one value of each metric in each of the last five minutes."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get_dashboard(self, DashboardName: str) -> Any:
        if DashboardName != "board":
            raise ClientError({"Error": {"Code": "ResourceNotFound", "Message": "no such board"}}, "GetDashboard")
        return {"DashboardBody": json.dumps(BODY)}

    def describe_alarms(self, AlarmNames: list[str], MaxRecords: int) -> Any:
        assert len(AlarmNames) <= MaxRecords
        alarm = {
            "AlarmName": ALARM,
            "AlarmDescription": "[page] A source is at its limit. See docs/runbook.md, 'Spend limit reached'.",
            "StateValue": self._state,
            "Namespace": "Firstwrite",
            "MetricName": "SpendLimitReached",
            "Statistic": "Sum",
            "Period": 60,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "EvaluationPeriods": 5,
        }
        return {"MetricAlarms": [alarm]}

    def get_paginator(self, name: str) -> Any:
        assert name == "get_metric_data"
        return self

    def paginate(self, MetricDataQueries: list[Any], StartTime: datetime, EndTime: datetime) -> Any:
        times = [
            datetime.fromtimestamp(at, UTC) for at in range(int(StartTime.timestamp()), int(EndTime.timestamp()), 60)
        ]
        values = {"UpstreamCalls": 10.0, "Duration": 2.5}
        for query in MetricDataQueries:
            name = query["MetricStat"]["Metric"]["MetricName"]
            some = times if name in values else []
            # Each metric on a page of its own: pages must be joined.
            yield {
                "MetricDataResults": [
                    {"Id": query["Id"], "Timestamps": some, "Values": [values[name]] * len(some) if some else []}
                ]
            }


def watcher(state: State = "OK", board: str = "board") -> Watcher:
    client: Any = FakeCloudWatch(state)
    return Watcher("dev", client, board)


def test_a_body_is_read() -> None:
    """Hidden parts are read and not shown, and the right axis and what adds up are told apart."""
    heading, number, graph, alarms = dashboard.parse(json.dumps(BODY))
    assert (heading.kind, heading.title, number.single, graph.stacked) == ("text", "Money & <more>", True, True)
    assert [line.label for line in number.lines] == ["spent"]
    assert len(number.plot.metrics) == 1
    assert [(line.label, line.right, line.adds_up) for line in graph.lines] == [
        ("calls", False, True),
        ("faults", False, True),
        ("ms", True, False),
    ]
    assert alarms.alarms == [ALARM]


def test_the_text_says_what_the_widgets_come_to() -> None:
    """Money over the whole time, each line in all and lately, what is at zero only as a number of lines."""
    lines = text.render(watcher().look(5)).splitlines()
    assert lines[0].startswith("Firstwrite, stage dev, the last 5 minutes, ")
    assert lines[1] == "No alarm of 1 is on."
    assert "  spent 0.1" in lines
    assert any(line.startswith("  Calls ") and line.endswith("(1 more at zero)") for line in lines)
    assert [line.split()[:3] for line in lines if line.startswith("    ")] == [
        ["calls", "50", "20"],
        ["ms", "2.5", "2.5"],
    ]


def test_an_alarm_that_is_on_comes_first() -> None:
    """With its level, what it means, and where to read on."""
    lines = text.render(watcher("ALARM").look(5)).splitlines()
    assert lines[1] == ("PAGE SpendLimitReached: A source is at its limit. See docs/runbook.md, 'Spend limit reached'.")


def test_watching_once_prints_one_page() -> None:
    """No screen is cleared where nobody looks."""
    out = io.StringIO()
    text.watch(watcher(), minutes=5, every_s=None, out=out)
    assert out.getvalue().startswith("Firstwrite, stage dev")


def test_the_picture_is_one_sound_page(tmp_path: Path) -> None:
    """It needs no other file, its text is escaped, its drawings are XML, and alarms show what they mean."""
    page = tmp_path / "dashboard.html"
    picture.write(page, watcher("ALARM").look(5))
    drawn = page.read_text(encoding="utf-8")
    assert "Money &amp; &lt;more&gt;" in drawn
    assert "http" not in drawn.replace("http-equiv", "")
    assert '<li class="alarm" title="[page] A source is at its limit.' in drawn
    (svg,) = (drawn[at : drawn.index("</svg>", at) + 6] for at in range(len(drawn)) if drawn.startswith("<svg", at))
    titles = {each.text for each in ET.fromstring(svg).iter("title")}  # noqa: S314 - our own page
    assert titles == {"calls", "faults", "ms"}
    assert "<b>0.1</b> spent" in drawn


def test_a_stage_that_does_not_answer_is_one_line() -> None:
    """It names the stage, and what AWS said."""
    with pytest.raises(WatchError, match=r"stage dev cannot be read: .*no such board"):
        watcher(board="other").look(5)


def test_a_local_cloud_that_is_down_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says how to start it."""
    assert main(["watch", "--once", "--folder", str(tmp_path)]) == 1
    assert main(["picture", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "the local cloud is down; `make up` starts it\n" * 2


@pytest.mark.parametrize("minutes", ["0", "1441"])
def test_the_time_to_look_back_is_bounded(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CloudWatch keeps minutes for days, but a day of them is what a page holds."""
    with pytest.raises(SystemExit):
        main(["watch", "--minutes", minutes])
    assert "must be 1 to 1440" in capsys.readouterr().err
