"""The part of the proof that runs with every test: all races with one fault at most, and every twin.

`make proof` runs all of it, with more faults in a schedule.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.interleave import twins
from tests.interleave.explorer import Explorer, Scenario, Violation
from tests.interleave.proof import caught, scenarios
from tests.interleave.racer import NotDeterministicError

if TYPE_CHECKING:
    from tests.interleave.explorer import Event, Scene
    from tests.interleave.racer import Seat
    from tests.interleave.twins import Twin

RACES = scenarios()
WITHOUT_FAULTS = {
    "cache-three",
    "cache-invalidate",
    "cache-invalidate-result",
    "cache-stale",
    "claim-three",
    "claim-sold-out-restock",
    "queue-duplicates",
}
"""Too many states for every test run; `make proof` explores them with faults."""
SMALL = [("cache-spend", 0), ("claim-last", 0), ("hold-settle", 0), ("hold-confirm-expire", 1)]


@pytest.mark.parametrize("name", RACES)
def test_no_schedule_breaks_an_invariant(name: str) -> None:
    """Whoever goes first, and whatever fails once on the way, every invariant holds after every step."""
    race = RACES[name]
    found = Explorer(race, budget=0 if name in WITHOUT_FAULTS else min(race.budget, 1)).explore()

    assert found.schedules > 0
    assert found.first is None, f"{found.first.schedule}\n{found.first.timeline}\n"


@pytest.mark.parametrize("twin", [*twins.CACHE, *twins.CLAIMS], ids=lambda twin: twin.name.replace(" ", "-"))
def test_a_fault_in_the_code_is_caught(twin: Twin) -> None:
    """Each seeded fault breaks an invariant in some schedule, and that schedule breaks nothing in sound code."""
    failure = caught(twin, RACES)

    assert failure is not None, "this fault survives: the scenarios or the invariants have a hole"
    with twin.broken():
        pass  # and the code is whole again afterwards
    assert failure.message
    assert failure.timeline


@pytest.mark.parametrize(("name", "budget"), SMALL)
def test_the_reduction_loses_no_schedule_and_no_outcome(name: str, budget: int) -> None:
    """Walking every schedule by itself finds the same number of them, and the same ends."""
    reduced = Explorer(RACES[name], budget=budget, keep_outcomes=True).explore()
    whole = Explorer(RACES[name], budget=budget, keep_outcomes=True, reduce=False).explore()

    assert reduced.schedules == whole.schedules
    assert reduced.outcomes == whole.outcomes
    assert reduced.states < whole.moves


def test_a_failing_schedule_can_be_run_again() -> None:
    """The schedule of a failure, given back, breaks the same invariant, and breaks none in sound code."""
    (twin,) = (twin for twin in twins.CLAIMS if twin.name == "a limit that is not in the write")
    failure = caught(twin, RACES)
    assert failure is not None

    explorer = Explorer(RACES[failure.scenario])
    with twin.broken():
        again = explorer.replay(failure.schedule)

    assert (again.message, again.timeline) == (failure.message, failure.timeline)
    assert "more than one may have" in again.timeline
    assert Explorer(RACES[failure.scenario]).replay(failure.schedule).message == ""


def test_a_schedule_that_cannot_be_says_what_can() -> None:
    """A move that is not possible is an error that lists those that are."""
    with pytest.raises(ValueError, match=r"'A:7' is no move here; choose from A B"):
        Explorer(RACES["claim-last"]).replay("A:7")


class _Anything:
    """Invariants that only count what they see."""

    def __init__(self, most: int) -> None:
        self._most = most

    def begin(self, scene: Scene) -> int:
        del scene
        return 0

    def see(self, memory: int, event: Event, scene: Scene) -> int:
        del event, scene
        if memory >= self._most:
            raise Violation("enough")
        return memory + 1

    def end(self, memory: int, scene: Scene) -> None:
        del memory, scene


def _scenario(script: Any, most: int = 100, racers: str = "AB") -> Scenario:
    race = RACES["claim-last"]
    return Scenario("own", "", dict.fromkeys(racers, script), race.setup, _Anything(most))


def test_the_shortest_failing_schedule_is_shown() -> None:
    """Of all schedules that break an invariant, the one with the fewest moves is reported."""

    def script(seat: Seat) -> None:
        for number in range(3):
            seat.sleep_ms(10)
            seat.note("slept", number)

    found = Explorer(_scenario(script, most=2), budget=0).explore()

    assert found.first is not None
    assert sorted(found.first.schedule.split()) in (["A"] * 4, ["A"] * 3 + ["B"] * 2, ["A"] * 2 + ["B"] * 3, ["B"] * 4)


def test_code_that_is_not_deterministic_is_an_error_of_the_proof() -> None:
    """A racer that does something else under the same history is not explored as if nothing were."""
    numbers = count(1)

    def script(seat: Seat) -> None:
        seat.sleep_ms(next(numbers))
        seat.sleep_ms(1)

    with pytest.raises(NotDeterministicError):
        Explorer(_scenario(script)).explore()


def test_an_endless_loop_is_a_violation() -> None:
    """A racer that never gets its answer is found."""

    def script(seat: Seat) -> None:
        while True:
            seat.sleep_ms(1)

    found = Explorer(_scenario(script, most=1_000, racers="A"), budget=0).explore(stop_at_first=True)

    assert found.first is not None
    assert "has no answer" in found.first.message
