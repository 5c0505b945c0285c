"""When a caller that waits for somebody else's fetch looks again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.cache.record import Answer, Flight, Policy
from firstwrite.cache.single_flight import (
    CONTENDED_MS,
    FIRST_LOOK_MS,
    LOOK_SPREAD_MS,
    POLL_CAP_MS,
    POLL_LEAST_MS,
    STORING_MS,
    InProgress,
)
from firstwrite.clock import Deadline
from firstwrite.conditional import Busy
from tests.support.clocks import FakeClock
from tests.support.faults import throttle
from tests.support.flight import POLICY, Machine, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

PATIENT = Policy(name="slow", lease_ms=20_000, timeout_ms=19_000, wait_ms=25_000)


class Timetable(FakeClock):
    """A clock at which things happen while somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[tuple[float, Callable[[], object]]] = []

    def after(self, ms: float, action: Callable[[], object]) -> None:
        self._due = sorted([*self._due, (self._now_ms + ms, action)], key=lambda entry: entry[0])

    def advance(self, duration_ms: float) -> None:
        until = self._now_ms + duration_ms
        while self._due and self._due[0][0] <= until:
            at, action = self._due.pop(0)
            self._now_ms = at  # type: ignore[assignment]
            action()
        self._now_ms = until  # type: ignore[assignment]


@pytest.fixture
def clock() -> Timetable:
    return Timetable()


@pytest.fixture
def owner(engine: DynamoDBClient, table: str, clock: Timetable) -> Machine:
    return Machine(engine, table, clock)


def fetches(owner: Machine, clock: Timetable, key: str, takes_ms: int, **acquiring: Any) -> Flight:
    """Let another machine fetch, and store its result after so long."""
    policy = acquiring.pop("policy", PATIENT)
    flight = owner.store.acquire(key, "owner", policy, Deadline.after(clock, 1_000), **acquiring)
    assert isinstance(flight, Flight)
    answer = Answer(200, "text/plain", b"v1")
    clock.after(takes_ms, lambda: owner.store.complete(flight, answer, policy, takes_ms, Deadline.after(clock, 1_000)))
    return flight


def waits(machine: Machine, key: str, policy: Any = PATIENT) -> list[float]:
    """Let a machine ask for a key that is being fetched; return how long it paused before each look."""
    machine.clock.slept_ms.clear()
    machine.client.calls.clear()
    machine.tally.counts.clear()
    served = machine.get(key, lambda _: pytest.fail("two fetch"), policy)
    assert served.how == "collapsed"
    assert machine.tally.of("CacheMisses") == 0
    assert machine.tally.of("CacheCollapsed", source=policy.name) >= 1
    assert machine.client.calls == ["get_item"] * (1 + len(machine.clock.slept_ms))
    return list(machine.clock.slept_ms)


@pytest.mark.parametrize("takes_ms", [5, 300, 4_000])
def test_where_it_is_known_how_long_a_fetch_takes_one_look_is_enough(
    machine: Machine, owner: Machine, clock: Timetable, key: str, takes_ms: int
) -> None:
    """The owner says how long it should take; the waiter looks just after that."""
    fetches(owner, clock, key, takes_ms, expected_ms=takes_ms)

    (paused,) = waits(machine, key)

    assert takes_ms + STORING_MS <= paused <= takes_ms + STORING_MS + LOOK_SPREAD_MS


def test_whoever_comes_late_to_a_fetch_waits_for_what_is_left_of_it(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """A caller that comes 200 ms into a fetch of 300 looks after the remaining 100."""
    fetches(owner, clock, key, 300, expected_ms=300)
    clock.advance(200)

    (paused,) = waits(machine, key)

    assert 100 + STORING_MS <= paused <= 100 + STORING_MS + LOOK_SPREAD_MS


def test_where_nothing_is_known_a_fetch_of_300_ms_takes_three_reads(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """The first look is a guess, and the second comes after about as long again."""
    fetches(owner, clock, key, 300)

    first, second = waits(machine, key)

    assert FIRST_LOOK_MS + STORING_MS <= first <= FIRST_LOOK_MS + STORING_MS + LOOK_SPREAD_MS
    assert 0.9 * first <= second <= first


def test_a_process_that_waited_once_knows_how_long_the_source_takes(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """After one fetch of a source, another key of it needs one look."""
    fetches(owner, clock, key, 300)
    waits(machine, key)
    fetches(owner, clock, f"{key}-2", 300)

    assert len(waits(machine, f"{key}-2")) == 1


def test_a_process_that_fetched_once_knows_how_long_the_source_takes(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """Its own fetches tell it as well, as a moving average."""
    for takes_ms in (100, 300):
        machine.get(f"{key}-{takes_ms}", Upstream(machine.clock, b"v1", takes_ms=takes_ms), PATIENT)
    fetches(owner, clock, key, 100)

    (paused,) = waits(machine, key)

    learnt_ms = 0.7 * 100 + 0.3 * 300
    assert learnt_ms + STORING_MS <= paused <= learnt_ms + STORING_MS + LOOK_SPREAD_MS


def test_a_hit_says_nothing_of_how_long_the_source_takes_now(
    engine: DynamoDBClient, owner: Machine, clock: Timetable, table: str, key: str
) -> None:
    """What a stored result took may be long ago, and a hot key would drown out all others."""
    owner.get(f"{key}-hot", Upstream(clock, b"v1", takes_ms=4_000), PATIENT)
    newcomer = Machine(engine, table, clock)
    newcomer.get(f"{key}-hot", lambda _: pytest.fail("a hit fetches"), PATIENT)
    fetches(owner, clock, key, 1_000)

    first, *_ = waits(newcomer, key)

    assert FIRST_LOOK_MS + STORING_MS <= first <= FIRST_LOOK_MS + STORING_MS + LOOK_SPREAD_MS


def expectation(machine: Machine, key: str, policy: Policy) -> int:
    """Let a machine fetch; return how long it says that will take."""
    said: list[int] = []

    def look(_: Flight) -> Answer:
        record = machine.store.read(key, Deadline.after(machine.clock, 1_000))
        assert record is not None
        said.append(record.expected_ms)
        return Answer(200, "text/plain", b"v2")

    assert machine.get(key, look, policy).how == "stored"
    return said[0]


def test_an_owner_says_how_long_its_fetch_should_take(
    engine: DynamoDBClient, machine: Machine, clock: Timetable, table: str, key: str
) -> None:
    """As long as the key's last, else as the source's in this process, else as its policy guesses, else nothing."""
    guess = replace(PATIENT, expected_ms=250)
    machine.get(key, Upstream(machine.clock, b"v1", takes_ms=700), PATIENT)
    clock.advance(PATIENT.fresh_ms)

    assert expectation(machine, f"{key}-new", guess) == 700
    assert expectation(Machine(engine, table, clock), key, guess) == 700
    assert expectation(Machine(engine, table, clock), f"{key}-newer", guess) == 250
    assert expectation(Machine(engine, table, clock), f"{key}-newest", PATIENT) == 0


def test_where_the_owner_does_not_know_the_keys_last_fetch_counts(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """It stands in the record while the key is fetched again."""
    fetches(owner, clock, key, 700)
    clock.advance(700 + PATIENT.fresh_ms)
    fetches(owner, clock, key, 700, expected_ms=0)

    assert len(waits(machine, key)) == 1


def test_a_late_fetch_is_looked_for_in_proportion_to_the_wait(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """Each further pause is about a quarter of the time waited so far, and never above half a second."""
    fetches(owner, clock, key, 12_000, expected_ms=400)

    first, *later = waits(machine, key)

    waited = first
    for paused in later:
        longest = min(POLL_CAP_MS, waited / 4)
        assert 0.9 * longest - 0.01 <= paused <= longest + 0.01
        waited += paused
    assert max(later) > 0.9 * POLL_CAP_MS


def test_a_fetch_that_should_be_over_at_once_is_not_looked_for_all_the_time(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """However short a fetch should be, looks are 20 ms apart."""
    fetches(owner, clock, key, 100, expected_ms=1)

    assert min(waits(machine, key)[1:]) == POLL_LEAST_MS


def test_a_waiter_looks_when_the_lease_ends_and_expects_the_next_fetch_anew(
    machine: Machine, owner: Machine, clock: Timetable, key: str
) -> None:
    """A dead owner's lease is not slept past; whoever took over meanwhile is given the time it says it needs."""
    policy = Policy(name="slow", lease_ms=1_000, timeout_ms=900, wait_ms=25_000, clock_skew_ms=100)
    owner.store.acquire(key, "dead", policy, Deadline.after(clock, 1_000), expected_ms=5_000)
    clock.after(1_100, lambda: fetches(owner, clock, key, 700, policy=policy, expected_ms=700))

    until_the_lease_ended, next_look = waits(machine, key, policy)

    assert until_the_lease_ended == 1_100
    assert 700 + STORING_MS <= next_look <= 700 + STORING_MS + LOOK_SPREAD_MS


def meets_load_at_first(machine: Machine) -> None:
    """Let the machine's next try to acquire a key come to nothing."""
    acquire, busy = machine.store.acquire, [Busy("throttled")]
    machine.store.acquire = lambda *given, **named: busy.pop() if busy else acquire(*given, **named)  # type: ignore[method-assign]


def test_where_load_keeps_everybody_from_a_key_it_is_tried_again_soon(machine: Machine, key: str) -> None:
    """Nobody fetches, and acquiring met only load: another try comes within 60 ms."""
    meets_load_at_first(machine)

    assert machine.get(key, Upstream(machine.clock, b"v1"), PATIENT).how == "stored"

    (paused,) = machine.clock.slept_ms
    assert 0 <= paused <= CONTENDED_MS


def test_a_lease_that_is_over_and_cannot_be_taken_over_for_load_is_no_reason_to_hurry(
    machine: Machine, key: str
) -> None:
    """As where there is no record: the next try comes after a random pause."""
    machine.acquire(key, "dead")
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)
    machine.flights._uniform = lambda _, most: most
    meets_load_at_first(machine)

    assert machine.get(key, Upstream(machine.clock, b"v1")).how == "stored"

    assert machine.clock.slept_ms == [CONTENDED_MS]


@pytest.mark.parametrize("patience_ms", [250, 1])
def test_nobody_sleeps_past_its_own_wait(
    machine: Machine, owner: Machine, clock: Timetable, key: str, patience_ms: int
) -> None:
    """With 250 ms of patience and a fetch of a second, the caller is told after 250 ms."""
    fetches(owner, clock, key, 1_000, expected_ms=1_000)

    machine.get(key, lambda _: pytest.fail("two fetch"), PATIENT, wait_ms=patience_ms)

    assert machine.clock.slept_ms == [patience_ms]


def test_a_look_that_meets_load_is_made_again(machine: Machine, owner: Machine, clock: Timetable, key: str) -> None:
    """A waiter gets its answer though the table throttles it meanwhile."""
    fetches(owner, clock, key, 300, expected_ms=300)
    machine.client.meet({"get_item": [None, throttle]})

    assert machine.get(key, lambda _: pytest.fail("two fetch"), PATIENT).how == "collapsed"


@pytest.mark.parametrize(
    ("lease_left_ms", "told_ms"), [(500, 1_000), (1_500, 1_500), (30_000, PATIENT.timeout_ms)], ids=str
)
def test_who_gives_up_is_told_to_come_back_when_the_lease_ends(
    machine: Machine, owner: Machine, key: str, lease_left_ms: int, told_ms: int
) -> None:
    """Not within a second, and not later than a call may take."""
    owner.acquire(key, "owner", replace(PATIENT, lease_ms=lease_left_ms + 10))

    assert machine.get(key, lambda _: pytest.fail("two fetch"), PATIENT, wait_ms=10) == InProgress(told_ms)


def test_who_gives_up_on_a_key_that_nobody_has_is_told_to_come_back_in_a_second(machine: Machine, key: str) -> None:
    """Load kept the key from everybody: there is no lease to wait for."""
    machine.store.acquire = lambda *_, **__: Busy("throttled")  # type: ignore[method-assign]

    assert machine.get(key, lambda _: pytest.fail("nobody has the key"), wait_ms=200) == InProgress(1_000)


def test_a_lease_is_over_in_its_last_millisecond(machine: Machine, key: str) -> None:
    """Reader and write agree on when that is, so nobody waits for a lease that could be taken over."""
    machine.acquire(key, "dead")
    machine.clock.advance(POLICY.lease_ms + POLICY.clock_skew_ms)

    assert machine.get(key, Upstream(machine.clock, b"v1")).how == "stored"
    assert machine.clock.slept_ms == []


def test_who_loses_to_a_finished_fetch_is_answered_by_the_write_that_failed(
    engine: DynamoDBClient, machine: Machine, table: str, key: str
) -> None:
    """Another machine fetches and stores between a caller's read and its write: no pause, no second read."""
    rival = Machine(engine, table, machine.clock)

    def beaten(call: Callable[[], Any]) -> Any:
        assert rival.get(key, Upstream(machine.clock, b"v1")).how == "stored"
        return call()

    machine.client.meet({"update_item": [beaten]})

    assert machine.get(key, lambda _: pytest.fail("two fetch")).how == "hit"
    assert machine.client.calls == ["get_item", "update_item"]
    assert machine.clock.slept_ms == []


def test_only_the_first_look_may_be_out_of_date(machine: Machine, owner: Machine, clock: Timetable, key: str) -> None:
    """A hit is read at half the price; whoever waits, renews or has settled a key needs what stands there now."""
    read, asked = machine.store.read, []

    def recorded(key: str, deadline: Deadline, *, consistent: bool) -> Any:
        asked.append(consistent)
        return read(key, deadline, consistent=consistent)

    def reads(key: str, policy: Policy = PATIENT, **options: Any) -> list[bool]:
        asked.clear()
        machine.get(key, Upstream(clock, b"v1"), policy, **options)
        return list(asked)

    machine.store.read = recorded  # type: ignore[method-assign, assignment]
    fetches(owner, clock, key, 100, expected_ms=100)
    careful = replace(PATIENT, on_unknown="fail")
    owner.acquire(f"{key}-unknown", "dead", replace(careful, lease_ms=0, clock_skew_ms=0))

    assert reads(key) == [False, True]
    assert reads(key) == [False]
    assert reads(key, renew=True) == [True]
    clock.advance(PATIENT.clock_skew_ms)
    assert reads(f"{key}-unknown", careful) == [False, True]
