"""RESULTS.md: what a run measured, in tables, and the aims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.aims import Aim, Measured, aims, why_missed
from bench.units import PRICES_AS_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench.experiments import Finding, RaceResult
    from bench.measure import Spread
    from bench.profiling import Profile


@dataclass(frozen=True, slots=True)
class Rightness:
    """What the experiments found, by contender.

    Attributes:
        cache: race, repeat, death.
        claim: race, repeat, repeat at once, death.
        races: what came of cache races, by contender and number of racers.
        sold: units granted, by contender and number of claimers, who wanted ten times what there was.
    """

    cache: Mapping[str, Sequence[Finding]]
    claim: Mapping[str, Sequence[Finding]]
    races: Mapping[str, Mapping[int, RaceResult]]
    sold: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the bench."""

    machine: str
    took_s: float
    quick: bool
    right: Rightness
    measured: Measured
    profiles: Sequence[Profile]
    imports: Sequence[tuple[str, float]]
    stored: tuple[int, int]


def document(run: Run) -> str:
    """Return the whole page."""
    found = aims(run.measured)
    parts = [*_head(run), *_aims(found), *_rightness(run.right), *_costs(run), *_latency(run), *_footprint(run)]
    parts += [*_scale(run), *_profiles(run), last_line(found)]
    return "\n".join(parts) + "\n"


def last_line(found: Sequence[Aim]) -> str:
    """Return the count of aims met."""
    return f"aims met: {sum(aim.met for aim in found)} of {len(found)}"


def _head(run: Run) -> Iterator[str]:
    yield "# Cost and speed, beside what a user would pick instead\n"
    how = "`python -m bench --quick`, with small counts" if run.quick else "`make bench`"
    yield (
        f"Written by {how}: one run of {run.took_s:.0f} s, one engine (ministack, in a process of its own), contenders "
        f"in turn, {run.machine}. Compare ratios; absolute times are this machine's, where a read takes "
        "about a millisecond and the engine shares the cores with all racers. A spread in brackets is the middle half. "
        "Every figure is counted or timed here; nothing is carried over from elsewhere.\n"
    )


def _aims(found: Sequence[Aim]) -> Iterator[str]:
    yield "## Aims\n"
    rows = [
        (
            aim.what,
            f"{'at least' if aim.at_least else 'at most'} {aim.bound:.3g}{aim.unit}",
            f"{aim.found:.3g}{aim.unit}",
            "✓" if aim.met else aim.distance,
        )
        for aim in found
    ]
    yield from _table(("aim", "bound", "found", ""), rows)
    missed = [aim for aim in found if not aim.met]
    if missed:
        yield "### What is missed, and why\n"
        yield from (f"- **{aim.what}** ({aim.found:.3g}{aim.unit}): {why_missed(aim)}" for aim in missed)
        yield ""


def _rightness(right: Rightness) -> Iterator[str]:
    yield "## Right?\n"
    yield (
        "Each cell is an experiment: 20 at once; the same request again; a process that ends after each of its calls "
        "in turn, followed by the next caller once its lease is over; a winner slower than its lease, whose late "
        "result must not replace a newer one.\n"
    )
    yield "A paid call's result:\n"
    yield from _table(
        ("", "under a race", "under a repeat", "when the winner dies or is late"),
        ((name, *map(str, findings)) for name, findings in right.cache.items()),
    )
    yield (
        "Limited stock (claimers want ten times what there is; a repeat bears the same key; at once: while the first "
        "is between two of its calls):\n"
    )
    yield from _table(
        ("", "under a race", "under a repeat", "repeat at once", "when the winner dies"),
        ((name, *map(str, findings)) for name, findings in right.claim.items()),
    )
    counts = sorted({count for races in right.races.values() for count in races})
    yield "Paid calls, and how many of the racers got a result (of how many different ones):\n"
    yield from _table(
        ("", *(f"{count:,} racers" for count in counts)),
        (
            (name, *(f"{races[n].calls:,} calls, {races[n].answered:,} served ({races[n].distinct:,})" for n in counts))
            for name, races in right.races.items()
        ),
    )
    yield "Units granted where claimers want ten times what there is:\n"
    yield from _table(
        ("", *(f"{count:,} claimers, stock {count // 10}" for count in counts)),
        ((name, *(f"{sold[count]:,}" for count in counts)) for name, sold in right.sold.items()),
    )


def _costs(run: Run) -> Iterator[str]:
    costs = run.measured.costs
    checked = sum(row.cost.checked_write_units for row in costs)
    reported = sum(row.cost.reported_write_units for row in costs)
    yield "## What an outcome costs\n"
    yield (
        "Counted at the client by botocore's hooks, through the whole handler. Units by DynamoDB's published rules "
        "from the items that were there before and after; the engine's own write units, where it reports any, add up "
        f"to {reported:.4g} beside our {checked:.4g} for the same writes (its read units are flat and not used). "
        f"Prices: {PRICES_AS_OF}, requests alone. Bodies are noise of 64 letters, which deflates to three quarters; "
        "one row has JSON as APIs give it. Firstwrite also adds up its counts of the day, in one write every 10 s "
        "of each environment and, as shown, with each miss. Its 300 KB body is read from S3. Its claim on an "
        "item of 16 shards reads four of them and the claim; told sold out, it has read all.\n"
    )
    yield from _table(
        ("outcome", "", "round trips", "bytes out", "bytes in", "read units", "write units", "$ per million"),
        (
            (
                row.outcome,
                row.contender,
                f"{row.cost.round_trips:.3g}" + (" + S3" if row.cost.s3_gets else ""),
                f"{row.cost.request_bytes:,.0f}",
                f"{row.cost.reply_bytes:,.0f}",
                f"{row.cost.read_units:.3g}",
                f"{row.cost.write_units:.3g}",
                f"{row.cost.dollars_per_million:.2f}",
            )
            for row in costs
        ),
    )
    yield "![Dollars per million hits of 64 KB](cost.svg)\n"


def _latency(run: Run) -> Iterator[str]:
    yield "## How long it takes\n"
    yield "Each beside the bare client calls it is made of, timed in the same round; the median over all rounds.\n"
    yield from _table(
        ("", "median ms", "beside", "median ratio", "p99 ratio"),
        (
            (timing.outcome, _ms(timing.ms), timing.base, _times(timing.ratio), f"{timing.p99_ratio:.2f} x")
            for timing in run.measured.timings
        ),
    )
    yield "![Latency beside the bare call](latency.svg)\n"
    waited = run.measured.waiters
    yield (
        f"Waiters (20 callers, 300 ms upstream, all races): after the winner by {waited.after_ms.median:.0f} ms "
        f"[{waited.after_ms.low:.0f} to {waited.after_ms.high:.0f}], p99 {waited.p99_ms:.0f} ms; reads median "
        f"{waited.reads.median:.0f}, most {waited.most_reads}. Without the first race, in which nothing is known of "
        f"how long the source takes: p99 {waited.p99_ms_known:.0f} ms, reads most {waited.most_reads_known}.\n"
    )


def _footprint(run: Run) -> Iterator[str]:
    bundle = run.measured.bundle
    yield "## Cold start, memory, bundle\n"
    yield (
        "Fresh interpreters, until ready for a request, from the bundle that is deployed, in a folder that cannot be "
        "written. `compiled` is the bundle as it is shipped; `not compiled` is one made under another Python than the "
        "functions', whose modules each start compiles.\n"
    )
    yield from _table(
        ("", "ms", "compiled", "not compiled", "memory, MB"),
        (
            (cold.program, _ms(cold.ms), _times(cold.ratio), _times(cold.uncompiled_ratio), f"{cold.peak_mb:.0f}")
            for cold in run.measured.cold
        ),
    )
    yield f"Bundle, compiled: {bundle.unpacked_mb:.1f} MB, zipped {bundle.zipped_mb:.1f} MB.\n"


def _scale(run: Run) -> Iterator[str]:
    hot = run.measured.hot
    small, large = run.stored
    yield "## Does anything grow? How hot may one item be?\n"
    yield f"With {small:,} and with {large:,} claims (or keys) stored:\n"
    yield from _table(
        ("", "round trips", "read units", "write units", "time, large beside small"),
        (
            (
                growth.outcome,
                f"{growth.small.round_trips:.3g} / {growth.large.round_trips:.3g}",
                f"{growth.small.read_units:.3g} / {growth.large.read_units:.3g}",
                f"{growth.small.write_units:.3g} / {growth.large.write_units:.3g}",
                _times(growth.time),
            )
            for growth in run.measured.growth
        ),
    )
    yield (
        f"One hot item, in turn: one by one {_median(hot.alone_per_s):,.0f} claims a second, through the queue's "
        f"worker {_median(hot.queued_per_s):,.0f}, {_times(hot.gain)}; stock writes a claim "
        f"{hot.alone.stock_writes:.3g} and {hot.queued.stock_writes:.3g}; round trips a claim "
        f"{hot.alone.round_trips:.3g} and {hot.queued.round_trips:.3g}. Past this machine: docs/scaling.md.\n"
    )


def _profiles(run: Run) -> Iterator[str]:
    yield "## Where the time goes\n"
    for profile in run.profiles:
        shares = ", ".join(f"{package} {share:.0f} %" for package, share in profile.shares if share >= 1)
        yield f"{profile.name} (cProfile, own time): {shares}.\n"
        yield from _table(
            ("function", "own time"), ((f"`{name}`", f"{share:.1f} %") for name, share in profile.functions)
        )
    yield "Importing the claim function after boto3, own time by package (`-X importtime`):\n"
    yield from _table(("package", "ms"), ((f"`{name}`", f"{ms:.1f}") for name, ms in run.imports))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)
    yield ""


def _times(spread: Spread) -> str:
    return f"{spread.median:.2f} x [{spread.low:.2f} to {spread.high:.2f}]"


def _ms(spread: Spread) -> str:
    return f"{spread.median:.2f} [{spread.low:.2f} to {spread.high:.2f}]"


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
