"""What a soak has seen from the outside: requests with every answer, the tables, the paid API's log, the faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["claim", "queue", "read", "confirm", "release", "adjust", "item", "audit", "fetch", "renew", "drop"]

FINAL: Mapping[str, frozenset[tuple[int, str]]] = {
    "claim": frozenset({(201, ""), (409, "sold-out"), (409, "limit-reached")}),
    "queue": frozenset({(201, ""), (202, ""), (409, "limit-reached")}),
    "read": frozenset({(200, "")}),
    "confirm": frozenset({(200, ""), (409, "hold-expired"), (409, "already-released")}),
    "release": frozenset({(200, ""), (409, "hold-expired"), (409, "already-confirmed")}),
    "adjust": frozenset({(200, ""), (409, "not-enough-stock")}),
    "item": frozenset({(200, "")}),
    "audit": frozenset({(200, "")}),
    "fetch": frozenset({(200, ""), (404, ""), (409, "outcome-unknown")}),
    "renew": frozenset({(200, ""), (404, ""), (409, "outcome-unknown")}),
    "drop": frozenset({(204, "")}),
}
"""What ends a request, by its kind: statuses and types of problem."""
PASSING = frozenset({"busy", "fetch-in-progress", "upstream-failed", "upstream-timeout"})
"""Problems that ask for another try."""


@dataclass(frozen=True, slots=True)
class Request:
    """One logical request; its repeats, whoever sends them, are the same request.

    Attributes:
        kind: which call.
        of: the item, or the id of the cached value.
        caller: who asks.
        key: the Idempotency-Key.
        claimant: for whom.
        quantity: units; of an adjustment, what to add.
        claim_id: of a claim that is read or settled.
        query: of a cached value.
        source: of a cached value.
    """

    kind: Kind
    of: str
    caller: str = "soak"
    key: str = ""
    claimant: str = ""
    quantity: int = 1
    claim_id: str = ""
    source: str = ""
    query: tuple[tuple[str, str], ...] = ()

    @property
    def is_cache(self) -> bool:
        return self.kind in {"fetch", "renew", "drop"}

    @property
    def wants_failure(self) -> bool:
        """Is the paid API asked to fail, so that its failure is the answer?"""
        return ("status", "500") in self.query

    @property
    def line(self) -> str:
        shown = {"key": self.key, "claimant": self.claimant, "quantity": self.quantity, "claim": self.claim_id}
        return f"{self.kind} {self.source} {self.of} " + " ".join(f"{k}={v}" for k, v in shown.items() if v)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request and what came back. Times in epoch seconds.

    Attributes:
        status: HTTP status, 0 where no answer came.
        problem: the slug of the problem's type, empty where the body is no problem of the functions.
        body: the JSON object that was answered, empty where it was none.
        digest: SHA-256 of the body's bytes.
        mark: `Cache-Status`.
        repeated: marked as a repeat.
    """

    began: float
    ended: float
    status: int
    problem: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    mark: str = ""
    repeated: bool = False

    @property
    def line(self) -> str:
        said = self.problem or self.body.get("state", "") or self.mark or self.digest[:8]
        return f"{self.began:.3f}..{self.ended:.3f} {self.status} {said}{' (repeated)' if self.repeated else ''}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One client's asking of a request: tries until a final answer, or until it gave up."""

    request: Request
    attempts: Sequence[Attempt]

    @property
    def began(self) -> float:
        return self.attempts[0].began

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def lines(self) -> list[str]:
        return [f"{self.request.line}: {attempt.line}" for attempt in self.attempts]


def is_final(request: Request, attempt: Attempt) -> bool:
    """Does this answer end the request?"""
    said = attempt.status, attempt.problem
    return said in FINAL[request.kind] or (request.wants_failure and said == (502, "upstream-failed"))


@dataclass(frozen=True, slots=True)
class PaidCall:
    """One call as the paid API's side saw it. Times in epoch seconds.

    Attributes:
        ended: when the answer left, None while it has not.
        heard: whether it was sent at all.
        status: of the answer.
        digest: SHA-256 of the answer's body.
    """

    of: str
    refresh: str
    fence: int
    began: float
    ended: float | None
    status: int
    heard: bool = True
    digest: str = ""

    @property
    def line(self) -> str:
        ended = f"{self.ended:.3f}" if self.ended else "?"
        heard = "" if self.heard else " unheard"
        return f"paid {self.of} {self.began:.3f}..{ended} fence={self.fence} {self.refresh} {self.status}{heard}"


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault: its kind, when it struck (epoch seconds), and what: an operation and its keys, or a worker's work."""

    kind: str
    at: float
    of: Sequence[str]


@dataclass(frozen=True, slots=True)
class Item:
    """What an item was created with."""

    name: str
    stock: int
    shards: int
    limit: int | None = None
    hold_s: int | None = None
    sells_out: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """What a source promises, in seconds. `careful`: what may have been paid is not paid again."""

    fresh_s: float
    stale_s: float
    timeout_s: float
    lease_s: float
    cooldown_s: float
    careful: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is judged.

    Attributes:
        asked: every request, in no order.
        items: by name.
        records: the stock table, as plain values.
        sources: by name.
        values: the source and the record key of each cached value, by its id.
        paid: the paid API's log.
        counted: its own count of calls, by id.
        struck: the faults.
    """

    asked: Sequence[Asked] = ()
    items: Mapping[str, Item] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    paid: Sequence[PaidCall] = ()
    counted: Mapping[str, int] = field(default_factory=dict)
    struck: Sequence[Struck] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be.

    Attributes:
        rule: which.
        what: what was seen.
        of: the item, claim or value whose history tells more.
    """

    rule: str
    what: str
    of: str
