"""The aims, each with what was measured and the distance left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.costs import Row
    from bench.footprint import BundleSize, Cold
    from bench.growth import Growth, Hot
    from bench.latency import Timing
    from bench.waiters import Waiters

OWN = "Firstwrite"
POWERTOOLS_REPLAY = "Powertools around the call"


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim.

    Attributes:
        what: in words.
        bound: what it must not pass.
        found: what was measured.
        at_least: the bound is from below.
        unit: of both.
    """

    what: str
    bound: float
    found: float
    at_least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        """Does what was measured keep to the bound?"""
        return self.found >= self.bound if self.at_least else self.found <= self.bound

    @property
    def distance(self) -> str:
        """What is left to do, empty where it is met."""
        return "" if self.met else f"{abs(self.found - self.bound):.3g}{self.unit} left"


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that a run measured and aims are about."""

    timings: list[Timing]
    costs: list[Row]
    waiters: Waiters
    cold: list[Cold]
    bundle: BundleSize
    hot: Hot
    growth: list[Growth]


def aims(measured: Measured) -> list[Aim]:
    """Return all aims."""
    time = {timing.outcome: timing.ratio.median for timing in measured.timings}
    cost = {(row.outcome, row.contender): row.cost for row in measured.costs}
    hits = [row.cost for row in measured.costs if row.contender == OWN and row.outcome.startswith("hit")]
    turned_away = {name: cost[name, OWN] for name in ("sold out", "replayed")}
    waited = measured.waiters
    own_cold = [cold.ratio.median for cold in measured.cold if cold.program.startswith(OWN)]
    cheap, dear = (cost["hit, 64 KB", name].dollars_per_million for name in (OWN, POWERTOOLS_REPLAY))
    return [
        Aim("hit: requests to DynamoDB", 1, max(hit.round_trips for hit in hits)),
        Aim("hit: consistent reads and writes", 0, max(hit.consistent_reads + hit.writes for hit in hits)),
        Aim("hit in the protocol, beside a bare GetItem", 1.15, time["Firstwrite hit, protocol"], unit=" x"),
        Aim("hit through the handler", 1.5, time["Firstwrite hit, handler"], unit=" x"),
        Aim("hit from memory in the protocol", 0.1, time["Firstwrite hit, memory, protocol"], unit=" x"),
        Aim("hit from memory through the handler", 0.4, time["Firstwrite hit, memory, handler"], unit=" x"),
        Aim("granted claim: round trips", 2, cost["claimed", OWN].round_trips),
        Aim(
            "granted claim in the protocol, beside its bare calls", 1.2, time["Firstwrite claimed, protocol"], unit=" x"
        ),
        *(
            aim
            for name, each in turned_away.items()
            for aim in (Aim(f"{name}: round trips", 1, each.round_trips), Aim(f"{name}: writes", 0, each.writes))
        ),
        Aim("waiters: median after completion", 30, waited.after_ms.median, unit=" ms"),
        Aim("waiters: p99 after completion", 150, waited.p99_ms, unit=" ms"),
        Aim("waiters: most reads of any, 300 ms upstream", 3, waited.most_reads),
        Aim("cold import, the slower function, beside boto3 and its client", 1.5, max(own_cold), unit=" x"),
        Aim("bundle, unpacked", 8, measured.bundle.unpacked_mb, unit=" MB"),
        Aim("hot item through the queue, beside one by one", 3, measured.hot.gain.median, at_least=True, unit=" x"),
        Aim("hot item through the queue: stock writes a claim", 0.05, measured.hot.queued.stock_writes),
        Aim("outcomes whose round trips or units grow with what is stored", 0, sum(g.grows for g in measured.growth)),
        Aim("64 KB hit, request cost beside a Powertools replay", 1 / 20, cheap / dear),
    ]


WHY_MISSED = {
    "hit in the protocol": "What is left is botocore itself and turning one item into values; see the profile.",
    "hit through the handler": "The rest is Powertools' resolver and the metrics line; see the profile.",
    "granted claim in the protocol": "Turning five records into values and back costs the difference; see the profile.",
    "waiters: median": "All racers, the paid API and the engine share this machine's cores here; whoever looks first "
    "waits for a core more than for the table.",
    "waiters: p99": "The slowest are those of the first race, in which nothing is known of how long the source takes, "
    "and those whose look came just before the winner was done: the next look is a backoff later. Declaring "
    "`expected_ms` removes the first kind.",
    "waiters: most reads": "An environment that has never called a source does not know how long it takes: it "
    "looks first after 180 ms, then after about as long again each time. Once it has seen one call, or where the "
    "source declares `expected_ms`, the first look comes when the call should be over; what is then left above three "
    "are callers whose winner was held up, for 20 callers, the paid API and the engine share these cores. No profile "
    "shows it, for waiters sleep.",
    "cold import": "Powertools' event handler imports its resolvers for AppSync, Bedrock and the rest, and all data "
    "classes; see the list of imports. A resolver of our own would save it and lose what the framework checks.",
}


def why_missed(aim: Aim) -> str:
    """Return what stands in the way of an aim that is missed."""
    return next((text for start, text in WHY_MISSED.items() if aim.what.startswith(start)), "See the tables above.")
