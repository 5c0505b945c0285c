"""Write docs/openapi.json: `python -m contract`."""

from __future__ import annotations

from pathlib import Path

from contract.openapi import as_text

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"

if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")
    print(f"wrote {FILE.relative_to(Path.cwd())}")
