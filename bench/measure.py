"""Times contenders in turn, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Contender = Callable[[int], Callable[[], object]]
"""Given a number of its own, prepares one call, which is then timed."""

WARM_UP = 10


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the middle half around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise `values`."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), percentile(ordered, 0.25), percentile(ordered, 0.75))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def interleaved(contenders: Mapping[str, Contender], rounds: int, seed: int = 1) -> dict[str, list[float]]:
    """Time each contender once a round, in an order drawn anew each round; return milliseconds by contender."""
    rng = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-WARM_UP, rounds):
        for name in rng.sample(list(contenders), len(contenders)):
            call = contenders[name](number)
            began = time.perf_counter()
            call()
            took_ms = (time.perf_counter() - began) * 1000
            if number >= 0:
                times[name].append(took_ms)
    return times


def ratio(times: Sequence[float], base: Sequence[float]) -> Spread:
    """Return how many times `base` it took, pair by pair."""
    return Spread.of(mine / theirs for mine, theirs in zip(times, base, strict=True))


@contextmanager
def quiet() -> Iterator[None]:
    """Send what functions log and count nowhere, at the price that writing it has."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
