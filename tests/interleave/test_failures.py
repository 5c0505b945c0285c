"""The failure table names what shows each line; all of it exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.interleave import twins
from tests.interleave.proof import scenarios

ROOT = Path(__file__).parents[2]


def test_everything_the_failure_table_names_exists() -> None:
    """Each race, twin and test that docs/failures.md names is there."""
    page = (ROOT / "docs" / "failures.md").read_text()
    races, faults = set(re.findall(r"race `([^`]+)`", page)), set(re.findall(r"twin `([^`]+)`", page))
    tests = set(re.findall(r"`(test_\w+)`", page))
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }

    assert races <= set(scenarios())
    assert faults <= {twin.name for twin in (*twins.CACHE, *twins.CLAIMS)}
    assert tests <= defined
