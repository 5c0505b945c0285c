"""A bounded memory of one execution environment."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

MOST_REMEMBERED = 1_000


class Remembered(Generic[T]):
    """What was last known by name, oldest out first."""

    def __init__(self) -> None:
        self._values: dict[str, T] = {}

    def get(self, name: str) -> T | None:
        """Return what is known, None where nothing is."""
        return self._values.get(name)

    def put(self, name: str, value: T) -> None:
        """Remember `value` instead of what was known."""
        self._values.pop(name, None)
        if len(self._values) >= MOST_REMEMBERED:
            # The default is for threads, which tests have and Lambda has not.
            self._values.pop(next(iter(self._values)), None)
        self._values[name] = value
