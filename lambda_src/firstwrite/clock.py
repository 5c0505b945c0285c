"""Time as a collaborator, so that leases, waits and holds can be tested without waiting for them.

Wall time is used for what is stored and compared between machines (leases, freshness, holds); elapsed time is used
for how long this process has waited. Neither is ever used to decide who wins: only a conditional write does that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """What the protocols ask of time. All values are milliseconds."""

    def now_ms(self) -> int:
        """Return the wall clock as epoch milliseconds."""
        ...

    def elapsed_ms(self) -> float:
        """Return a reading that only ever grows, for measuring how long something took."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Block this caller for `duration_ms`."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock as epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> float:
        """Return the monotonic clock in milliseconds."""
        return time.monotonic() * 1000

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep for `duration_ms`; zero and less return at once."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on a clock's elapsed time after which the caller must have its answer."""

    clock: Clock
    at_ms: float

    @classmethod
    def after(cls, clock: Clock, duration_ms: float) -> Deadline:
        """Return the deadline `duration_ms` from now."""
        return cls(clock, clock.elapsed_ms() + duration_ms)

    def left_ms(self) -> float:
        """Return the milliseconds left, never below zero."""
        return max(0.0, self.at_ms - self.clock.elapsed_ms())

    def within(self, duration_ms: float) -> Deadline:
        """Return this deadline, or the one `duration_ms` from now if that comes first."""
        return Deadline(self.clock, min(self.at_ms, self.clock.elapsed_ms() + duration_ms))
