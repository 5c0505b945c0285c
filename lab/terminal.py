"""What the person at the terminal sees: progress while it runs, and a table at the end."""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import TextIO

from lab.stories import Result

COLUMNS = (("story", 29), ("naive", 21), ("Firstwrite", 32), ("promised", 26), ("ok", 3))
REDRAW_S = 0.05


class Terminal:
    """Shows progress in place on a terminal, and in plain lines anywhere else."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._what = ""
        self._drawn_at = 0.0

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._erase()
        print(line, file=self._out, flush=True)

    def begin(self, what: str) -> None:
        """Show that something new begins; the same again shows nothing new."""
        if not self._live and what != self._what:
            print(f"  {what}", file=self._out, flush=True)
        self._what = what

    def count(self, done: int, of: int) -> None:
        """Show how much of it is done."""
        now = time.monotonic()
        if self._live and (done == of or now - self._drawn_at > REDRAW_S):
            self._drawn_at = now
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[2K{f'  {self._what}: {done:,} of {of:,}'[: width - 1]}", end="", file=self._out, flush=True)

    def finish(self) -> None:
        """Leave nothing half drawn."""
        self._erase()

    def _erase(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=self._out, flush=True)


def table(results: Sequence[Result]) -> str:
    """Return the closing table, and below it whatever is not as promised."""
    lines = [_row([name for name, _ in COLUMNS]), _row(["-" * width for _, width in COLUMNS])]
    for result in results:
        cells = [
            result.story.title,
            result.naive.verdict.outcome,
            result.safe.verdict.outcome,
            result.story.promise,
            "yes" if result.ok else "NO",
        ]
        lines.append(_row(cells))
    for result in results:
        for side, verdict in (("naive", result.naive.verdict), ("Firstwrite", result.safe.verdict)):
            lines += [f"{result.story.name}, {side}: not so: {fault}" for fault in verdict.faults]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, (_, width) in zip(cells, COLUMNS, strict=True)]
    height = max(map(len, wrapped))
    return "\n".join(
        "  ".join(
            (lines[number] if number < len(lines) else "").ljust(width)
            for lines, (_, width) in zip(wrapped, COLUMNS, strict=True)
        ).rstrip()
        for number in range(height)
    )
