"""Every schedule of a few racers, with faults at every point, and what must hold after every step.

A *schedule* is a list of moves: who goes on, and with which fault if any. Every DynamoDB call, every paid call (going
out, and coming back) and every sleep is a point at which another may go first; the parts of a batch read are points of
their own, for DynamoDB does not read them at one instant.

All schedules are covered, though not walked one by one. Two schedules that bring everything (items, racers, clock,
faults left, and the invariants' own memory) to the same state go on alike, so what follows is explored once. That is
the whole reduction, it is exact, and the number of schedules that a state leads to is the sum over its moves.

Time passes only when somebody wakes, when a paid call comes back, or by the move `clock`, which is everyone stalling
past all leases. A sleeper may be woken before another makes its next call: any relative speed is covered.

Moves, as they stand in a schedule:

    A                 A comes; its call is done and answered; it wakes; its paid call goes out, or comes back
    A:0, A:1 …        one key of A's batch is read
    A/conflict        refused, nothing written, as when transactions meet; `mixed`: beside a failed condition
    A/throttle        refused, nothing written
    A/lost-request    silence, nothing written
    A/lost-reply      silence, and it was written
    A/late-request    silence, and it will be written at some later time, if ever; `~A` is when
    A/stale           an eventually consistent read that misses the last write; an index that lags behind
    A/dies            the process is gone before its call; `A/dies-after`: after it
    A/fails           the paid call fails; `A/times-out`: it may have been paid
    clock             everyone stalls
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.interleave.engine import Engine
from tests.interleave.racer import Call, Node, Note, Racer, Reply, Seat, deterministic, sitting
from tests.interleave.timeline import changed, drawn, short, spelled
from tests.interleave.world import WRITES, Change, Slot, Store, World

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

START_MS = 1_800_000_000_000
MOST_STATES = 2_000_000
MOST_CALLS = 60
"""More calls than this for one racer is a loop that does not end."""
NETWORK = frozenset({"lost-request", "lost-reply", "late-request"})
LOAD = frozenset({"conflict", "throttle", "mixed"})
DEATH = frozenset({"dies", "dies-after"})
PAID = frozenset({"fails", "times-out"})
STALL = frozenset({"clock"})
STALE = frozenset({"stale"})
ALL_FAULTS = NETWORK | LOAD | DEATH | PAID | STALL
_SILENT = {"lost-request", "lost-reply", "late-request"}


class Violation(Exception):  # noqa: N818 - it is a finding, not an error
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        racer: to whom.
        kind: `wrote`, `read` (one item), `noted`, `sent`, `received`, `ended`, `raised`, `died` or `stalled`.
        changes: items, for `wrote`.
        note: what a script said, for `noted`.
        value: the request that was sent, what was received, or what was raised.
        number: of the paid call, counted from 1 in the order in which they went out.
    """

    racer: str
    kind: str
    changes: tuple[Change, ...] = ()
    note: Note | None = None
    value: Any = None
    number: int = 0


class Scene(NamedTuple):
    """What the invariants may look at beside the event: the time and all items."""

    now_ms: int
    store: Store
    world: World
    faults: int
    """How many faults there were so far."""

    def item(self, table: str, *key: str) -> Mapping[str, Any] | None:
        """Return an item as plain values."""
        return self.world.item(self.store, (table, key))

    def items(self) -> dict[Slot, Mapping[str, Any]]:
        """Return all items as plain values."""
        return self.world.items(self.store)


class Invariants(Protocol):
    """What must hold. All memory is in a hashable value that the explorer keeps, for it goes back and forth."""

    def begin(self, scene: Scene) -> Hashable:
        """Return the memory at the start."""
        ...

    def see(self, memory: Any, event: Event, scene: Scene) -> Hashable:
        """Return the memory after an event, or raise `Violation`."""
        ...

    def end(self, memory: Any, scene: Scene) -> None:
        """Raise `Violation` if something is wrong when all is over."""
        ...


@dataclass(frozen=True)
class Scenario:
    """A race.

    Attributes:
        name: as it stands in the report.
        about: what it shows.
        racers: what each does, by name.
        setup: makes tables and what stands in them.
        invariants: what must hold.
        faults: which may happen.
        budget: how many of them in one schedule.
        stall_ms: by how much `clock` moves the clock.
        after: a latecomer, when all is over: nothing may be stuck.
        after_ms: how long after the start it comes.
    """

    name: str
    about: str
    racers: Mapping[str, Callable[[Seat], Any]]
    setup: Callable[[Engine, Seat], None]
    invariants: Invariants
    faults: frozenset[str] = ALL_FAULTS
    budget: int = 1
    stall_ms: int = 5_000
    after: Callable[[Seat], Any] | None = None
    after_ms: int = 3_600_000


class Standing(NamedTuple):
    """A racer in a state: where it is, the parts of its batch that were read, and whether it died."""

    node: Node
    parts: frozenset[tuple[int, int]] = frozenset()
    dead: bool = False

    @property
    def is_over(self) -> bool:
        """Will it do nothing more?"""
        return self.dead or self.node.call is None


class State(NamedTuple):
    """Everything on which the rest of a schedule depends."""

    store: Store
    old: Store
    now_ms: int
    racers: tuple[Standing, ...]
    late: tuple[tuple[int, Node], ...]
    sent: int
    faults: int
    memory: Hashable


Move = tuple[str, int, str]
"""A label, a racer, and how its call goes."""


@dataclass
class Found:
    """What exploring a scenario came to."""

    scenario: str
    schedules: int = 0
    states: int = 0
    moves: int = 0
    runs: int = 0
    seconds: float = 0.0
    violations: int = 0
    first: Failure | None = None
    outcomes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Failure:
    """A schedule that breaks an invariant.

    Attributes:
        scenario: which race.
        schedule: its moves.
        message: what does not hold.
        timeline: what happened, line by line.
    """

    scenario: str
    schedule: str
    message: str
    timeline: str


class TooManyStatesError(Exception):
    """The scenario is too large to be explored whole."""


class Explorer:
    """Explores one scenario.

    Args:
        scenario: the race.
        budget: faults in a schedule, the scenario's own unless given.
        most_states: where to give up.
        reduce: False walks every schedule by itself and keeps all outcomes, to check that the reduction is exact.
    """

    def __init__(
        self,
        scenario: Scenario,
        budget: int | None = None,
        most_states: int = MOST_STATES,
        *,
        reduce: bool = True,
        keep_outcomes: bool = False,
    ) -> None:
        self._keep_outcomes = keep_outcomes
        self.scenario = scenario
        self._budget = scenario.budget if budget is None else budget
        self._most_states = most_states
        self._reduce = reduce
        self._racers = [Racer(name, script) for name, script in scenario.racers.items()]
        self._after = Racer("Z", scenario.after) if scenario.after else None
        self._keeps_old = "stale" in scenario.faults
        engine = Engine()
        seat = Seat("S", (), (), START_MS)
        with deterministic(), sitting(seat):
            scenario.setup(engine, seat)
        self.world = World(engine)
        self._store = self.world.store_now()
        self._found = Found(scenario.name)
        self._log: list[str | Event] | None = None

    def begin(self) -> State:
        """Return the state before the first move."""
        store = self._store
        memory = self.scenario.invariants.begin(Scene(START_MS, store, self.world, 0))
        racers = tuple(Standing(racer.root(START_MS)) for racer in self._racers)
        state = State(store, store if self._keeps_old else (), START_MS, racers, (), 0, 0, memory)
        for index in range(len(racers)):
            state = self._arrived(state, index)
        return state

    def moves(self, state: State) -> list[Move]:
        """Return the moves that a state allows; what goes well first, so that failing schedules read easily."""
        well: list[Move] = []
        badly: list[Move] = []
        may_fail = state.faults < self._budget
        for index, standing in enumerate(state.racers):
            if standing.is_over:
                continue
            name, call = self._racers[index].name, standing.node.call
            assert call is not None
            if call.operation == "batch_get_item":
                read = {slot for slot, _ in standing.parts}
                keys = self.world.touched(call)
                well += [(f"{name}:{part}", index, str(part)) for part, slot in enumerate(keys) if slot not in read]
            else:
                well.append((name, index, ""))
            if may_fail:
                badly += [(f"{name}/{fault}", index, fault) for fault in self._faults(call)]
        well += [(f"~{self._racers[index].name}", position, "~") for position, (index, _) in enumerate(state.late)]
        if may_fail and "clock" in self.scenario.faults and not self._is_over(state):
            badly.append(("clock", -1, "clock"))
        return well + badly

    def _faults(self, call: Call) -> Iterator[str]:
        possible = self.scenario.faults
        operation = call.operation
        if operation in ("come", "sleep"):
            return
        if operation in ("send", "receive"):
            names: tuple[str, ...] = ("dies",) if operation == "send" else ("fails", "times-out", "dies")
        elif operation in WRITES:
            names = ("conflict", "throttle", "lost-request", "lost-reply", "late-request", "dies", "dies-after")
            if operation == "transact_write_items":
                names = (*names, "mixed")
        else:
            names = ("throttle", "lost-request", "dies")
            if operation == "query" or not call.request.get("ConsistentRead", operation == "batch_get_item"):
                names = (*names, "stale")
        yield from (name for name in names if name in possible)

    def go(self, state: State, move: Move) -> State:
        """Return the state after a move.

        Raises:
            Violation: an invariant does not hold there.
        """
        label, index, how = move
        self._say(label, state, None if index < 0 else state.late[index][1] if how == "~" else state.racers[index].node)
        if how == "clock":
            state = state._replace(now_ms=state.now_ms + self.scenario.stall_ms, faults=state.faults + 1)
            return self._tell(state, Event("", "stalled"))
        if how == "~":
            owner, node = state.late[index]
            assert node.call is not None
            late = state.late[:index] + state.late[index + 1 :]
            return self._written(state._replace(late=late), self._racers[owner].name, node.call)[1]
        standing = state.racers[index]
        call = standing.node.call
        assert call is not None
        if how.isdigit():
            return self._read_part(state, index, int(how))
        if how:
            return self._fault(state._replace(faults=state.faults + 1), index, call, how)
        reply, state = self._done(state, self._racers[index].name, standing.node)
        return self._answered(state, index, reply)

    def _done(self, state: State, name: str, node: Node, outcome: str = "ok") -> tuple[Reply, State]:
        """Do the call that a racer waits for."""
        call = node.call
        assert call is not None
        issued_ms = node.history[-1][1] if node.history else node.started_ms
        match call.operation:
            case "come":
                return self.world.reply(None), state
            case "sleep":
                return self.world.reply(None), state._replace(now_ms=max(state.now_ms, issued_ms + call.request))
            case "send":
                state = state._replace(sent=state.sent + 1)
                state = self._tell(state, Event(name, "sent", value=call.request, number=state.sent))
                return self.world.reply(state.sent), state
            case "receive":
                number, takes_ms = call.request
                state = state._replace(now_ms=max(state.now_ms, issued_ms + takes_ms))
                state = self._tell(state, Event(name, "received", value=outcome, number=number))
                return self.world.reply(outcome), state
        return self._written(state, name, call)

    def _written(self, state: State, name: str, call: Call) -> tuple[Reply, State]:
        reply, store, changes = self.world.do(call, state.store)
        if call.operation == "get_item":
            return reply, self._tell(state, Event(name, "read", value=call.request["Key"]))
        if changes:
            state = state._replace(store=store, old=state.store if self._keeps_old else ())
            state = self._tell(state, Event(name, "wrote", changes=changes))
        return reply, state

    def _fault(self, state: State, index: int, call: Call, how: str) -> State:
        standing = state.racers[index]
        name = self._racers[index].name
        if how in DEATH:
            if how == "dies-after":
                state = self._written(state, name, call)[1]
            return self._tell(_placed(state, index, standing._replace(dead=True)), Event(name, "died"))
        if how in PAID:
            reply, state = self._done(state, name, standing.node, outcome=how)
            return self._answered(state, index, reply)
        if how == "stale":
            empty = call.operation == "query"
            reply = self.world.reply({"Items": [], "Count": 0}) if empty else self.world.do(call, state.old)[0]
            return self._answered(state, index, reply)
        if how == "throttle" and standing.parts:
            # Some of a batch was read, the rest is said to be unprocessed.
            return self._answered(state, index, self.world.batch(call, standing.parts, unprocessed=True))
        if how == "lost-reply":
            state = self._written(state, name, call)[1]
        if how == "late-request":
            state = state._replace(late=(*state.late, (index, standing.node)))
        return self._answered(state, index, self.world.failure("silence" if how in _SILENT else how, call))

    def _read_part(self, state: State, index: int, part: int) -> State:
        standing = state.racers[index]
        call = standing.node.call
        assert call is not None
        parts = standing.parts | {self.world.read_part(call, part, state.store)}
        if len(parts) < len(self.world.touched(call)):
            return _placed(state, index, standing._replace(parts=parts))
        return self._answered(state, index, self.world.batch(call, parts, unprocessed=False))

    def _answered(self, state: State, index: int, reply: Reply) -> State:
        node = self._racers[index].after(state.racers[index].node, reply, state.now_ms)
        if len(node.history) > MOST_CALLS:
            raise Violation(f"{self._racers[index].name} made {MOST_CALLS} calls and has no answer")
        return self._arrived(_placed(state, index, Standing(node)), index)

    def _arrived(self, state: State, index: int) -> State:
        return self._told(state, self._racers[index].name, state.racers[index].node)

    def _told(self, state: State, name: str, node: Node) -> State:
        """Tell the invariants what a racer said on its way to where it is now."""
        for note in node.notes:
            state = self._tell(state, Event(name, "noted", note=note))
        if node.error is not None:
            return self._tell(state, Event(name, "raised", value=node.error))
        return self._tell(state, Event(name, "ended", value=node.result)) if node.call is None else state

    def _tell(self, state: State, event: Event) -> State:
        if self._log is not None:
            self._log.append(event)
        memory = self.scenario.invariants.see(state.memory, event, self._scene(state))
        return state if memory is state.memory else state._replace(memory=memory)

    def _scene(self, state: State) -> Scene:
        return Scene(state.now_ms, state.store, self.world, state.faults)

    @staticmethod
    def _is_over(state: State) -> bool:
        return all(standing.is_over for standing in state.racers)

    def _close(self, state: State) -> None:
        """Let the latecomer run, and judge the end."""
        if self._after:
            state = state._replace(now_ms=max(state.now_ms, START_MS + self.scenario.after_ms))
            node = self._after.root(state.now_ms)
            self._say("Z comes at last", state, None)
            state = self._told(state, "Z", node)
            while node.call is not None:
                if len(node.history) > MOST_CALLS * 2:
                    raise Violation("the latecomer has no answer")
                self._say("Z", state, node)
                if node.call.operation == "batch_get_item":
                    slots = range(len(self.world.touched(node.call)))
                    parts = frozenset(self.world.read_part(node.call, part, state.store) for part in slots)
                    reply = self.world.batch(node.call, parts, unprocessed=False)
                else:
                    reply, state = self._done(state, "Z", node)
                node = self._after.after(node, reply, state.now_ms)
                state = self._told(state, "Z", node)
        self.scenario.invariants.end(state.memory, self._scene(state))

    def explore(self, *, stop_at_first: bool = False) -> Found:
        """Explore all schedules; on a violation, find the shortest one that shows it."""
        found = self._found
        began = time.perf_counter()
        sys.setrecursionlimit(20_000)
        gc.disable()  # millions of states, none of them garbage
        with deterministic():
            try:
                known: dict[State, int] = {}
                found.schedules = self._count(self.begin(), known, stop_at_first=stop_at_first)
                found.states = len(known)
            except _Stop:
                pass
            if found.violations:
                found.first = self._shortest()
        gc.enable()
        found.seconds = time.perf_counter() - began
        found.runs = sum(racer.runs for racer in self._racers) + (self._after.runs if self._after else 0)
        return found

    def _count(self, state: State, known: dict[State, int], *, stop_at_first: bool) -> int:
        """Return how many schedules go on from a state."""
        if self._reduce:
            count = known.get(state)
            if count is not None:
                return count
        if len(known) > self._most_states:
            raise TooManyStatesError(f"{self.scenario.name}: more than {self._most_states} states")
        count = 0
        if self._is_over(state):
            count = 1
            self._judge(lambda: self._close(state), stop_at_first=stop_at_first)
            if self._keep_outcomes:
                self._found.outcomes.add(repr((state.store, state.memory)))
        for move in self.moves(state):
            self._found.moves += 1
            after = self._judge(lambda move=move: self.go(state, move), stop_at_first=stop_at_first)  # type: ignore[misc]
            count += 1 if after is None else self._count(after, known, stop_at_first=stop_at_first)
        known[state] = count
        return count

    def _judge(self, act: Callable[[], Any], *, stop_at_first: bool) -> Any:
        try:
            return act()
        except Violation:
            self._found.violations += 1
            if stop_at_first:
                raise _Stop from None
            return None

    def _shortest(self) -> Failure:
        """Return a failing schedule with the fewest moves, and of those one with the fewest faults."""
        start = self.begin()
        came_from: dict[State, tuple[State, str] | None] = {start: None}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            try:
                if self._is_over(state):
                    self._close(state)
                last = ""
                for move in self.moves(state):
                    last = move[0]
                    after = self.go(state, move)
                    if after not in came_from:
                        came_from[after] = (state, last)
                        waiting.append(after)
                    last = ""
            except Violation:
                labels = [last] if last else []
                at: tuple[State, str] | None = came_from[state]
                while at is not None:
                    labels.append(at[1])
                    at = came_from[at[0]]
                return self.replay(" ".join(reversed(labels)))
        raise AssertionError("a violation that was found is gone")

    def replay(self, schedule: str) -> Failure:
        """Run one schedule again, with its timeline; the message is empty where it breaks nothing."""
        self._log = []
        message = ""
        with deterministic():
            try:
                state = self.begin()
                for label in schedule.split():
                    moves = {move[0]: move for move in self.moves(state)}
                    if label not in moves:
                        raise ValueError(f"{label!r} is no move here; choose from {' '.join(moves)}")
                    state = self.go(state, moves[label])
                if self._is_over(state):
                    self._close(state)
            except Violation as violation:
                message = str(violation)
        timeline = drawn([line if isinstance(line, str) else happened(line) for line in self._log], message)
        self._log = None
        return Failure(self.scenario.name, schedule, message, timeline)

    def _say(self, label: str, state: State, node: Node | None) -> None:
        if self._log is not None:
            call = spelled(node.call) if node and node.call else ""
            self._log.append(f"{state.now_ms - START_MS:>8} ms  {label:<16} {call}")


class _Stop(Exception):  # noqa: N818 - it is no error
    """The first violation is enough."""


def happened(event: Event) -> str:
    """Return an event as a line of a timeline."""
    text = f"{event.racer or 'everyone'}: {event.kind}"
    match event.kind:
        case "wrote":
            text = "\n".join(f"{_INDENT}{changed(change)}" for change in event.changes).lstrip()
        case "noted" if event.note:
            text = f"{event.racer}: {event.note.name} {short(event.note.value)}".rstrip()
        case "sent":
            text = f"{event.racer}: paid call {event.number} goes out, {short(event.value)}"
        case "received":
            text = f"{event.racer}: paid call {event.number} comes back: {event.value}"
        case "raised":
            text = f"{event.racer}: raised {event.value!r}"
        case "ended":
            text = f"{event.racer}: done"
        case "read":
            return ""
    return _INDENT + text


_INDENT = " " * 13


def _placed(state: State, index: int, standing: Standing) -> State:
    return state._replace(racers=(*state.racers[:index], standing, *state.racers[index + 1 :]))
