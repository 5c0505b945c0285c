"""Reads a dashboard's body: what each widget shows."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watch.series import Metric, Plot, Series

DEFAULT_PERIOD_S = 300


@dataclass(frozen=True)
class Line:
    """One thing that a widget shows."""

    part: str
    label: str
    right: bool = False
    """Its axis is the right one."""
    adds_up: bool = True
    """Whether its values over time come to a total; a maximum or a percentile has none."""


@dataclass(frozen=True)
class Widget:
    """One widget, with its place in a grid of 24 columns."""

    kind: str
    title: str
    x: int
    y: int
    width: int
    height: int
    plot: Plot
    lines: Sequence[Line]
    single: bool = False
    """It shows what the whole time on view comes to."""
    stacked: bool = False
    alarms: Sequence[str] = ()
    """Names."""

    def values(self, line: Line, data: Mapping[Metric, Series], times: Sequence[int]) -> Series:
        """Return a line's values over time."""
        return self.plot.series(line.part, data, times)


def parse(body: str) -> list[Widget]:
    """Return the widgets, top to bottom and left to right."""
    widgets = [_widget(each) for each in json.loads(body)["widgets"]]
    return sorted(widgets, key=lambda widget: (widget.y, widget.x))


def metrics_of(widgets: Sequence[Widget]) -> set[Metric]:
    """Return all that has to be read to show them."""
    return {metric for widget in widgets for metric in widget.plot.metrics}


def _widget(each: Mapping[str, Any]) -> Widget:
    properties = each["properties"]
    parts: dict[str, Metric | str] = {}
    lines = []
    for number, (part, line) in enumerate(_parts(properties)):
        name = line.part or f"line{number}"
        parts[name] = part
        if line.label:
            lines.append(Line(name, line.label, line.right, line.adds_up))
    text = properties.get("markdown", "").lstrip("# ")
    return Widget(
        kind=each["type"],
        title=properties.get("title", text),
        x=each.get("x", 0),
        y=each.get("y", 0),
        width=each.get("width", 6),
        height=each.get("height", 6),
        plot=Plot(parts),
        lines=lines,
        single=properties.get("view") == "singleValue",
        stacked=bool(properties.get("stacked")),
        alarms=[re.sub(r"^.*:alarm:", "", arn) for arn in properties.get("alarms", ())],
    )


def _parts(properties: Mapping[str, Any]) -> Iterator[tuple[Metric | str, Line]]:
    """Yield each metric or expression; a line without a label is one that is not shown."""
    for row in properties.get("metrics", ()):
        *names, options = row if isinstance(row[-1], dict) else [*row, {}]
        period_s = int(options.get("period", properties.get("period", DEFAULT_PERIOD_S)))
        statistic = options.get("stat", properties.get("stat", "Average"))
        shown = options.get("visible", True)
        right = options.get("yAxis") == "right"
        if names:
            namespace, name, *rest = names
            dimensions = tuple(sorted(zip(rest[::2], rest[1::2], strict=True)))
            label = options.get("label", name)
            part: Metric | str = Metric(namespace, name, dimensions, statistic, period_s)
        else:
            part, label = options["expression"], options.get("label", options["expression"])
        adds_up = not names or statistic == "Sum"
        yield part, Line(options.get("id", ""), label if shown else "", right, adds_up)
