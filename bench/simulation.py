"""Past this machine, on paper: transaction conflicts and partition heat on one hot item.

    PYTHONPATH=lambda_src python -m bench.simulation

A seeded simulation of events, no more than its assumptions (`Assumptions`). A claim looks at a few shards, at all of
them where these are empty, takes a random one that had stock, and commits; a commit that meets another on its shard is
cancelled, and after three of these it backs off with full jitter and looks again. Group commit does the same with up to
99 claims at a time, and always looks at all shards.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from bench.measure import percentile
from firstwrite.claim.claiming import FEW_SHARDS, TRIES_PER_LOOK
from firstwrite.claim.rules import BACKOFF_BASE_MS, BACKOFF_CAP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

Process = Generator[float, None, None]

GROUP = 99
SHARDS = (1, 4, 16)
STOCKS = (100, 1_000)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the simulation takes for granted.

    Attributes:
        claimers: how many want one unit each.
        arrive_within_ms: they come evenly at random within this time.
        network_ms: one way between function and table.
        commit_ms: how long a transaction of two writes holds its shard.
        group_commit_ms: how long one of 100 writes does.
        partition_units_per_s: write units a partition takes; every shard has one of its own.
        shard_units: write units of a shard in a transaction, charged for cancelled ones too.
        batch_window_ms: how long the queue gathers before it hands over a batch.
        workers: batches decided at a time.
    """

    claimers: int = 1_000
    arrive_within_ms: float = 200
    network_ms: float = 3
    commit_ms: float = 10
    group_commit_ms: float = 25
    partition_units_per_s: float = 1_000
    shard_units: int = 2
    batch_window_ms: float = 1_000
    workers: int = 5


@dataclass(slots=True)
class Shard:
    """A part of the stock, in a partition of its own."""

    available: int
    held_until_ms: float = 0
    units_by_second: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class Run:
    """What came of a simulation.

    Attributes:
        granted: units sold.
        attempts: transactions sent.
        conflicts: cancelled because they met another.
        throttled: refused because the partition was too hot.
        done_ms: when each claim was decided, counted from its arrival.
        last_ms: when the last was.
        hottest_units_per_s: of any partition in any second.
    """

    granted: int = 0
    attempts: int = 0
    conflicts: int = 0
    throttled: int = 0
    done_ms: list[float] = field(default_factory=list)
    last_ms: float = 0
    hottest_units_per_s: int = 0


class Simulation:
    """One hot item.

    Args:
        shards: over how many parts the stock is spread.
        stock: units.
        assumptions: everything else.
        seed: same seed, same run.
    """

    def __init__(self, shards: int, stock: int, assumptions: Assumptions, seed: int = 1) -> None:
        self._shards = [Shard(len(range(number, stock, shards))) for number in range(shards)]
        self._given = assumptions
        self._random = random.Random(seed)
        self._now_ms = 0.0
        self._events: list[tuple[float, int, Process]] = []
        self._order = count()
        self.run = Run()

    def one_by_one(self) -> Run:
        """Let each claim commit by itself."""
        for _ in range(self._given.claimers):
            self._start(self._random.uniform(0, self._given.arrive_within_ms), self._claim(None, self._given.commit_ms))
        return self._play()

    def in_groups(self) -> Run:
        """Let the queue gather claims and workers commit them in groups."""
        arrivals = sorted(self._random.uniform(0, self._given.arrive_within_ms) for _ in range(self._given.claimers))
        batches = [arrivals[start : start + GROUP] for start in range(0, len(arrivals), GROUP)]
        for number in range(self._given.workers):
            self._start(0, self._work(batches[number :: self._given.workers]))
        return self._play()

    def _work(self, batches: list[list[float]]) -> Process:
        for batch in batches:
            # A full batch goes at once; one that is not full waits for the window.
            ready_ms = batch[-1] if len(batch) == GROUP else batch[0] + self._given.batch_window_ms
            yield max(0.0, ready_ms - self._now_ms)
            yield from self._claim(batch, self._given.group_commit_ms)

    def _claim(self, arrived_ms: list[float] | None, commit_ms: float) -> Process:
        """Decide claims together; None is one that arrives as its process begins."""
        came_ms = [self._now_ms] if arrived_ms is None else arrived_ms
        wanted, waits = len(came_ms), 0
        few = arrived_ms is None and len(self._shards) > FEW_SHARDS
        while wanted:
            yield 2 * self._given.network_ms
            looked_at = self._random.sample(self._shards, FEW_SHARDS) if few else self._shards
            seen = [shard for shard in looked_at if shard.available > 0]
            if not seen:
                if few:
                    few = False
                    continue
                break
            taken, busy = yield from self._try(seen, wanted, commit_ms)
            wanted -= taken
            few = few and (busy or taken > 0)
            if busy and not taken:
                yield self._random.uniform(0, min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2**waits))
                waits += 1
        self.run.done_ms += [self._now_ms - came for came in came_ms]
        self.run.last_ms = max(self.run.last_ms, self._now_ms)

    def _try(self, seen: list[Shard], wanted: int, commit_ms: float) -> Generator[float, None, tuple[int, bool]]:
        """Try a few shards that had stock; return the units taken, and whether a shard was busy."""
        busy = False
        for shard in self._random.sample(seen, min(TRIES_PER_LOOK, len(seen))):
            yield self._given.network_ms
            units = min(wanted, shard.available)
            outcome = self._commit(shard, units, commit_ms)
            yield self._given.network_ms + (commit_ms if outcome == "applied" else 0)
            if outcome == "applied":
                return units, busy
            busy = busy or outcome == "busy"
        return 0, busy

    def _commit(self, shard: Shard, units: int, commit_ms: float) -> str:
        self.run.attempts += 1
        second = int(self._now_ms // 1_000)
        if shard.units_by_second[second] + self._given.shard_units > self._given.partition_units_per_s:
            self.run.throttled += 1
            return "busy"
        shard.units_by_second[second] += self._given.shard_units
        self.run.hottest_units_per_s = max(self.run.hottest_units_per_s, shard.units_by_second[second])
        if shard.held_until_ms > self._now_ms:
            self.run.conflicts += 1
            return "busy"
        if not units:
            return "short"
        shard.held_until_ms = self._now_ms + commit_ms
        shard.available -= units
        self.run.granted += units
        return "applied"

    def _start(self, at_ms: float, process: Process) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), process))

    def _play(self) -> Run:
        while self._events:
            self._now_ms, _, process = heapq.heappop(self._events)
            pause_ms = next(process, None)
            if pause_ms is not None:
                self._start(self._now_ms + pause_ms, process)
        return self.run


def table(assumptions: Assumptions | None = None, seed: int = 1) -> Iterator[str]:
    """Yield the lines of a Markdown table over stocks and shards, one by one and in groups."""
    given = assumptions or Assumptions()
    yield (
        "| stock | way | shards | attempts | conflicts | throttled | median ms | p99 ms | all decided, s "
        "| hottest partition, units/s |"
    )
    yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for stock in STOCKS:
        for way in ("one by one", "group commit"):
            for shards in SHARDS:
                simulation = Simulation(shards, stock, given, seed)
                run = simulation.one_by_one() if way == "one by one" else simulation.in_groups()
                yield (
                    f"| {stock:,} | {way} | {shards} | {run.attempts:,} | {run.conflicts:,} | {run.throttled:,} "
                    f"| {percentile(run.done_ms, 0.5):,.0f} | {percentile(run.done_ms, 0.99):,.0f} "
                    f"| {run.last_ms / 1_000:.2f} | {run.hottest_units_per_s:,} |"
                )


COLD = Assumptions(partition_units_per_s=math.inf)
"""As long as what a partition saved up in idle minutes lasts: only conflicts cost time."""


if __name__ == "__main__":
    print("\n".join(table(COLD)), end="\n\n")
    print("\n".join(table()))
