"""Clocks that tests move."""

from __future__ import annotations

import threading

from firstwrite.metrics import METRICS

MOST_SLEEPS = 10_000
"""A loop that only ends when time has passed it by would turn for ever on a clock that costs no time."""


class FakeClock:
    """Stands still until told; sleeping moves it at once."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def elapsed_ms(self) -> float:
        return float(self._now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        assert len(self.slept_ms) < MOST_SLEEPS, "somebody sleeps for ever"
        # Never quite nothing, or a loop that sleeps for zero would never end.
        self.advance(max(duration_ms, 0.01))

    def advance(self, duration_ms: float) -> None:
        self._now_ms += duration_ms  # type: ignore[assignment]


class SkewedClock:
    """Another machine's view of a clock: the same passing of time, another wall time."""

    def __init__(self, base: FakeClock, skew_ms: int) -> None:
        self._base = base
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._base.now_ms() + self._skew_ms

    def elapsed_ms(self) -> float:
        return self._base.elapsed_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._base.sleep_ms(duration_ms)


class Tally:
    """Counts what the protocols report, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}

    def __call__(self, name: str, value: int = 1, **dimensions: str) -> None:
        assert set(METRICS[name].by) <= set(dimensions), f"{name} is kept by {METRICS[name].by}"
        key = (name, tuple(sorted(dimensions.items())))
        with self._lock:
            self.counts[key] = self.counts.get(key, 0) + value

    def of(self, name: str, **dimensions: str) -> int:
        """Return the sum of `name` over all dimensions that include these."""
        wanted = set(dimensions.items())
        return sum(value for (counted, pairs), value in self.counts.items() if counted == name and wanted <= set(pairs))
