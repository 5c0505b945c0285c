"""Draws what happened as SVG: a bar for each caller, or claims granted over time."""

import html
import math
from collections.abc import Collection, Sequence

from lab.client import Exchange

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 560, 84, 28, 8, 26
BAR_ROOM = 15.0
TIGHT_ROOM, MANY = 10.5, 30
SALES_HEIGHT = 300
MOST_TICKS = 6

KINDS = {
    "paid": "called the paid API",
    "shared": "waited and shared the answer",
    "hit": "served from the cache",
    "claimed": "was granted the claim",
    "wrong": "was granted a claim it should not have",
    "replayed": "was given its first claim again",
    "refused": "was told sold-out",
    "failed": "got something else",
}


def kind_of(exchange: Exchange) -> str:
    """Return which of `KINDS` an answer is."""
    mark = exchange.headers.get("cache-status", "")
    if exchange.status == 200:  # noqa: PLR2004 - HTTP
        kinds = {"stored": "paid", "collapsed": "shared", "hit": "hit"}
        return next((kind for word, kind in kinds.items() if word in mark), "failed")
    if exchange.status == 201:  # noqa: PLR2004 - HTTP
        return "replayed" if exchange.headers.get("idempotency-replayed") == "true" else "claimed"
    return "refused" if exchange.status == 409 else "failed"  # noqa: PLR2004 - HTTP


def duration(exchanges: Sequence[Exchange]) -> float:
    """Return the seconds until the last answer."""
    return max((exchange.ended_s for exchange in exchanges), default=0.0)


def draw_callers(
    callers: Sequence[str], exchanges: Sequence[Exchange], until_s: float, wrong: Collection[int] = ()
) -> str:
    """Return a row for each caller: when it asked, when it was answered, and with what.

    Args:
        callers: the name of each row.
        exchanges: what each did.
        until_s: where the time axis ends.
        wrong: rows whose claim should not have been granted.
    """
    room = BAR_ROOM if len(exchanges) <= MANY else TIGHT_ROOM
    height = TOP + room * len(exchanges) + BOTTOM
    scale = _scale(until_s)
    parts = [_axis(until_s, height)]
    for row, (caller, exchange) in enumerate(zip(callers, exchanges, strict=True)):
        top = TOP + row * room
        begin, end = LEFT + exchange.began_s * scale, LEFT + exchange.ended_s * scale
        kind = "wrong" if row in wrong else kind_of(exchange)
        told = f"{caller} {KINDS[kind]}: {exchange.status or exchange.error} after {_ms(exchange)} ms"
        parts.append(
            f"<g><title>{html.escape(told)}</title>"
            f'<text x="{LEFT - 8}" y="{top + room * 0.72:.1f}" text-anchor="end">{html.escape(caller)}</text>'
            f'<rect class="{kind}" x="{begin:.1f}" y="{top + 1.5:.1f}" rx="2"'
            f' width="{max(end - begin, 2):.1f}" height="{room - 3:.1f}"/></g>'
        )
    return _svg(height, "Each caller's request over time", parts)


def draw_sales(exchanges: Sequence[Exchange], stock: int, until_s: float, most: int) -> str:
    """Return the claims granted and refused over time, against the stock there was.

    Args:
        exchanges: all claims of the race.
        stock: the units there were.
        until_s: where the time axis ends.
        most: where the other axis ends.
    """
    granted, refused = (
        sorted(exchange.ended_s for exchange in exchanges if kind_of(exchange) in kinds)
        for kinds in ({"claimed", "replayed"}, {"refused"})
    )
    up = SALES_HEIGHT / max(most * 1.05, 1)
    line = TOP + SALES_HEIGHT - stock * up
    over = "over" if len(granted) > stock else "within"
    parts = [
        _axis(until_s, TOP + SALES_HEIGHT + BOTTOM),
        _curve(refused, "refusals", until_s, up),
        _curve(granted, f"sales {over}", until_s, up),
        f'<path class="stock" d="M{LEFT},{line:.1f}H{WIDTH - RIGHT}"/>',
        f'<text x="{LEFT - 8}" y="{line + 4:.1f}" text-anchor="end">stock {stock:,}</text>',
    ]
    for times, css in ((refused, ""), (granted, over)):
        if times and len(times) != stock:
            top = TOP + SALES_HEIGHT - len(times) * up
            parts.append(
                f'<text class="{css}" x="{LEFT - 8}" y="{top + 4:.1f}" text-anchor="end">{len(times):,}</text>'
            )
    label = f"{len(granted):,} claims granted and {len(refused):,} refused over time, on a stock of {stock:,}"
    return _svg(TOP + SALES_HEIGHT + BOTTOM, label, parts)


def _curve(times: Sequence[float], css: str, until_s: float, up: float) -> str:
    across = _scale(until_s)
    floor = TOP + SALES_HEIGHT
    steps = "".join(f"H{LEFT + at_s * across:.1f}V{floor - number * up:.1f}" for number, at_s in enumerate(times, 1))
    return f'<path class="{css}" d="M{LEFT},{floor}{steps}H{LEFT + until_s * across:.1f}"/>'


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'
    )


def _axis(until_s: float, height: float) -> str:
    step_s = _tick_step(until_s)
    unit, factor = ("ms", 1000) if until_s < 2 else ("s", 1)  # noqa: PLR2004 - readable to the eye
    parts = []
    for number in range(math.floor(until_s / step_s + 1e-9) + 1):
        at_s = number * step_s
        x = LEFT + at_s * _scale(until_s)
        parts.append(
            f'<path class="grid" d="M{x:.1f},{TOP}V{height - BOTTOM:.1f}"/>'
            f'<text x="{x:.1f}" y="{height - 8:.1f}" text-anchor="middle">{at_s * factor:g} {unit}</text>'
        )
    return "".join(parts)


def _tick_step(until_s: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that there are at most `MOST_TICKS` steps."""
    power = 10.0 ** math.floor(math.log10(max(until_s, 0.001) / MOST_TICKS))
    return next(power * step for step in (1, 2, 5, 10) if until_s <= power * step * MOST_TICKS)


def _scale(until_s: float) -> float:
    return (WIDTH - LEFT - RIGHT) / max(until_s, 0.001)


def _ms(exchange: Exchange) -> int:
    return round((exchange.ended_s - exchange.began_s) * 1000)
