"""The proof as a program: explores every scenario, lets the twins race, and says what came of it."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tests.interleave import cache_scenarios, claim_scenarios, twins
from tests.interleave.explorer import Explorer, Failure, Found, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from tests.interleave.twins import Twin


def scenarios() -> dict[str, Scenario]:
    """Return all races by name."""
    return {made.name: made for made in (*cache_scenarios.all_scenarios(), *claim_scenarios.all_scenarios())}


def caught(twin: Twin, races: dict[str, Scenario]) -> Failure | None:
    """Return the schedule that shows a twin's fault, None where it survives. Few faults are tried first."""
    for budget in range(twin.budget + 1):
        for name in twin.scenarios:
            explorer = Explorer(races[name], budget=budget)  # what stands at the start was made by sound code
            with twin.broken():
                found = explorer.explore(stop_at_first=True)
            if found.first:
                return found.first
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.interleave", description=__doc__)
    parser.add_argument("--only", default="", help="scenarios and twins whose name contains this")
    parser.add_argument(
        "--faults", type=int, help="faults in a schedule, at most; each scenario's own number unless given"
    )
    parser.add_argument("--show", action="store_true", help="print the schedule that catches each twin")
    parser.add_argument("--replay", metavar="SCENARIO:SCHEDULE", help="run one schedule again and draw it")
    parser.add_argument("--twin", help="replay with this fault in the code")
    options = parser.parse_args(arguments)
    races = scenarios()
    if options.replay:
        return _replay(races, options.replay, options.twin)
    chosen = [race for name, race in races.items() if options.only in name]
    found = [_explored(race, options.faults) for race in chosen]
    faulty = [twin for twin in (*twins.CACHE, *twins.CLAIMS) if options.only in twin.name or not options.only]
    survivors = [twin.name for twin in faulty if not _shown(twin, races, show=options.show)]
    for name in survivors:
        _say(f"survived: {name}")
    seconds = sum(one.seconds for one in found)
    _say(
        f"every schedule is a way through {sum(one.states for one in found):,} states and "
        f"{sum(one.moves for one in found):,} moves, each made by the real code and checked, in {seconds:.0f} s"
    )
    violations = sum(one.violations for one in found)
    schedules = sum(one.schedules for one in found)
    _say(
        f"{schedules} schedules, {violations} violations; {len(faulty) - len(survivors)} of {len(faulty)} twins caught"
    )
    return 1 if violations or survivors else 0


def _say(text: str, to: TextIO | None = None) -> None:
    (to or sys.stdout).write(f"{text}\n")
    sys.stdout.flush()


def _explored(race: Scenario, faults: int | None) -> Found:
    budget = race.budget if faults is None else min(faults, race.budget)
    found = Explorer(race, budget=budget).explore()
    _say(
        f"{race.name:<24} {race.about}\n{'':<24} {found.schedules:,} schedules with up to {budget} faults, "
        f"{found.states:,} states, {found.violations} violations, {found.seconds:.1f} s"
    )
    if found.first:
        _say(_report(found.first))
    return found


def _shown(twin: Twin, races: dict[str, Scenario], *, show: bool) -> bool:
    failure = caught(twin, races)
    if failure:
        _say(f"caught: {twin.name}\n        {failure.message}\n        {failure.scenario}:{failure.schedule}")
        if show:
            _say(failure.timeline)
    return failure is not None


def _report(failure: Failure) -> str:
    return f"{failure.timeline}\nagain: python -m tests.interleave --replay '{failure.scenario}:{failure.schedule}'"


def _replay(races: dict[str, Scenario], which: str, twin: str | None) -> int:
    name, _, schedule = which.partition(":")
    faulty = {made.name: made for made in (*twins.CACHE, *twins.CLAIMS)}
    if name not in races or (twin and twin not in faulty):
        _say(f"choose a scenario of {', '.join(races)}", sys.stderr)
        return 2
    explorer = Explorer(races[name])
    with faulty[twin].broken() if twin else nullcontext():
        failure = explorer.replay(schedule)
    _say(failure.timeline)
    return 1 if failure.message else 0
