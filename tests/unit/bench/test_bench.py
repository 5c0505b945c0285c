from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(400)
def test_a_quick_run_writes_the_results_and_counts_the_aims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every contender, every column, and Firstwrite is right in all experiments; timings are for longer runs."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    main(["--quick", "--output", str(tmp_path)])

    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| Firstwrite | yes | yes | yes |\n" in page
    assert "| Firstwrite | yes | yes | yes | yes |\n" in page
    assert "| Firstwrite | 1 calls, 20 served (1) |" in page
    assert page.splitlines()[-1] == capsys.readouterr().out.splitlines()[-1]
    assert page.splitlines()[-1].startswith("aims met: ")
    assert {file.name for file in tmp_path.iterdir()} == {"RESULTS.md", "latency.svg", "cost.svg"}
