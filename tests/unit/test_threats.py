"""The page of threats names what shows each line; all of it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
ROWS = [
    (cells[0].strip(), re.findall(r"`([^`]+)`", cells[2]))
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| "))
    if len(cells) == 3 and cells[0].strip() != "threat"
]


def test_the_page_has_its_rows() -> None:
    """The table is read as it is written: every line of it is a threat with a defence and a proof."""
    assert len(ROWS) == PAGE.count("\n| ") - 1 > 10


@pytest.mark.parametrize(("threat", "shown_by"), ROWS, ids=[threat[:40] for threat, _ in ROWS])
def test_what_shows_a_threats_defence_exists(threat: str, shown_by: list[str]) -> None:
    """Each threat names tests, by file or by function, and each of them is there."""
    assert shown_by, threat
    path = Path()
    for named in shown_by:
        file, _, function = named.partition("::")
        path = ROOT / file if file else path
        assert path.is_relative_to(ROOT / "tests"), named
        assert path.exists(), named
        if function:
            assert re.search(rf"^def {function}\(", path.read_text(encoding="utf-8"), re.MULTILINE), named
        elif path.is_file():
            assert "\ndef test_" in path.read_text(encoding="utf-8"), named
