"""A pytest plugin that gives a module the source in FIRSTWRITE_MUTANT before anything imports it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

ROOT = Path(__file__).parents[2]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that is mutated."""

    def __init__(self, name: str, source: Path) -> None:
        self._name = name
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self._name:
            return None
        loader = importlib.machinery.SourceFileLoader(fullname, str(self._source))
        return importlib.util.spec_from_file_location(fullname, self._source, loader=loader)


if "FIRSTWRITE_MUTANT" in os.environ:
    module, _, file = os.environ["FIRSTWRITE_MUTANT"].partition("=")
    sys.meta_path.insert(0, _Finder(module, Path(file)))
