"""Writes the report: one page that needs nothing else, light and dark, with every timeline drawn."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lab.drawing import KINDS, draw_callers, draw_sales, duration, kind_of
from lab.stories import Result, Side, Story

STYLE = Path(__file__).with_name("page.css")


@dataclass(frozen=True)
class Run:
    """What the report says about the run as a whole."""

    where: str
    at: datetime
    took_s: float


def write(path: Path, results: Sequence[Result], run: Run) -> None:
    """Write the page."""
    path.write_text(render(results, run), encoding="utf-8")


def render(results: Sequence[Result], run: Run) -> str:
    """Return the page."""
    body = "".join(_section(result) for result in results)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Firstwrite: what the races did</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
<main>
<h1>What the races did</h1>
<p class="soft">Each story was run over HTTP against a deliberately naive service and against Firstwrite,
on {_text(run.where)}, {run.at:%Y-%m-%d %H:%M} UTC, {run.took_s:.0f} s.</p>
{_banner(results)}
{_summary(results)}
{body}
</main>
</html>
"""


def _banner(results: Sequence[Result]) -> str:
    broken = [result for result in results if not result.ok]
    if not broken:
        return '<p class="banner good">Every promise was kept, and every naive twin broke it.</p>'
    return f'<p class="banner bad">{len(broken)} of {len(results)} stories did not come out as promised.</p>'


def _summary(results: Sequence[Result]) -> str:
    rows = "".join(
        f"<tr><th scope='row'><a href='#{_text(result.story.name)}'>{_text(result.story.title)}</a></th>"
        f"<td>{_text(result.naive.verdict.outcome)}</td><td>{_text(result.safe.verdict.outcome)}</td>"
        f"<td>{_text(result.story.promise)}</td><td>{_mark(ok=result.ok)}</td></tr>"
        for result in results
    )
    return (
        "<div class='scroll'><table><thead><tr><th>Story</th><th>Naive</th><th>Firstwrite</th><th>Promised</th>"
        f"<th>As promised</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _mark(*, ok: bool) -> str:
    return '<strong class="good-text">yes</strong>' if ok else '<strong class="bad-text">no</strong>'


def _section(result: Result) -> str:
    sides = (result.naive, result.safe)
    until_s = max(duration(side.exchanges) for side in sides)
    most = max([result.story.stock, *(_granted(side) for side in sides)])
    cards = "".join(
        _card(css, title, side, _draw(result.story, side, until_s, most))
        for css, title, side in (("naive", "Naive", result.naive), ("safe", "Firstwrite", result.safe))
    )
    return (
        f"<section id='{_text(result.story.name)}'><h2>{_text(result.story.title)}</h2>"
        f"<p class='soft'>{_text(result.story.tells)} Promised instead: {_text(result.story.promise)}.</p>"
        f"<div class='pair'>{cards}</div></section>"
    )


def _draw(story: Story, side: Side, until_s: float, most: int) -> str:
    if story.drawn == "sales":
        granted = "wrong" if _granted(side) > story.stock else "claimed"
        legend = f"<li><i class='{granted}'></i>claims granted</li><li><i class='refused'></i>refused: sold-out</li>"
        return draw_sales(side.exchanges, story.stock, until_s, most) + f"<ul class='legend'>{legend}</ul>"
    there = {"wrong" if number in side.wrong else kind_of(exchange) for number, exchange in enumerate(side.exchanges)}
    legend = "".join(f"<li><i class='{kind}'></i>{told}</li>" for kind, told in KINDS.items() if kind in there)
    return draw_callers(side.callers, side.exchanges, until_s, side.wrong) + f"<ul class='legend'>{legend}</ul>"


def _card(css: str, title: str, side: Side, drawing: str) -> str:
    broken = " broken" * (not side.verdict.ok)
    faults = "".join(f"<li>not so: {_text(fault)}</li>" for fault in side.verdict.faults)
    listed = f"<ul class='faults'>{faults}</ul>" if faults else ""
    return (
        f"<div class='card {css}{broken}'><h3>{title}</h3><p class='outcome'>{_text(side.verdict.outcome)}</p>"
        f"{listed}{drawing}</div>"
    )


def _granted(side: Side) -> int:
    return sum(kind_of(exchange) in {"claimed", "replayed"} for exchange in side.exchanges)


def _text(value: str) -> str:
    return html.escape(value)
