"""Requests to the cache's HTTP face in any order, with a moving clock, beside a model of what must come.

Fetches are stopped between the paid call and the write of its result, so that others ask while one runs, its lease ends
or its owner dies. Only what a client and the paid API can see is judged: status, headers, body, and the calls paid.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.interleave.engine import Engine
from tests.support.cache import RATES, CacheFunction, with_policy
from tests.support.clocks import FakeClock
from tests.support.contract import check_described
from tests.support.engine import create_cache_table
from tests.support.http import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.http import Reply
    from tests.support.upstream import PaidApi

Sent = Mapping[str, str]
"""The headers of a request."""
QUERY = {"base": "EUR", "symbol": "USD"}
LEASE_MS, SKEW_MS, TIMEOUT_MS, WAIT_MS = 3_000, 100, 2_000, 3_000
FRESH_MS, STALE_MS, NEGATIVE_MS, MEMORY_MS = 10_000, 20_000, 4_000, 2_000
COOLDOWN_MS, LONGEST_MS = 2_000, 60_000
ASKED_FOR_MS = 5_000
"""What a failing upstream says in Retry-After."""
DAWDLE_MS = 2_500
MINUTE_MS = 60_000
ROUNDING_MS = 5
"""How near to the end of a lease the end of a wait must be, that either may come first."""
PATIENCE_S = 20
ENVIRONMENTS = st.integers(0, 1)
PROBLEMS = {
    "failed": (502, "upstream-failed"),
    "timeout": (504, "upstream-timeout"),
    "spend-limit": (503, "spend-limit-reached"),
    "unknown": (409, "outcome-unknown"),
}


class Killed(BaseException):
    """The end of an execution environment in the middle of a request."""


class MovingClock(FakeClock):
    """A clock whose next sleeper is woken by what happens meanwhile."""

    meanwhile: Callable[[], None] | None = None

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()


class Brake:
    """A client that stops before the write which settles a fetch, until told how to go on."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.stopped = threading.Event()
        self.go_on = threading.Event()
        self.killed = False

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)

        def call(**request: Any) -> Any:
            settles = operation == "put_item" or ":failure" in request.get("ExpressionAttributeValues", {})
            if settles and not self.go_on.is_set():
                self.stopped.set()
                assert self.go_on.wait(PATIENCE_S)
            if self.killed:
                raise Killed
            return method(**request)

        return call


@dataclass(frozen=True)
class Value:
    """What upstream answered, and until when it is good, in epoch milliseconds."""

    status: int
    body: bytes
    stored_at: int
    fresh_until: int
    stale_until: int


@dataclass(frozen=True)
class Failure:
    """What became of a call that brought no answer.

    Attributes:
        told: the kind of problem that its own caller is told.
        shared: the kind that others are told.
        cooldown_ms: how long nobody asks, None for ever.
        counted: it is a failure of the upstream's, and lengthens the next cooldown.
    """

    told: str
    shared: str
    cooldown_ms: int | None
    counted: bool = True


Result = tuple[int, bytes] | Failure
"""What a fetch comes to: status and body, or a failure."""


@dataclass
class Record:
    """A key, as the model has it."""

    state: Literal["pending", "processing", "completed", "failed"]
    owner: int = 0
    lease_until: int = 0
    value: Value | None = None
    failure: str = ""
    retry_at: float = 0
    failures: int = 0


@dataclass
class Fetch:
    """A fetch that has not settled yet: who does it, when it ended, what stood there before, what it brought."""

    owner: int
    ended_at: int
    renew: bool
    found: Value | None
    result: Result

    @property
    def forward(self) -> str:
        return "request" if self.renew else "stale" if self.found else "miss"


@dataclass
class Flight:
    """A request that is stopped before it settles its fetch."""

    fetch: Fetch
    brake: Brake
    thread: threading.Thread
    replies: list[Reply]


class CacheMachine(RuleBasedStateMachine):
    """One key of one source, two execution environments that live on, and others that make one request."""

    paid_api: PaidApi

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.clock = Engine(), MovingClock()
        self.table = create_cache_table(self.engine)  # type: ignore[arg-type]
        self.record: Record | None = None
        self.memories: list[tuple[Value, int] | None] = [None, None]
        self.tags: dict[bytes, str] = {}
        self.flights: list[Flight] = []
        self.calls, self.owners, self.fence, self.versions = 0, 0, 0, 0
        self.spent: Counter[int] = Counter()
        self.paid_api.paths.clear()

    @initialize(unknown_fails=st.booleans(), remembers=st.booleans(), budget=st.none() | st.integers(1, 3))
    def settle_source(self, budget: int | None, *, unknown_fails: bool, remembers: bool) -> None:
        self.unknown_fails, self.budget = unknown_fails, budget
        self.memory_ms = MEMORY_MS if remembers else 0
        source = with_policy(
            RATES,
            timeout_ms=TIMEOUT_MS,
            lease_ms=LEASE_MS,
            wait_ms=WAIT_MS,
            fresh_ms=FRESH_MS,
            stale_ms=STALE_MS,
            negative_ms=NEGATIVE_MS,
            cooldown_ms=COOLDOWN_MS,
            clock_skew_ms=SKEW_MS,
            memory_ms=self.memory_ms,
            on_unknown="fail" if unknown_fails else "retry",
        )
        self.source = replace(source, max_calls_per_minute=budget)
        self.functions = [self.new_function(self.engine) for _ in range(2)]
        self.upstream("answer")

    def new_function(self, client: Any) -> CacheFunction:
        return CacheFunction(client, self.table, self.clock, self.paid_api.url, self.source)

    @rule(does=st.sampled_from(["answer", "answer", "no", "fail", "ask for time", "dawdle"]))
    def upstream(self, does: str) -> None:
        """Decide what the paid API does from now on."""
        self.does = does
        self.versions += 1
        api = self.paid_api
        api.status = {"no": 404, "fail": 500, "ask for time": 429}.get(does, 200)
        api.body = b"" if does == "answer" and self.versions % 4 == 0 else f"version {self.versions}".encode()
        api.headers = {"Retry-After": str(ASKED_FOR_MS // 1000)} if does == "ask for time" else {}
        # On this clock the answer comes later than a call may take.
        api.meanwhile = (lambda: self.clock.advance(DAWDLE_MS)) if does == "dawdle" else None

    # The model

    def now(self) -> int:
        return self.clock.now_ms()

    def usable(self, value: Value | None) -> Value | None:
        return value if value and value.stale_until > self.now() else None

    def lease_left_ms(self) -> int:
        """Return how long nobody may take the key over, below zero where its lease is over or nobody fetches."""
        record = self.record
        return record.lease_until + SKEW_MS - self.now() if record and record.state == "processing" else -1

    def would_fetch(self, *, renew: bool) -> bool:
        """Return whether a request without a memory of its own makes the paid call at once."""
        record, now = self.record, self.now()
        if record is None:
            return True
        match record.state:
            case "processing":
                return self.lease_left_ms() <= 0 and not self.unknown_fails
            case "completed":
                return renew or record.value is None or record.value.fresh_until <= now
            case "failed":
                return record.retry_at <= now
        return True

    def fetch(self, *, renew: bool) -> Fetch:
        """Return the fetch that a request has just made, with the one call that it paid, if the budget let it."""
        paid = len(self.paid_api.paths) > self.calls
        at = self.now() - (DAWDLE_MS if paid and self.does == "dawdle" else 0)
        assert paid == (self.budget is None or self.spent[at // MINUTE_MS] < self.budget)
        self.calls += paid
        self.spent[at // MINUTE_MS] += paid
        self.owners += 1
        before = self.record or Record("pending")
        self.record = Record("processing", self.owners, at + LEASE_MS, before.value, failures=before.failures)
        result: Result = (self.paid_api.status, self.paid_api.body)
        # Failures in a row are waited for longer and longer.
        cooldown_ms = min(LONGEST_MS, COOLDOWN_MS * 2**before.failures)
        if not paid:
            result = Failure("spend-limit", "spend-limit", MINUTE_MS - at % MINUTE_MS, counted=False)
        elif self.does == "dawdle":
            unknown = Failure("timeout", "unknown", None)
            result = unknown if self.unknown_fails else Failure("timeout", "timeout", cooldown_ms)
        elif self.does == "fail":
            result = Failure("failed", "failed", cooldown_ms)
        elif self.does == "ask for time":
            result = Failure("failed", "failed", max(ASKED_FOR_MS, cooldown_ms))
        return Fetch(self.owners, self.now(), renew, before.value, result)

    def settle(self, fetch: Fetch, reply: Reply, sent: Sent) -> Value | None:
        """Settle a fetch, if the key is still its own, and judge its caller's answer; return the value served."""
        record, ended_at = self.record, fetch.ended_at
        assert record is not None
        mine = record.state == "processing" and record.owner == fetch.owner
        if isinstance(fetch.result, Failure):
            failed = fetch.result
            if mine:
                self.fail(failed.shared, failed.cooldown_ms, ended_at, counted=failed.counted)
            if self.usable(fetch.found):
                self.is_stale(reply, fetch.found, sent)
            else:
                self.is_failure(reply, failed.told, failed.cooldown_ms)
            return None
        status, body = fetch.result
        negative = status == 404
        fresh_until = ended_at + (NEGATIVE_MS if negative else FRESH_MS)
        value = Value(status, body, ended_at, fresh_until, fresh_until + (0 if negative else STALE_MS))
        if mine:
            self.record = Record("completed", fetch.owner, value=value)
            self.is_value(reply, value, f"fwd={fetch.forward}; stored", sent)
            return value
        if record.state == "completed":
            # Who comes late is given what stands there, which is newer.
            self.is_value(reply, record.value, f"fwd={fetch.forward}; collapsed", sent)
            return record.value
        self.is_value(reply, value, f"fwd={fetch.forward}", sent, tagged=False)
        return None

    def fail(self, kind: str, cooldown_ms: int | None, at: int, *, counted: bool = True) -> None:
        record = self.record
        assert record is not None
        retry_at = math.inf if cooldown_ms is None else at + cooldown_ms
        self.record = Record("failed", record.owner, 0, record.value, kind, retry_at, record.failures + counted)

    # Judging answers

    def send(self, function: CacheFunction, method: str, more: str = "", headers: Sent | None = None) -> Reply:
        reply = function.send(event(method, f"/v1/cache/rates{more}", query=QUERY, headers=headers))
        check_described(method, "/v1/cache/{source}" + more, reply)
        return reply

    def is_value(self, reply: Reply, value: Value | None, status: str, sent: Sent, *, tagged: bool = True) -> None:
        """Assert that an answer is this value, and says where it came from and how old it is."""
        assert value is not None
        assert reply.headers.get("cache-status") == f"firstwrite; {status}", reply
        assert reply.headers["age"] == str((self.now() - value.stored_at) // 1000)
        assert ("etag" in reply.headers) == tagged
        known = False
        if tagged:
            tag = self.tags.setdefault(value.body, reply.headers["etag"])
            assert reply.headers["etag"] == tag
            assert len(set(self.tags.values())) == len(self.tags)
            # Only of what would be a success is anybody told that it has not changed.
            known = value.status == 200 and sent.get("If-None-Match") in ("*", tag, f'"other", W/{tag}')
        if known:
            assert (reply.status, reply.body) == (304, b"")
        else:
            assert (reply.status, reply.body) == (value.status, value.body)
            assert reply.headers["content-type"] == self.paid_api.content_type

    def is_stale(self, reply: Reply, value: Value | None, sent: Sent) -> None:
        self.is_value(reply, value, f"hit; ttl={self.ttl_s(value)}; detail=stale", sent)

    def ttl_s(self, value: Value | None) -> int:
        assert value is not None
        return (value.fresh_until - self.now()) // 1000

    def is_failure(self, reply: Reply, kind: str, left_ms: float | None) -> None:
        assert (reply.status, reply.problem) == PROBLEMS[kind], reply
        assert reply.headers["cache-status"] == f"firstwrite; fwd=miss; detail={kind}"
        forever = left_ms is None or left_ms == math.inf
        assert reply.headers.get("retry-after") == (None if forever else str(max(1, math.ceil(left_ms / 1000))))  # type: ignore[operator]

    def is_what_stands_there(self, reply: Reply, sent: Sent) -> None:
        """Assert that an answer shares a failure: the old value while it may be served, else the problem."""
        record = self.record
        assert record is not None
        if self.usable(record.value):
            self.is_stale(reply, record.value, sent)
        else:
            self.is_failure(reply, record.failure, record.retry_at - self.now())

    # Requests

    @rule(
        env=ENVIRONMENTS,
        renew=st.booleans(),
        match=st.sampled_from(["", "", "*", "current", "one of two", '"other"']),
        wait_s=st.sampled_from([None, 0, 1, 60]),
        joins=st.booleans(),
    )
    def get(self, env: int, match: str, wait_s: int | None, *, renew: bool, joins: bool) -> None:
        """Ask; where somebody fetches already, `joins` lets that fetch end while this caller waits."""
        sent: dict[str, str] = {}
        if renew:
            sent["Cache-Control"] = "max-age=0, no-cache"
        if wait_s is not None:
            sent["Prefer"] = f"wait={wait_s}"
        if match:
            tag = self.tags.get(self.record.value.body, '"none"') if self.record and self.record.value else '"none"'
            sent["If-None-Match"] = {"current": tag, "one of two": f'"other", W/{tag}'}.get(match, match)
        value = self.judge_get(env, sent, WAIT_MS if wait_s is None else min(wait_s * 1000, WAIT_MS), renew, joins)
        if value and self.memory_ms:
            self.memories[env] = (value, self.now() + self.memory_ms)

    def judge_get(self, env: int, sent: Sent, wait_ms: int, renew: bool, joins: bool) -> Value | None:  # noqa: FBT001 - drawn
        """Send a request and judge its answer; return the value that its environment may remember."""
        start, record = self.now(), self.record
        remembered = self.memories[env]
        in_memory = remembered and not renew and min(remembered[1], remembered[0].fresh_until) > start
        will_fetch = self.would_fetch(renew=renew)
        left_ms = self.lease_left_ms()
        flight = next((flight for flight in self.flights if record and flight.fetch.owner == record.owner), None)
        joins = joins and flight is not None and left_ms > 0
        if joins:
            self.clock.meanwhile = lambda: self.end(flight)  # type: ignore[arg-type]
        reply = self.send(self.functions[env], "GET", headers=sent)
        joined, self.clock.meanwhile = joins and self.clock.meanwhile is None, None

        if in_memory:
            assert remembered is not None
            self.is_value(reply, remembered[0], f"hit; ttl={self.ttl_s(remembered[0])}; detail=memory", sent)
        elif joined:
            return self.judge_joined(reply, sent, renew=renew)
        elif will_fetch:
            return self.settle(self.fetch(renew=renew), reply, sent)
        elif record is not None and record.state == "processing":
            return self.judge_waiting(reply, sent, start, left_ms, wait_ms, renew=renew)
        else:
            return self.judge_standing(reply, sent)
        return None

    def judge_standing(self, reply: Reply, sent: Sent) -> Value | None:
        """Judge an answer that a settled record gives without a call."""
        record = self.record
        assert record is not None
        if record.state == "failed":
            self.is_what_stands_there(reply, sent)
            return None
        self.is_value(reply, record.value, f"hit; ttl={self.ttl_s(record.value)}", sent)
        return record.value

    def judge_waiting(
        self, reply: Reply, sent: Sent, start: int, left_ms: int, wait_ms: int, *, renew: bool
    ) -> Value | None:
        """Judge the answer of somebody who found a fetch running, `left_ms` before its lease was over."""
        record = self.record
        assert record is not None
        gave_up = reply.headers.get("cache-status") == "firstwrite; fwd=miss; collapsed; detail=wait-ended"
        if left_ms > 0 and not renew and record.value and record.value.stale_until > start:
            self.is_stale(reply, record.value, sent)
            return None
        if gave_up:
            assert (reply.status, reply.problem) == (503, "fetch-in-progress")
            assert wait_ms <= left_ms + ROUNDING_MS
            assert int(reply.headers["retry-after"]) >= 1
            assert self.now() - start <= wait_ms + ROUNDING_MS
            return None
        assert wait_ms >= left_ms - ROUNDING_MS, reply
        # The lease is over and its owner is not back.
        if self.unknown_fails:
            self.fail("unknown", None, self.now())
            self.is_what_stands_there(reply, sent)
            return None
        return self.settle(self.fetch(renew=renew), reply, sent)

    def judge_joined(self, reply: Reply, sent: Sent, *, renew: bool) -> Value | None:
        """Judge the answer of somebody who waited until another's fetch ended."""
        record = self.record
        assert record is not None
        if record.state == "completed":
            self.is_value(reply, record.value, f"fwd={'request' if renew else 'miss'}; collapsed", sent)
            return record.value
        self.is_what_stands_there(reply, sent)
        return None

    @rule(env=ENVIRONMENTS)
    def invalidate(self, env: int) -> None:
        assert self.send(self.functions[env], "DELETE").status == 204
        self.memories[env] = None
        if self.record:
            self.record = Record("pending")

    @rule(env=ENVIRONMENTS)
    def show_entry(self, env: int) -> None:
        reply = self.send(self.functions[env], "GET", "/entry")
        if self.record is None:
            assert (reply.status, reply.problem) == (404, "not-found")
            return
        view, value = reply.json, self.record.value
        assert (view["state"], view["failures"]) == (self.record.state, self.record.failures)
        assert view.get("status") == (value.status if value else None)
        assert view.get("age_seconds") == ((self.now() - value.stored_at) // 1000 if value else None)
        assert view["fence"] >= self.fence
        self.fence = view["fence"]

    # Fetches that take their time

    @rule(renew=st.booleans())
    def begin(self, *, renew: bool) -> None:
        """Let somebody fetch, and stop after the paid call."""
        if not self.would_fetch(renew=renew):
            return
        brake = Brake(self.engine)
        function = self.new_function(brake)
        replies: list[Reply] = []

        def ask() -> None:
            try:
                replies.append(self.send(function, "GET", headers={"Cache-Control": "no-cache"} if renew else {}))
            except Killed:
                pass
            finally:
                brake.stopped.set()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert brake.stopped.wait(PATIENCE_S)
        assert not replies, replies
        self.flights.append(Flight(self.fetch(renew=renew), brake, thread, replies))

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def end_one(self, data: st.DataObject) -> None:
        """Let one of those who were stopped go on, however late."""
        self.end(self.flights[data.draw(st.integers(0, len(self.flights) - 1))])

    def end(self, flight: Flight) -> None:
        self.flights.remove(flight)
        flight.brake.go_on.set()
        flight.thread.join(PATIENCE_S)
        (reply,) = flight.replies
        self.settle(flight.fetch, reply, {})

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def kill_one(self, data: st.DataObject) -> None:
        """Let one of those who were stopped never come back."""
        self.kill(self.flights[data.draw(st.integers(0, len(self.flights) - 1))])

    def kill(self, flight: Flight) -> None:
        self.flights.remove(flight)
        flight.brake.killed = True
        flight.brake.go_on.set()
        flight.thread.join(PATIENCE_S)
        assert not flight.replies

    # Time and processes

    @rule(by_ms=st.sampled_from([500, 1_500, LEASE_MS + SKEW_MS, 5_000, FRESH_MS, STALE_MS, MINUTE_MS]))
    def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule(early_ms=st.sampled_from([0, 1]))
    def come_to_a_border(self, early_ms: int) -> None:
        """Go to where something ends next, or just before."""
        record = self.record
        if record is None:
            return
        value = record.value
        borders = [record.lease_until + SKEW_MS, record.retry_at]
        borders += [value.fresh_until, value.stale_until] if value else []
        ahead = [border - early_ms for border in borders if self.now() < border - early_ms < math.inf]
        if ahead:
            self.clock.advance(min(ahead) - self.now())

    @rule(env=ENVIRONMENTS)
    def start_anew(self, env: int) -> None:
        self.functions[env] = self.new_function(self.engine)
        self.memories[env] = None

    # What always holds

    @invariant()
    def no_call_is_paid_beside_the_model(self) -> None:
        assert len(self.paid_api.paths) == self.calls

    def teardown(self) -> None:
        for flight in list(self.flights):
            self.kill(flight)
