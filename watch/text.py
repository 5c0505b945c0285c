"""A look at a stage as text: what the dashboard's widgets come to, and which alarms are on."""

import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

from watch.alarms import Alarm, State
from watch.dashboard import Widget
from watch.series import Series
from watch.stage import Look, Watcher

NAME_WIDTH, NUMBER_WIDTH = 34, 11
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 30
RECENT = 2
"""Periods: the one that is running and the one before, for the running one alone may have just begun."""
CLEAR = "\x1b[H\x1b[J"


def watch(watcher: Watcher, *, minutes: int, every_s: float | None, out: TextIO | None = None) -> None:
    """Print looks at a stage until interrupted; a single one where `every_s` is None.

    Raises:
        WatchError: the stage does not answer.
    """
    to = out or sys.stdout
    live = every_s is not None and to.isatty()
    while True:
        text = render(watcher.look(minutes))
        if live:
            lines = text.splitlines()
            # A longer page than the terminal would scroll, and not be redrawn in place.
            text = CLEAR + "\n".join(lines[: shutil.get_terminal_size().lines - 1])
        print(text, file=to, flush=True)
        if every_s is None:
            return
        time.sleep(every_s)


def render(look: Look) -> str:
    """Return the page."""
    at = datetime.fromtimestamp(look.at_s, UTC)
    lines = [f"Firstwrite, stage {look.stage}, the last {look.minutes} minutes, {at:%H:%M:%S} UTC", *_alarms(look)]
    numbers: list[str] = []
    for widget in look.widgets:
        if widget.single:
            numbers += [f"{label} {_number(sum(values.values()))}" for label, values, _, _ in look.series(widget)]
            continue
        if numbers:
            lines.append(f"  {'   '.join(numbers)}")
            numbers = []
        if widget.kind == "text":
            lines += ["", widget.title]
        elif widget.kind == "metric":
            lines += _graph(look, widget)
    return "\n".join(lines)


def _alarms(look: Look) -> list[str]:
    on = [alarm for alarm in look.alarms if look.states[alarm.name] == "ALARM"]
    if not on:
        return [f"No alarm of {len(look.alarms)} is on."]
    # Pages first.
    return [
        f"{alarm.severity.upper()} {short_name(alarm)}: {alarm.description.partition('] ')[2]}"
        for alarm in sorted(on, key=lambda alarm: alarm.severity)
    ]


def _graph(look: Look, widget: Widget) -> list[str]:
    series = look.series(widget)
    shown = [(label, values, adds_up) for label, values, adds_up, _ in series if any(values.values())]
    quiet = len(series) - len(shown)
    title = f"  {widget.title}"
    if not shown:
        there = any(values for _, values, _, _ in series)
        return [f"{title}: {'zero' if there else 'no data'}"]
    head = f"{title:<{NAME_WIDTH}}{'in all':>{NUMBER_WIDTH}}{'last 2 min':>{NUMBER_WIDTH}}"
    return [
        head if not quiet else f"{head}  ({quiet} more at zero)",
        *(_line(look, label, values, adds_up=adds_up) for label, values, adds_up in shown),
    ]


def _line(look: Look, label: str, values: Series, *, adds_up: bool) -> str:
    come_to = sum if adds_up else max
    recent = [values[at] for at in look.times[-RECENT:] if at in values]
    name = f"    {label}"[: NAME_WIDTH - 1]
    latest = _number(come_to(recent)) if recent else "-"
    whole = _number(come_to(values.values()))
    return f"{name:<{NAME_WIDTH}}{whole:>{NUMBER_WIDTH}}{latest:>{NUMBER_WIDTH}}  {_bars(look.times, values)}"


def _bars(times: Sequence[int], values: Series) -> str:
    some = times[-MOST_BARS:]
    most = max((values.get(at, 0.0) for at in some), default=0.0)
    if most <= 0:
        return ""
    heights = [values.get(at, 0.0) / most for at in some]
    return "".join(BARS[min(len(BARS) - 1, int(height * len(BARS)))] if height > 0 else " " for height in heights)


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4f}".rstrip("0") if abs(value) < 100 else f"{value:,.1f}"  # noqa: PLR2004 - readable to the eye


def short_name(alarm: Alarm) -> str:
    """Return an alarm's name in the runbook's words, without what CloudFormation adds."""
    found = re.fullmatch(r"firstwrite-.+-observability-(\w+?)[0-9A-F]{8}-\w+", alarm.name)
    return found[1] if found else alarm.name


def mark(state: State) -> str:
    """Return a state as a word to read."""
    return {"OK": "ok", "ALARM": "on", "INSUFFICIENT_DATA": "no data"}[state]
