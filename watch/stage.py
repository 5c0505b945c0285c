"""Finds what there is to watch: a stage in AWS with the credentials that boto3 finds, or the local cloud."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from local import metrics as bridge
from local.emulator import answers, client
from local.folder import Folder
from watch import alarms, dashboard, reading
from watch.alarms import Alarm, State
from watch.dashboard import Widget
from watch.series import Metric, Series

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

LOCAL = "local"
PERIOD_S = 60
MOST_ALARMS = 100
"""That one DescribeAlarms takes by name."""


class WatchError(Exception):
    """A stage cannot be watched; the text is one line and says what to do."""


@dataclass(frozen=True)
class Look:
    """A stage at one moment."""

    stage: str
    at_s: float
    widgets: Sequence[Widget]
    data: Mapping[Metric, Series]
    times: Sequence[int]
    alarms: Sequence[Alarm]
    states: Mapping[str, State]

    @property
    def minutes(self) -> int:
        """How long the time on view is."""
        return len(self.times) * PERIOD_S // 60

    def series(self, widget: Widget) -> list[tuple[str, Series, bool, bool]]:
        """Return what a widget shows: of each line its label, its values, whether they add up, and its axis."""
        return [
            (line.label, widget.values(line, self.data, self.times), line.adds_up, line.right) for line in widget.lines
        ]


@dataclass(frozen=True)
class Watcher:
    """Takes looks at a stage."""

    stage: str
    client: "CloudWatchClient"
    dashboard_name: str
    prepare: Callable[[], object] = lambda: None
    """Called before each look."""
    evaluates: bool = False
    """Alarms are evaluated here, and not believed."""

    def look(self, minutes: int) -> Look:
        """Return what the stage did in the last `minutes`, the running one among them.

        Raises:
            WatchError: CloudWatch does not answer.
        """
        try:
            self.prepare()
            body = self.client.get_dashboard(DashboardName=self.dashboard_name)["DashboardBody"]
            widgets = dashboard.parse(body)
            known, states = self._alarms([name for widget in widgets for name in widget.alarms])
            at_s = time.time()
            end_s = int(at_s) // PERIOD_S * PERIOD_S + PERIOD_S
            times = reading.periods(end_s - minutes * PERIOD_S, end_s, PERIOD_S)
            data = reading.read(self.client, dashboard.metrics_of(widgets), times[0], end_s)
            if self.evaluates:
                states = evaluate(self.client, known, at_s)
        except (BotoCoreError, ClientError) as error:
            raise WatchError(f"stage {self.stage} cannot be read: {error}") from error
        return Look(self.stage, at_s, widgets, data, times, known, states)

    def _alarms(self, names: Sequence[str]) -> tuple[list[Alarm], dict[str, State]]:
        known: list[Alarm] = []
        states: dict[str, State] = {}
        for first in range(0, len(names), MOST_ALARMS):
            found = self.client.describe_alarms(AlarmNames=names[first : first + MOST_ALARMS], MaxRecords=MOST_ALARMS)
            for each in found["MetricAlarms"]:
                known.append(alarms.parse(each["AlarmName"], each))
                states[each["AlarmName"]] = each["StateValue"]
        return known, states


def evaluate(client: "CloudWatchClient", known: Sequence[Alarm], at_s: float) -> dict[str, State]:
    """Return the state of each alarm by its definition and the metrics."""
    metrics = {metric for alarm in known for metric in alarm.plot.metrics}
    first = min((alarm.times(at_s)[0] for alarm in known), default=0)
    data = reading.read(client, metrics, first, int(at_s) + 1)
    return {alarm.name: alarm.state(data, at_s) for alarm in known}


def find(stage: str, folder: Folder) -> Watcher:
    """Return what watches `stage`.

    Args:
        stage: its name; `local` is the local cloud.
        folder: of the local cloud.

    Raises:
        WatchError: it is not deployed, or cannot be reached.
    """
    return _find_local(folder) if stage == LOCAL else _find_deployed(stage)


def _find_local(folder: Folder) -> Watcher:
    emulator = folder.read_note()
    if emulator is None or not answers(emulator) or not folder.outputs.exists():
        raise WatchError("the local cloud is down; `make up` starts it")
    return Watcher(
        LOCAL,
        client("cloudwatch", emulator),
        folder.read_outputs()["DashboardName"],
        prepare=lambda: bridge.carry(folder, emulator),
        evaluates=True,
    )


def _find_deployed(stage: str) -> Watcher:
    stack = f"firstwrite-{stage}-observability"
    try:
        session = boto3.Session()
        cloudformation: Any = session.client("cloudformation")
        outputs = cloudformation.describe_stacks(StackName=stack)["Stacks"][0].get("Outputs", ())
        client = session.client("cloudwatch")
    except ClientError as error:
        raise WatchError(f"stack {stack} is not there ({error.response['Error'].get('Message')})") from error
    except BotoCoreError as error:
        raise WatchError(f"stage {stage} cannot be reached: {error}; set AWS_PROFILE and AWS_REGION") from error
    names = {output["OutputKey"]: output["OutputValue"] for output in outputs}
    if "DashboardName" not in names:
        raise WatchError(f"stack {stack} has no output DashboardName; deploy it again")
    return Watcher(stage, client, names["DashboardName"])
