"""Cost and speed beside what a user would pick instead: one engine, one run, contenders in turn.

    make bench                      under 10 minutes on 2 cores; writes bench/RESULTS.md and its pictures
    python -m bench --quick         about a minute, small counts, for a look; writes only where --output says

The last line printed is the count of aims met.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import boto3

from bench import costs, footprint, growth, latency, plots, profiling
from bench.aims import Measured, aims
from bench.cache_contenders import BUCKET, CONTENDERS, Place
from bench.claim_contenders import shops
from bench.experiments import Finding, cache_death, cache_race, cache_repeat, claim_death, claim_race, claim_repeat
from bench.experiments import claim_twins as claim_repeat_at_once
from bench.measure import quiet
from bench.paid import Paid
from bench.report import Rightness, Run, document, last_line
from bench.waiters import waiters
from tests.support.engine import create_cache_table, make_test_client, running_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.costs import Row
    from bench.experiments import RaceResult
    from bench.latency import Timing

T = TypeVar("T")
HERE = Path(__file__).parent
ENVIRON = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "POWERTOOLS_SERVICE_NAME": "bench",
    "POWERTOOLS_METRICS_NAMESPACE": "Firstwrite",
}
PICTURED = (
    "Powertools replay",
    "Firstwrite hit, protocol",
    "Firstwrite hit, handler",
    "Firstwrite hit, memory, handler",
    "Powertools around plain, claimed",
    "Firstwrite claimed, protocol",
    "Firstwrite claimed, handler",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    racers: tuple[int, ...]
    rounds: int
    races: int
    starts: int
    stored: tuple[int, int]
    growth_rounds: int
    hot_rounds: int
    hot_claims: int


FULL = Size((20, 200, 1_000), 400, 40, 10, (100, 100_000), 200, 5, 800)
QUICK = Size((20,), 40, 4, 2, (100, 1_000), 20, 2, 160)


def main(arguments: list[str] | None = None) -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small counts, about a minute")
    parser.add_argument("--output", type=Path, help="folder for RESULTS.md; a quick run writes nothing without it")
    options = parser.parse_args(arguments)
    output: Path | None = options.output or (None if options.quick else HERE)
    os.environ.update(ENVIRON)
    os.environ.pop("AWS_PROFILE", None)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with running_engine() as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        run = measure(endpoint, QUICK if options.quick else FULL, quick=options.quick)
    page = document(run)
    if output:
        write(output, page, run)
    print(page if not output else last_line(aims(run.measured)))


def measure(endpoint: str, size: Size, *, quick: bool) -> Run:
    """Measure everything."""
    began = time.monotonic()

    def step(name: str, action: Callable[[], T]) -> T:
        with quiet():
            result = action()
        print(f"{time.monotonic() - began:4.0f} s  {name}", file=sys.stderr)
        return result

    # What is timed comes first, before the engine holds a hundred thousand records.
    timings: list[Timing] = step("latency", lambda: timed(endpoint, size))
    found: list[Row] = step("costs", lambda: costs.cache_costs(endpoint) + costs.claim_costs(endpoint))
    waited = step("waiters", lambda: waiters(endpoint, size.races))
    cold = step("cold starts", lambda: footprint.cold_starts(size.starts))
    bundle = step("bundle", lambda: footprint.bundle_size("local"))
    right = step("experiments", lambda: rightness(endpoint, size))
    hot = step("hot item", lambda: growth.hot_item(endpoint, size.hot_rounds, size.hot_claims))
    grown = step("growth", lambda: growth.growths(endpoint, *size.stored, size.growth_rounds))
    profiles = step("profiles", lambda: profiling.profiles(endpoint))
    imports = step("imports", lambda: footprint.slowest_imports("firstwrite.claim.handler", 12))
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    measured = Measured(timings, found, waited, cold, bundle, hot, grown)
    return Run(machine, time.monotonic() - began, quick, right, measured, profiles, imports, size.stored)


def timed(endpoint: str, size: Size) -> list[Timing]:
    """Time hits and claims."""
    return latency.hits(endpoint, size.rounds) + latency.claims(endpoint, size.rounds)


def rightness(endpoint: str, size: Size) -> Rightness:
    """Run the experiments and the races, contenders in turn."""
    client = make_test_client(endpoint)
    place = Place(client, create_cache_table(client), Paid().call)
    sellers = shops(client)
    races: dict[str, dict[int, RaceResult]] = {name: {} for name in CONTENDERS}
    sold: dict[str, dict[int, int]] = {name: {} for name in sellers}
    claim_races: dict[str, list[Finding]] = {name: [] for name in sellers}
    for racers in size.racers:
        for name, make in CONTENDERS.items():
            races[name][racers] = cache_race(make, endpoint, racers)
        for name, shop in sellers.items():
            finding, sold[name][racers] = claim_race(shop, endpoint, racers)
            claim_races[name].append(finding)
    first = size.racers[0]
    cache = {
        name: (race_finding(races[name][first]), cache_repeat(make, place), cache_death(make, endpoint))
        for name, make in CONTENDERS.items()
    }
    claim = {
        name: (
            worst(claim_races[name]),
            claim_repeat(shop, endpoint),
            claim_repeat_at_once(shop, endpoint),
            claim_death(shop, endpoint),
        )
        for name, shop in sellers.items()
    }
    return Rightness(cache, claim, races, sold)


def worst(findings: list[Finding]) -> Finding:
    """Return the first that is wrong, else the first with a note, else any."""
    return min(findings, key=lambda finding: (finding.right, not finding.note))


def race_finding(result: RaceResult) -> Finding:
    """Return whether one call served all with the same."""
    everybody = result.answered + result.errors.total()
    right = result.calls == 1 and result.answered == everybody and result.distinct == 1
    return Finding(right, f"{result.calls} calls, {result.answered} of {everybody} served")


def write(folder: Path, page: str, run: Run) -> None:
    """Write the page and its pictures."""
    ratios = {timing.outcome: timing.ratio.median for timing in run.measured.timings}
    rows = [("bare call", 1.0, "1 x"), *((name, ratios[name], f"{ratios[name]:.2f} x") for name in PICTURED)]
    dear = [
        (row.contender, row.cost.dollars_per_million, f"$ {row.cost.dollars_per_million:.2f}")
        for row in run.measured.costs
        if row.outcome == "hit, 64 KB"
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "RESULTS.md").write_text(page, encoding="utf-8")
    (folder / "latency.svg").write_text(plots.bars("Median time beside the bare calls", rows), encoding="utf-8")
    picture = plots.bars("Dollars per million hits of 64 KB (logarithmic)", dear, logarithmic=True)
    (folder / "cost.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
