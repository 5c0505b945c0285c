"""Draws a dashboard as it stands: a page that needs nothing else, light and dark, widgets where AWS would put them."""

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from watch.dashboard import Widget
from watch.series import Series
from watch.stage import PERIOD_S, Look
from watch.text import mark, short_name

STYLE = Path(__file__).with_name("picture.css")
COLOURS = 8
UNIT_WIDTH, HEIGHT, SIDE, TOP, BOTTOM = 42.0, 168.0, 40.0, 10.0, 20.0
"""In the drawing's own units: of a column, of the drawing, and of its margins."""
TICKS = 2
WIDEST, NARROWER, NARROWEST = 5.0, 1.5, 2.0
"""Lines get narrower, so that those that run together all show."""
Shown = tuple[str, Series, bool, bool]


def write(path: Path, look: Look) -> None:
    """Write the page."""
    path.write_text(render(look), encoding="utf-8")


def render(look: Look) -> str:
    """Return the page."""
    at = datetime.fromtimestamp(look.at_s, UTC)
    widgets = "".join(_widget(look, widget) for widget in look.widgets)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Firstwrite, stage {html.escape(look.stage)}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
<main>
<h1>Stage {html.escape(look.stage)}</h1>
<p>The last {look.minutes} minutes, up to {at:%Y-%m-%d %H:%M:%S} UTC, by the minute.</p>
<div class="dashboard">
{widgets}</div>
</main>
</html>
"""


def _widget(look: Look, widget: Widget) -> str:
    place = f'style="grid-column: span {widget.width}"'
    if widget.kind == "text":
        return f"<h2 {place}>{html.escape(widget.title)}</h2>\n"
    if widget.kind == "alarm":
        body = _alarms(look)
    elif widget.single:
        body = "".join(_single(shown) for shown in look.series(widget))
    else:
        body = _graph(look, widget)
    return f"<section {place}><h3>{html.escape(widget.title)}</h3>{body}</section>\n"


def _alarms(look: Look) -> str:
    items = "".join(
        f'<li class="{look.states[alarm.name].lower()}" title="{html.escape(alarm.description)}">'
        f"{html.escape(short_name(alarm))} <b>{alarm.severity}, {mark(look.states[alarm.name])}</b></li>"
        for alarm in look.alarms
    )
    return f'<ul class="alarms">{items}</ul>'


def _single(shown: Shown) -> str:
    label, values, _, _ = shown
    return f'<p class="number"><b>{_number(sum(values.values()))}</b> {html.escape(label)}</p>'


def _graph(look: Look, widget: Widget) -> str:
    every = look.series(widget)
    width = widget.width * UNIT_WIDTH
    scale = _Scale(look.times, width)
    left = [shown for shown in every if not shown[3]]
    floors: Series = {}
    tops = _tops(left, stacked=widget.stacked)
    most_left, most_right = _most(tops), _most([values for _, values, _, right in every if right])
    parts = [_axes(scale, most_left, most_right)]
    lefts = iter(tops)
    for number, (label, values, _, right) in enumerate(every):
        colour = f"c{number % COLOURS}"
        title = f"<title>{html.escape(label)}</title>"
        if right:
            parts.append(
                f'<path class="line right {colour}" stroke-width="{NARROWEST:g}" '
                f'd="{scale.line(values, most_right)}">{title}</path>'
            )
            continue
        top = next(lefts)
        if widget.stacked:
            parts.append(f'<path class="area {colour}" d="{scale.area(top, floors, most_left)}">{title}</path>')
            floors = top
        else:
            wide = max(NARROWEST, WIDEST - NARROWER * number)
            drawn = scale.line(top, most_left)
            parts.append(f'<path class="line {colour}" stroke-width="{wide:g}" d="{drawn}">{title}</path>')
    if not any(values for _, values, _, _ in every):
        middle = f'x="{width / 2:.0f}" y="{(HEIGHT - BOTTOM + TOP) / 2:.0f}"'
        parts.append(f'<text class="middle" {middle}>no data</text>')
    drawing = (
        f'<svg viewBox="0 0 {width:.0f} {HEIGHT:.0f}" role="img" aria-label="{html.escape(widget.title)}">'
        f"{''.join(parts)}</svg>"
    )
    return drawing + _legend(every)


def _tops(shown: Sequence[Shown], *, stacked: bool) -> list[Series]:
    """Return the upper edge of each series: its values, or those of all below it too."""
    if not stacked:
        return [values for _, values, _, _ in shown]
    tops: list[Series] = []
    below: Series = {}
    for _, values, _, _ in shown:
        below = {at: below.get(at, 0.0) + values.get(at, 0.0) for at in below.keys() | values.keys()}
        tops.append(below)
    return tops


def _most(every: Sequence[Series]) -> float:
    """Return a round number that no value is above."""
    most = max((value for values in every for value in values.values()), default=0.0)
    if most <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(most))) - 1)
    return next(power * step for step in (1, 2, 3, 5, 10) if most <= power * step)


class _Scale:
    """From periods and values to places in a drawing."""

    def __init__(self, times: Sequence[int], width: float) -> None:
        self.times = times
        self.left, self.right = SIDE, width - SIDE

    def x(self, at: float) -> float:
        """Return how far right the time `at` is."""
        span = len(self.times) * PERIOD_S
        return self.left + (at - self.times[0]) / span * (self.right - self.left)

    def y(self, value: float, most: float) -> float:
        """Return how far down `value` is."""
        return HEIGHT - BOTTOM - min(1.0, max(0.0, value / most)) * (HEIGHT - BOTTOM - TOP)

    def line(self, values: Series, most: float) -> str:
        """Return a path of steps, one a period, that breaks where there is no data."""
        path, drawing = "", False
        for at in self.times:
            if at in values:
                path += f"{'V' if drawing else f'M{self.x(at):.1f},'}{self.y(values[at], most):.1f}"
                path += f"H{self.x(at + PERIOD_S):.1f}"
            drawing = at in values
        return path

    def area(self, top: Series, floor: Series, most: float) -> str:
        """Return a filled path of steps between two edges; no data is zero."""
        there = [(self.x(at), self.x(at + PERIOD_S), at) for at in self.times]
        up = "".join(f"L{a:.1f},{self.y(top.get(at, 0), most):.1f}H{b:.1f}" for a, b, at in there)
        back = "".join(f"L{b:.1f},{self.y(floor.get(at, 0), most):.1f}H{a:.1f}" for a, b, at in reversed(there))
        return f"M{self.left:.1f},{self.y(0, most):.1f}{up}{back}Z"


def _axes(scale: _Scale, most_left: float, most_right: float) -> str:
    parts = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        y = scale.y(share, 1.0)
        parts.append(f'<path class="grid" d="M{scale.left:.1f},{y:.1f}H{scale.right:.1f}"/>')
        parts.append(f'<text x="{scale.left - 5:.1f}" y="{y + 4:.1f}" class="end">{_number(share * most_left)}</text>')
        if most_right != 1.0:
            parts.append(f'<text x="{scale.right + 5:.1f}" y="{y + 4:.1f}">{_number(share * most_right)}</text>')
        at = scale.times[0] + share * len(scale.times) * PERIOD_S
        anchor = ("start", *("middle",) * (TICKS - 1), "end")[tick]
        clock = datetime.fromtimestamp(at, UTC)
        parts.append(f'<text x="{scale.x(at):.1f}" y="{HEIGHT - 5:.1f}" class="{anchor}">{clock:%H:%M}</text>')
    return "".join(parts)


def _legend(every: Sequence[Shown]) -> str:
    items = "".join(
        f'<li><i class="c{number % COLOURS}{" right" * right}"></i>{html.escape(label)} '
        f"<b>{_number((sum if adds_up else max)(values.values()) if values else 0)}</b></li>"
        for number, (label, values, adds_up, right) in enumerate(every)
    )
    return f"<ul class='legend'>{items}</ul>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - to the eye
