from __future__ import annotations

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_imports_point_one_way() -> None:
    """The contracts in pyproject.toml hold: routes, then protocols, then stores, then conditional."""
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS
