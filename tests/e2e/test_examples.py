from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Deployed

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_holds_what_it_says(deployed: Deployed, example: Path) -> None:
    """Each runs as its reader would run it, checks itself, and says what it has shown."""
    ran = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, example, "--api-url", deployed.api], capture_output=True, text=True, timeout=90, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") >= 1
