"""Pictures as SVG, drawn by hand: bars, for that is all that is needed."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW, LABEL, WIDTH, VALUE = 26, 270, 420, 90
COLOURS = {"bare": "#8c959f", "Firstwrite": "#1a7f37"}
OTHER = "#bc4c00"


def bars(title: str, rows: Sequence[tuple[str, float, str]], *, logarithmic: bool = False) -> str:
    """Return a picture with a bar for each row.

    Args:
        title: what is shown, with its unit.
        rows: label, value above zero, and the value as text.
        logarithmic: lengths grow by the factor and not by the difference.
    """
    most = max(value for _, value, _ in rows)
    least = min(value for _, value, _ in rows)

    def length(value: float) -> float:
        if not logarithmic:
            return WIDTH * value / most
        return 20 + (WIDTH - 20) * math.log(value / least) / (math.log(most / least) or 1)

    height = ROW * (len(rows) + 2)
    size = f'width="{LABEL + WIDTH + VALUE}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="20" font-weight="600">{escape(title)}</text>',
    ]
    for number, (label, value, text) in enumerate(rows):
        y = ROW * (number + 1) + 8
        colour = next((colour for start, colour in COLOURS.items() if label.startswith(start)), OTHER)
        lines.append(
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{LABEL}" y="{y}" width="{length(value):.1f}" height="{ROW - 6}" fill="{colour}"/>'
            f'<text x="{LABEL + length(value) + 6:.1f}" y="{y + 15}">{escape(text)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])
