"""Carries metrics from the functions' logs to the emulator's CloudWatch, which AWS does by itself.

AWS reads embedded metric format out of the logs, and measures functions and queues; the emulator only keeps the lines.
Carried is what has come since the last time, whoever carried it, so that nothing counts twice, and how many messages
wait just now. What DynamoDB and API Gateway count themselves is not there: the emulator counts for neither.
"""

import fcntl
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.emulator import client
from local.folder import Emulator, Folder

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.literals import StandardUnitType
    from mypy_boto3_cloudwatch.type_defs import MetricDatumTypeDef
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilteredLogEventTypeDef
    from mypy_boto3_sqs import SQSClient

COUNTED, REPORTED = '"CloudWatchMetrics"', "Billed"
"""Words by which to find the lines."""
REPORT = re.compile(r"^REPORT RequestId: .*?\bDuration: (?P<ms>[\d.]+) ms")
MOST_DATA = 1_000
"""That one PutMetricData takes."""
MOST_EVENTS = 10_000
"""That one FilterLogEvents returns."""
SETTLING_MS = 3_000
"""A line may come this late after the time it bears."""


@dataclass(frozen=True)
class Datum:
    """One value list of one metric under one set of dimensions."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    unit: "StandardUnitType"
    at_ms: int
    values: tuple[float, ...]


@dataclass
class Position:
    """Up to where a log group was read."""

    from_ms: int = 0
    seen: set[str] = field(default_factory=set)
    """Lines since then that were carried."""


def carry(folder: Folder, emulator: Emulator) -> list[Datum]:
    """Carry what has come since the last time; returns it."""
    folder.temporary.mkdir(parents=True, exist_ok=True)
    # Where the emulator's own files are, for it is worth nothing without them.
    with (folder.temporary / "metrics.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        noted = json.loads(file.read() or "{}")
        positions = {group: Position(each["from_ms"], set(each["seen"])) for group, each in noted.items()}
        functions = _functions(client("lambda", emulator))
        data = [*_read(client("logs", emulator), functions, positions), *_waiting(client("sqs", emulator))]
        _put(client("cloudwatch", emulator), data)
        file.seek(0)
        file.truncate()
        json.dump({group: {"from_ms": at.from_ms, "seen": sorted(at.seen)} for group, at in positions.items()}, file)
    return data


def _functions(lambda_: "LambdaClient") -> dict[str, str]:
    """Return the functions by log group."""
    pages = lambda_.get_paginator("list_functions").paginate()
    every = [function for page in pages for function in page["Functions"]]
    return {function["LoggingConfig"]["LogGroup"]: function["FunctionName"] for function in every}


def _read(
    logs: "CloudWatchLogsClient", functions: Mapping[str, str], positions: dict[str, Position]
) -> Iterator[Datum]:
    for group, function in functions.items():
        for event in _events(logs, group, COUNTED, positions):
            yield from parse(event["message"])
        for event in _events(logs, group, REPORTED, positions):
            yield from parse_report(event["message"], function, event["timestamp"])


def _events(
    logs: "CloudWatchLogsClient", group: str, pattern: str, positions: dict[str, Position]
) -> Iterator["FilteredLogEventTypeDef"]:
    """Yield the lines with `pattern` that have come since the last time."""
    key = f"{group} {pattern}"
    before = positions.get(key, Position())
    settled_ms = int(time.time() * 1000) - SETTLING_MS
    from_ms, seen, late = before.from_ms, set(before.seen), set[str]()
    while True:
        asked = logs.filter_log_events(logGroupName=group, startTime=from_ms, filterPattern=pattern, limit=MOST_EVENTS)
        events = asked["events"]
        for event in events:
            text = f"{event['logStreamName']}\n{event['message']}"
            line = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            if event["timestamp"] >= settled_ms:
                late.add(line)
            if line not in seen:
                seen.add(line)
                yield event
        # The emulator has no next page; the next one begins where this one ended.
        if len(events) < MOST_EVENTS or events[-1]["timestamp"] == from_ms:
            break
        from_ms = events[-1]["timestamp"]
    positions[key] = Position(max(before.from_ms, settled_ms), late)


def parse_report(line: str, function: str, at_ms: int) -> Iterator[Datum]:
    """Yield what Lambda counts of a call that its log reports."""
    found = REPORT.match(line)
    if found:
        dimensions = (("FunctionName", function),)
        yield Datum("AWS/Lambda", "Invocations", dimensions, "Count", at_ms, (1.0,))
        yield Datum("AWS/Lambda", "Duration", dimensions, "Milliseconds", at_ms, (float(found["ms"]),))


def _waiting(sqs: "SQSClient") -> Iterator[Datum]:
    """Yield how many messages wait in each queue."""
    now_ms = int(time.time() * 1000)
    for page in sqs.get_paginator("list_queues").paginate():
        for url in page.get("QueueUrls", ()):
            asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
            waiting = float(asked["Attributes"]["ApproximateNumberOfMessages"])
            dimensions = (("QueueName", url.rpartition("/")[2]),)
            yield Datum("AWS/SQS", "ApproximateNumberOfMessagesVisible", dimensions, "Count", now_ms, (waiting,))


def parse(line: str) -> Iterator[Datum]:
    """Yield what a line in embedded metric format counts; nothing for any other line."""
    start = line.find("{")
    try:
        root: Mapping[str, Any] = json.loads(line[start:]) if start >= 0 else {}
    except ValueError:
        return
    about = root.get("_aws", {})
    for directive in about.get("CloudWatchMetrics", ()):
        for names in directive["Dimensions"]:
            dimensions = tuple(sorted((name, str(root[name])) for name in names))
            for metric in directive["Metrics"]:
                value = root[metric["Name"]]
                values = tuple(map(float, value)) if isinstance(value, list) else (float(value),)
                unit: StandardUnitType = metric.get("Unit", "None")
                yield Datum(directive["Namespace"], metric["Name"], dimensions, unit, int(about["Timestamp"]), values)


def _put(cloudwatch: "CloudWatchClient", data: Sequence[Datum]) -> None:
    for namespace in sorted({datum.namespace for datum in data}):
        mine = [datum for datum in data if datum.namespace == namespace]
        for first in range(0, len(mine), MOST_DATA):
            cloudwatch.put_metric_data(
                Namespace=namespace, MetricData=[_as_put(datum) for datum in mine[first : first + MOST_DATA]]
            )


def _as_put(datum: Datum) -> "MetricDatumTypeDef":
    return {
        "MetricName": datum.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in datum.dimensions],
        "Timestamp": datetime.fromtimestamp(datum.at_ms / 1000, UTC),
        "Unit": datum.unit,
        "Values": list(datum.values),
    }
