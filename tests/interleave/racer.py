"""A racer: product code that runs up to its next call, whatever the schedule has answered to it so far.

What a racer does next depends on nothing but the answers it got and the time it got them (its *history*), for it is one
process with memory of its own, and its randomness is taken away. So the code need not be kept waiting in a thread:
to take a racer one step further, it is run again from its beginning, is handed its history, and stops at the first call
that has no answer yet. Each history is run once, and every schedule in which it occurs shares what came of it.

A call that does not match the one that was answered under the same history means that the code is not deterministic
here, and is an error of the proof itself.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from firstwrite.observability import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPERATIONS = frozenset({"get_item", "batch_get_item", "put_item", "update_item", "transact_write_items", "query"})
_SILENT = "CRITICAL"
_SPREADS = (
    "firstwrite.claim.records.CLAIM_BUCKETS",
    "firstwrite.claim.audit.CLAIM_BUCKETS",
    "firstwrite.claim.records.ITEM_BUCKETS",
    "firstwrite.claim.records.DUE_GROUPS",
    "firstwrite.claim.records.DUE_SPREAD",
)


class Pause(BaseException):
    """The history ends here. No handler for errors may catch it."""


class NotDeterministicError(Exception):
    """The code did something else under the same history."""


@dataclass(frozen=True, slots=True)
class Call:
    """A scheduling point.

    Attributes:
        operation: a DynamoDB operation, `come` (the racer starts), `sleep`,
            `send` (a paid call goes out) or `receive` (its answer comes).
        request: its arguments.
    """

    operation: str
    request: Any


@dataclass(frozen=True, slots=True)
class Note:
    """What a script says about itself, for the invariants: what it asks for and what it was answered."""

    name: str
    value: Any = None


@dataclass(slots=True, eq=False)
class Reply:
    """An answer to a call. Equal answers are one object.

    Attributes:
        number: tells replies apart.
        value: what the call returns.
        error: makes what the call raises instead.
        text: for timelines.
    """

    number: int
    value: Any = None
    error: Callable[[], Exception] | None = None
    text: str = ""


@dataclass(slots=True, eq=False)
class Node:
    """A racer after some history.

    Attributes:
        number: tells nodes apart.
        history: answers and when they came.
        calls: what was answered, in the same order.
        notes: what the script said since the last answer.
        call: what it waits for, None where it has ended.
        result: what the script returned.
        error: what it raised.
    """

    number: int
    history: tuple[tuple[Reply, int], ...]
    calls: tuple[Call, ...]
    started_ms: int
    notes: tuple[Note, ...] = ()
    call: Call | None = None
    result: Any = None
    error: BaseException | None = None


class Seat:
    """The world as one racer sees it: a clock, a DynamoDB client, a paid API, and its own names for writes."""

    def __init__(
        self, name: str, history: tuple[tuple[Reply, int], ...], calls: tuple[Call, ...], started_ms: int
    ) -> None:
        self.name = name
        self._history = history
        self._calls = calls
        self._at = 0
        self._now_ms = started_ms
        self._tokens = 0
        self.slept_ms = 0.0
        self.pending: Call | None = None
        self.notes: list[Note] = []

    def now_ms(self) -> int:
        """Return the time of the last answer: between two calls no time passes."""
        return self._now_ms

    def elapsed_ms(self) -> float:
        """Return the same, as elapsed time."""
        return float(self._now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep; how long it really was, the schedule decides."""
        self.slept_ms += duration_ms
        # Whole milliseconds, and never none, or a loop that sleeps for zero would not be seen to pass time.
        self.call("sleep", max(1, -int(-duration_ms // 1)))

    def token(self, _: int = 0) -> str:
        """Return what stands for random bits."""
        self._tokens += 1
        return f"{self.name}{self._tokens}"

    def note(self, name: str, value: Any = None) -> None:
        """Tell the invariants something."""
        if self._at == len(self._history) and self.pending is None:
            self.notes.append(Note(name, value))

    def call(self, operation: str, request: Any) -> Any:
        """Return the answer to a call, or stop here if there is none yet."""
        if self.pending is not None:
            raise Pause
        call = Call(operation, request)
        if self._at == len(self._history):
            self.pending = call
            raise Pause
        if call != self._calls[self._at]:
            raise NotDeterministicError(f"{self.name}: {call} instead of {self._calls[self._at]}")
        reply, self._now_ms = self._history[self._at]
        self._at += 1
        if reply.error:
            raise reply.error()
        return reply.value

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation not in OPERATIONS:
            raise AttributeError(operation)
        return lambda **request: self.call(operation, request)


class Racer:
    """One racer's histories, as far as they were explored.

    Args:
        name: as it stands in schedules.
        script: what it does.
    """

    def __init__(self, name: str, script: Callable[[Seat], Any]) -> None:
        self.name = name
        self._script = script
        self._nodes: dict[tuple[int, int, int], Node] = {}
        self.runs = 0

    def root(self, now_ms: int) -> Node:
        """Return the racer before its first answer."""
        return self._node((-1, -1, now_ms), (), (), now_ms)

    def after(self, node: Node, reply: Reply, now_ms: int) -> Node:
        """Return what becomes of `node` when its call is answered."""
        assert node.call is not None
        key = (node.number, reply.number, now_ms)
        known = self._nodes.get(key)
        return known or self._node(key, (*node.history, (reply, now_ms)), (*node.calls, node.call), node.started_ms)

    def _node(
        self,
        key: tuple[int, int, int],
        history: tuple[tuple[Reply, int], ...],
        calls: tuple[Call, ...],
        started_ms: int,
    ) -> Node:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self._run(len(self._nodes), history, calls, started_ms)
        return node

    def _run(
        self, number: int, history: tuple[tuple[Reply, int], ...], calls: tuple[Call, ...], started_ms: int
    ) -> Node:
        self.runs += 1
        seat = Seat(self.name, history, calls, started_ms)
        node = Node(number, history, calls, started_ms)
        with sitting(seat):
            try:
                seat.call("come", None)
                node.result = self._script(seat)
            except Pause:
                pass
            except NotDeterministicError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the code raises is for the invariants to judge
                node.error = error.with_traceback(None)
        node.call = seat.pending
        node.notes = tuple(seat.notes)
        return node


_sitting: list[Seat] = []


@contextmanager
def sitting(seat: Seat) -> Iterator[None]:
    """Let `seat` be asked for random bits."""
    _sitting.append(seat)
    try:
        yield
    finally:
        _sitting.pop()


class _Tokens:
    @staticmethod
    def token_urlsafe(size: int) -> str:
        return _sitting[-1].token(size)


@contextmanager
def deterministic() -> Iterator[None]:
    """Take randomness out of the product code, its logging, and the spread of records over many partitions."""
    level = logger.log_level
    logger.setLevel(_SILENT)
    try:
        with ExitStack() as patches:
            patches.enter_context(patch("firstwrite.conditional.secrets", _Tokens))
            for name in _SPREADS:
                patches.enter_context(patch(name, 1))
            yield
    finally:
        logger.setLevel(level)


def nothing(name: str, value: int = 1, **details: str) -> None:
    """Count nothing: what the code counts proves nothing here."""
    del name, value, details
