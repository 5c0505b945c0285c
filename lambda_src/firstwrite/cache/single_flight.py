"""Single flight over many machines: of all who ask for a key at once, one fetches and the others get its result.

Guarantees: at most one fetch of a key is in flight within its lease; a result is never replaced by an older one; a
failure is shared by those who waited for it; whoever fetched gets an answer even if it could not be stored; nobody
waits past its deadline. It does not guarantee that a fetch whose owner died was not paid for: a lease that ran out is
taken over, with a higher fence, unless the policy says that an unknown outcome is for an operator to settle.

The winner is decided by the acquiring write alone. Reading first only spares losers the price of a failed write.
Leases and fences follow Gray and Cheriton, "Leases" (1989), and Kleppmann, "How to do distributed locking" (2016);
serving stale follows RFC 5861.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from firstwrite.cache.record import Flight, State, Stored
from firstwrite.cache.store import FOREVER_MS
from firstwrite.clock import Deadline
from firstwrite.conditional import Busy, new_write_id
from firstwrite.observability import logger

if TYPE_CHECKING:
    from firstwrite.cache.memory import Memory
    from firstwrite.cache.record import Answer, Policy, Record
    from firstwrite.cache.store import CacheStore
    from firstwrite.clock import Clock
    from firstwrite.observability import Count

COOLDOWN_CAP_MS = 60_000
FIRST_LOOK_MS = 180
"""When a waiter first looks where nothing says how long a fetch takes."""
STORING_MS = 10
"""What storing the result adds to the fetch, about."""
LOOK_SPREAD_MS = 20
LATE_SHARE = 0.25
"""A fetch that should be over is looked for again after this share of the time that was waited for it."""
POLL_LEAST_MS = 20
"""Looking again sooner than this mostly finds what the last look found."""
POLL_CAP_MS = 500
CONTENDED_MS = 60
"""Longest pause where nobody fetches and yet the key could not be had: the table is under load."""
STORE_DEADLINE_MS = 3_000
"""How long a transition is retried. The winner's result matters more than the waiter's patience."""
HEADROOM_MS = 500
"""What a winner needs beside the fetch itself, to store the result and answer."""

_SERVED_METRICS = {"hit": "CacheHits", "stale": "CacheStale", "collapsed": "CacheCollapsed"}

Forward = Literal["miss", "stale", "request"]
FailureKind = Literal["failed", "timeout", "spend-limit", "unknown"]


class FetchError(Exception):
    """A fetch that did not produce an answer.

    Attributes:
        kind: what became of it; `spend-limit` where the call was not made.
        retry_after_ms: how long to leave the upstream alone, zero where nothing says so.
        refused: the call was not made, so it is no failure of the upstream.
        ambiguous: the upstream may have done and charged its work.
    """

    def __init__(
        self, kind: FailureKind, *, retry_after_ms: int = 0, refused: bool = False, ambiguous: bool = False
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.retry_after_ms = retry_after_ms
        self.refused = refused
        self.ambiguous = ambiguous


@dataclass(frozen=True, slots=True)
class Served:
    """An answer for this caller.

    Attributes:
        stored: the answer and its times.
        how: `hit`: it stood in the cache; `memory`: in this process; `stale`: in the cache, past its freshness;
            `stored`: this caller fetched it; `collapsed`: another caller fetched it meanwhile;
            `unstored`: this caller fetched it and could not keep it.
        forward: why the cache's own answer would not do, for what was fetched: there was none (`miss`), it was
            `stale`, or the `request` asked for a new one.
    """

    stored: Stored
    how: Literal["hit", "memory", "stale", "stored", "collapsed", "unstored"]
    forward: Forward = "miss"


@dataclass(frozen=True, slots=True)
class InProgress:
    """Somebody is still fetching, or there is too little time left to begin."""

    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The fetch failed, for its own caller or for one that shares the failure.

    Attributes:
        kind: what became of it.
        retry_after_ms: when trying again makes sense, None where only an operator can help.
    """

    kind: str
    retry_after_ms: int | None


Outcome = Served | InProgress | Failed
Fetch = Callable[[Flight], "Answer"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One caller's question.

    Attributes:
        key: the record's key.
        policy: times of its source.
        fetch: makes the paid call; raises `FetchError`, or anything else, which reaches this caller.
        deadline: when this caller must have its answer; no fetch starts that could not end before it.
        wait_ms: how long to wait for somebody else's fetch; the policy's wait where None.
        renew: a result that stands there already will not do; a fetch that is running will.
        renew_later: has a stale result renewed in the background; where None, whoever finds it stale fetches.
        in_background: this is that renewal: nobody is there to be served something stale.
    """

    key: str
    policy: Policy
    fetch: Fetch
    deadline: Deadline
    wait_ms: float | None = None
    renew: bool = False
    renew_later: Callable[[], None] | None = None
    in_background: bool = False


class SingleFlight:
    """The protocol, over a store of records.

    Args:
        store: reads and transitions.
        clock: time.
        count: told what happened: `CacheHits`, `CacheMisses`, `CacheCollapsed`, ….
        memory: results of hot keys, for sources that want it.
        uniform: source of jitter.
    """

    def __init__(
        self,
        store: CacheStore,
        clock: Clock,
        count: Count,
        memory: Memory,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._store = store
        self._clock = clock
        self._count = count
        self._memory = memory
        self._uniform = uniform
        self._typical_ms: dict[str, float] = {}

    def get(self, ask: Ask) -> Outcome:
        """Return the answer to `ask`, fetching it if nobody else does.

        Raises:
            StoreUnavailableError: the table did not answer within the deadline.
        """
        policy = ask.policy
        remembered = self._memory.get(ask.key) if policy.memory_ms and not ask.renew else None
        if remembered:
            self._count("CacheHits", source=policy.name)
            return Served(remembered, "memory")
        outcome = self._get(ask)
        if policy.memory_ms and isinstance(outcome, Served) and outcome.how in {"hit", "stored", "collapsed"}:
            self._memory.put(ask.key, outcome.stored, policy.memory_ms)
        return outcome

    def forget(self, key: str) -> None:
        """Drop `key` from this process's memory; other processes' memories end by themselves."""
        self._memory.forget(key)

    def _get(self, ask: Ask) -> Outcome:
        policy = ask.policy
        wait = ask.deadline.within(policy.wait_ms if ask.wait_ms is None else min(ask.wait_ms, policy.wait_ms))
        record = self._store.read(ask.key, ask.deadline, consistent=ask.renew)
        # A caller that wants a renewal is content with any result newer than the one it found.
        unwanted = record.fence if ask.renew and record and record.state is State.COMPLETED else None
        waited_for: int | None = None
        since_ms = 0.0
        while True:
            now = self._clock.now_ms()
            if record is not None:
                answer = self._answer(ask, record, now, waited_for, unwanted)
                if answer is not None:
                    return answer
            if record is None or not _is_running(record, policy, now):
                if ask.deadline.left_ms() < policy.timeout_ms + HEADROOM_MS:
                    return InProgress(retry_after_ms=1_000)
                won = self._acquire(ask, record)
                if isinstance(won, Flight):
                    return self._fetch(ask, won, record)
                if not isinstance(won, Busy):
                    record = won
                    continue
            if wait.left_ms() <= 0:
                return self._gave_up(record, policy, now)
            fence = record.fence if record else None
            elapsed_ms = self._clock.elapsed_ms()
            if fence != waited_for:
                waited_for, since_ms = fence, elapsed_ms
            waited_ms = elapsed_ms - since_ms
            self._clock.sleep_ms(min(self._pause_ms(record, policy, waited_ms, now), wait.left_ms()))
            record = self._store.read(ask.key, ask.deadline, consistent=True)

    def _answer(
        self, ask: Ask, record: Record, now: int, waited_for: int | None, unwanted: int | None
    ) -> Served | Failed | None:
        """Return what the record says to this caller, None where it says to fetch or to wait."""
        policy = ask.policy
        stored = record.stored
        # Whoever waited takes what the fetch it waited for brought, however briefly that is kept.
        shared = waited_for is not None and record.fence >= waited_for
        wanted = unwanted is None or record.fence > unwanted
        if stored and wanted and record.state is State.COMPLETED and (shared or stored.fresh_until > now):
            new = shared or unwanted is not None
            if new:
                self._learn(policy, record.took_ms)
            return self._serve(ask, stored, "collapsed" if new else "hit", "request" if ask.renew else "miss")
        usable = stored if stored and stored.stale_until > now and not ask.in_background else None
        if record.state is State.FAILED and (record.retry_at > now or shared):
            if usable:
                return self._serve(ask, usable, "stale")
            self._count("CacheFailuresShared", source=policy.name)
            left_ms = None if record.retry_at >= FOREVER_MS else max(0, record.retry_at - now)
            return Failed(record.failure or "failed", left_ms)
        running = _is_running(record, policy, now)
        if usable and not ask.renew and (running or ask.renew_later):
            served = self._serve(ask, usable, "stale")
            if served and not running and ask.renew_later:
                ask.renew_later()
            return served
        return None

    def _serve(
        self,
        ask: Ask,
        stored: Stored,
        how: Literal["hit", "stale", "collapsed"],
        forward: Forward = "miss",
    ) -> Served | None:
        """Return the stored answer with its body, None where the body has expired."""
        complete = self._store.with_body(stored)
        if complete is None:
            return None
        if not ask.in_background:
            self._count(_SERVED_METRICS[how], source=ask.policy.name)
        return Served(complete, how, forward)

    def _acquire(self, ask: Ask, record: Record | None) -> Flight | Record | Busy | None:
        """Try to win the key; on losing, return the record to go on with."""
        deadline = ask.deadline.within(STORE_DEADLINE_MS)
        if record and record.state is State.PROCESSING and ask.policy.on_unknown == "fail":
            self._store.declare_unknown(ask.key, record, ask.policy, deadline)
            return self._store.read(ask.key, deadline, consistent=True)
        # A result that is fresh and yet came here lacks its body, or is not wanted.
        replacing = record.fence if record and record.state is State.COMPLETED else None
        won = self._store.acquire(
            ask.key,
            new_write_id(),
            ask.policy,
            deadline,
            expected_ms=self._expected_ms(record, ask.policy),
            replacing=replacing,
        )
        if isinstance(won, Flight):
            # Calls above misses and refreshes are then those that took over: what was perhaps paid twice.
            taken_over = record is not None and record.state is State.PROCESSING
            refresh = ask.renew or ask.in_background
            name = "LeasesTakenOver" if taken_over else "CacheRefreshes" if refresh else "CacheMisses"
            self._count(name, source=ask.policy.name)
        return won

    def _gave_up(self, record: Record | None, policy: Policy, now: int) -> InProgress:
        self._count("CacheWaitsTimedOut", source=policy.name)
        left_ms = record.lease_until - now if record else 0
        return InProgress(retry_after_ms=max(1_000, min(left_ms, policy.timeout_ms)))

    def _pause_ms(self, record: Record | None, policy: Policy, waited_ms: float, now: int) -> float:
        """Return how long to wait before looking again.

        The first look comes when the fetch should be over, spread a little. A later one comes after a share of the time
        waited for it so far, for what is late is late in proportion; after all of that time where nothing says how long
        a fetch takes. A tenth of it is jitter. One comes when the lease ends. Another machine's clock only moves the
        first look, within its bounds.

        Args:
            record: what the last look found.
            policy: of the source.
            waited_ms: how long this fetch has been waited for, zero before the first look.
            now: wall time.
        """
        if record is None or not _is_running(record, policy, now):
            return self._uniform(0, CONTENDED_MS)
        lease_left_ms = record.lease_until + policy.clock_skew_ms - now
        # The owner may know the key, this process the source; where neither does, the first look is a guess.
        expected_ms = record.expected_ms or self._expected_ms(record, policy)
        if not waited_ms:
            likely_ms = expected_ms or FIRST_LOOK_MS
            left_ms = max(0, min(likely_ms, record.started_at + likely_ms - now))
            return min(left_ms + STORING_MS + self._uniform(0, LOOK_SPREAD_MS), lease_left_ms)
        longest_ms = min(POLL_CAP_MS, waited_ms * (LATE_SHARE if expected_ms else 1))
        return min(max(POLL_LEAST_MS, self._uniform(0.9, 1) * longest_ms), lease_left_ms)

    def _expected_ms(self, record: Record | None, policy: Policy) -> int:
        """Return how long a fetch should take, from the key's last, else the source's in this process; 0: unknown."""
        last_ms = record.took_ms if record else 0
        return last_ms or round(self._typical_ms.get(policy.name, 0)) or policy.expected_ms or 0

    def _learn(self, policy: Policy, took_ms: int) -> None:
        """Remember how long the source's fetches take, as a moving average."""
        self._typical_ms[policy.name] = 0.7 * self._typical_ms.get(policy.name, took_ms) + 0.3 * took_ms

    def _fetch(self, ask: Ask, flight: Flight, record: Record | None) -> Served | Failed:
        """Make the paid call and settle the record: completed, or failed for all who wait."""
        policy = ask.policy
        started_ms = self._clock.elapsed_ms()
        try:
            answer = ask.fetch(flight)
        except FetchError as error:
            failed = self._fail(flight, policy, error)
            stored = record.stored if record else None
            if stored and stored.stale_until > self._clock.now_ms() and not ask.in_background:
                return self._serve(ask, stored, "stale") or failed
            return failed
        except BaseException:
            # Whatever a fetcher raises is its caller's to see; the waiters must not be left to find a dead lease.
            self._fail(flight, policy, FetchError("failed", ambiguous=True))
            raise
        took_ms = round(self._clock.elapsed_ms() - started_ms)
        self._learn(policy, took_ms)
        forward: Forward = "request" if ask.renew else "stale" if record and record.stored else "miss"
        return replace(self._complete(ask, flight, answer, took_ms), forward=forward)

    def _complete(self, ask: Ask, flight: Flight, answer: Answer, took_ms: int) -> Served:
        """Store the answer; whatever comes of that, the caller who paid gets it, and the key is free again."""
        policy = ask.policy
        deadline = Deadline.after(self._clock, STORE_DEADLINE_MS)
        now = self._clock.now_ms()
        unstored = Served(Stored(answer, "", now, now, now), "unstored")
        try:
            outcome = self._store.complete(flight, answer, policy, took_ms, deadline)
        except Exception:  # noqa: BLE001 - whatever it is, the caller has paid for the answer
            logger.exception("a paid result could not be stored", extra={"source": policy.name})
            self._count("ResultsNotStored", source=policy.name)
            self._fail(flight, policy, FetchError("failed"))
            return unstored
        if isinstance(outcome, Stored):
            return Served(outcome, "stored")
        if isinstance(outcome, Busy):
            logger.warning("a paid result could not be stored", extra={"source": policy.name, "reason": outcome.reason})
            self._count("ResultsNotStored", source=policy.name)
            return unstored
        # The lease ran out and somebody else took over, or an operator invalidated the key.
        self._count("LateWinners", source=policy.name)
        if outcome and outcome.stored and outcome.state is State.COMPLETED:
            return self._serve(ask, outcome.stored, "collapsed") or unstored
        return unstored

    def _fail(self, flight: Flight, policy: Policy, error: FetchError) -> Failed:
        """Share a failure. A call that was not made lengthens no cooldown; one that may be paid may end all trying."""
        now = self._clock.now_ms()
        failure: str = error.kind
        cooldown_ms = error.retry_after_ms
        retry_at = now + cooldown_ms
        failures = flight.failures
        if not error.refused:
            failures += 1
            cooldown_ms = max(cooldown_ms, min(COOLDOWN_CAP_MS, policy.cooldown_ms * 2**flight.failures))
            retry_at = now + cooldown_ms
        unknown = error.ambiguous and policy.on_unknown == "fail"
        if unknown:
            failure, retry_at = "unknown", FOREVER_MS
        self._store.fail(flight, failure, failures, retry_at, Deadline.after(self._clock, STORE_DEADLINE_MS))
        return Failed(error.kind, None if unknown else cooldown_ms)


def _is_running(record: Record, policy: Policy, now: int) -> bool:
    """Is somebody fetching, with a lease that is not over?"""
    return record.state is State.PROCESSING and record.lease_until + policy.clock_skew_ms > now
